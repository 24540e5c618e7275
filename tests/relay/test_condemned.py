"""What a Core wants deleted, from the request to the sweep."""

from crystal_relay.memory import MemoryStore
from crystal_relay.server.condemned import Condemned
from crystal_relay.server.sweeper import Sweeper
from crystal_relay.store import Body
from crystal_relay.wire import Condemnation

NOW = 1_800_000_000
VAULT = "a" * 32


async def test_a_condemnation_is_carried_out_whatever_another_sweepers_clock_says() -> None:
    class SweptMeanwhile(MemoryStore):
        """Between the record and the condemnation, a process whose clock is an hour ahead finds nothing there."""

        async def put_new(self, key: str, body: bytes | Body) -> None:
            if key.startswith("r/condemned/"):
                await Sweeper(self, clock=lambda: NOW + 3600).run()
            await super().put_new(key, body)

    store = SweptMeanwhile()
    await store.put_new(f"v/{VAULT}/mirror/1/1", b"x")
    asked = Condemnation(keys=["mirror/1/1"])
    await Condemned(store, retry_seconds=1, clock=lambda: NOW).add(VAULT, asked)
    await Sweeper(store, clock=lambda: NOW).run()
    assert (await store.list("")).entries == ()
