"""Commands are written by every device and deleted by the Core: streams up to an entry, claims by their names."""

from crystal_relay.memory import MemoryStore
from crystal_relay.server import RelaySettings
from tests.relay.test_expiring import condemn, keys_of, sweep
from tests.support.relay_server import ENROLL_TOKEN, enrolled, joined, served


async def test_a_core_has_the_commands_of_every_device_deleted_and_no_other_device_has() -> None:
    async with served(MemoryStore(), RelaySettings(enroll_token=ENROLL_TOKEN)) as relay:
        core = await enrolled(relay.url)
        node = await joined(relay.url, core)
        for each in (core, node):
            store = each.store(relay.url)
            for number in range(3):
                await store.put_new(f"{core.prefix}commands/{each.device}.{'a' * 16}/{number:016d}", b"e")
            await store.put_new(f"{core.prefix}commands/{each.device}.{'0' * 16}/{'b' * 32}", b"claim")
            await store.aclose()
        stream = f"commands/{node.device}.{'a' * 16}/"
        claim = f"commands/{node.device}.{'0' * 16}/{'b' * 32}"
        asked = ({"prefix": stream, "through": f"{stream}{1:016d}"}, {"keys": [claim]})
        for content in asked:
            assert (await condemn(relay, node, content))[0] == 403
        await sweep(relay)
        assert len(await keys_of(relay.store, f"{core.prefix}commands/")) == 8
        for content in asked:
            assert (await condemn(relay, core, content))[0] == 202
        await sweep(relay)
        left = await keys_of(relay.store, f"{core.prefix}commands/")
        assert [key for key in left if node.device in key] == [f"{core.prefix}{stream}{2:016d}"]
        assert len(left) == 5
