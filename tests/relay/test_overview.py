"""Lists of many vaults and tokens: what they ask the store for, and that they show what one by one would."""

import json
from collections import Counter
from collections.abc import Callable

import pytest

from crystal_relay.errors import NotFound
from crystal_relay.memory import MemoryStore
from crystal_relay.server.enrollment import EnrollmentRecord, Enrollments, enrollment_hash
from crystal_relay.server.operator import Operator
from crystal_relay.server.overview import AT_ONCE, INDEX_KEY, NEW_RECORDS_MIN, TOKENS, VAULTS, Overview
from crystal_relay.store import Body, Object, Page
from tests.support.constant import always

COUNT = NEW_RECORDS_MIN + AT_ONCE


class Counted(MemoryStore):
    """Counts what is asked of it, by kind and by key."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
        self.asked["get"] += 1
        return await super().get(key, start=start, length=length)

    async def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Page:
        self.asked["list"] += 1
        return await super().list(prefix, after=after, limit=limit)

    async def put(self, key: str, body: bytes | Body) -> None:
        self.asked["put"] += 1
        await super().put(key, body)


def vault_of(number: int) -> str:
    return enrollment_hash(str(number))[:32]


async def filled(count: int) -> Counted:
    """Vaults as relays have made them: some of an older one, some dropped, some empty."""
    store = Counted()
    for number in range(count):
        vault = vault_of(number)
        await store.put_new(f"r/vault/{vault}/record", b"{}")
        if number % 10:
            origin = {"token": f"{number:012x}", "created": 1_700_000_000 + number, "quota_bytes": number}
            await store.put_new(f"r/vault/{vault}/origin", json.dumps(origin).encode())
        if number % 25 == 1:
            await store.put_new(f"r/vault/{vault}/dropped", b'{"until": 1900000000}')
        for name in range(number % 4):
            await store.put_new(f"v/{vault}/devlog/{name}", b"x" * (number + 1))
    return store


async def test_a_list_shows_what_each_vault_shows_and_reads_what_never_changes_only_once() -> None:
    store = await filled(COUNT)
    operator = Operator(store)
    one_by_one = [await operator.vault(vault) for vault in sorted(map(vault_of, range(COUNT)))]
    origins = COUNT - (COUNT + 9) // 10
    dropped = [number for number in range(COUNT) if number % 25 == 1]
    about_to_go = sum(1 for number in dropped if number % 10)
    for reads in (origins + len(dropped), about_to_go + len(dropped)):
        store.asked.clear()
        assert [each async for each in operator.vaults()] == one_by_one
        assert (store.asked["get"], store.asked["list"]) == (reads + 1, 2), "the index is read, too"
        assert store.asked["put"] == (reads > origins)


def cut(text: bytes) -> bytes:
    return text[:-9]


@pytest.mark.parametrize("spoil", [cut, always(b""), always(b'{"records": {"a": 1}}')])
async def test_a_damaged_index_is_made_again(spoil: Callable[[bytes], bytes]) -> None:
    store = await filled(COUNT)
    shown = [each async for each in Operator(store).vaults()]
    whole = await (await store.get(INDEX_KEY)).read()
    await store.put(INDEX_KEY, spoil(whole))
    assert [each async for each in Operator(store).vaults()] == shown
    assert await (await store.get(INDEX_KEY)).read() == whole


async def test_tokens_are_listed_with_their_uses_and_revoked_ones_leave_the_index() -> None:
    store = Counted()
    for number in range(COUNT):
        name = enrollment_hash(str(number))
        await Enrollments(store).add(name, EnrollmentRecord(f"friend {number}", number + 1, uses=3))
        for use in range(number % 3):
            await store.put_new(f"r/enrolled/{name}/{use:06d}", b"{}")
    for reads in (COUNT + 1, 1):
        store.asked.clear()
        found = await Operator(store).enrollments()
        assert [(each.label, each.used) for each in found] == [
            (f"friend {number}", number % 3) for number in range(COUNT)
        ]
        assert (store.asked["get"], store.asked["list"]) == (reads, 2)
    for number in range(NEW_RECORDS_MIN):
        await Operator(store).revoke_enrollment(enrollment_hash(str(number)))
    assert len(await Operator(store).enrollments()) == COUNT - NEW_RECORDS_MIN
    index = json.loads(await (await store.get(INDEX_KEY)).read())
    assert len(index["records"]) == COUNT - NEW_RECORDS_MIN


async def test_what_was_not_listed_is_asked_of_the_store_itself() -> None:
    store = await filled(5)
    overview = await Overview.read(store, VAULTS)
    await overview.put_new("r/other", b"1")
    assert await (await overview.get("r/other")).read() == b"1"
    assert [each.key for each in (await overview.list("r/o")).entries] == ["r/other"]
    await overview.delete("r/other")
    for key in ("r/other", f"r/vault/{'0' * 32}/record"):
        with pytest.raises(NotFound):
            await overview.get(key)
    prefix = f"{VAULTS}{vault_of(1)}/"
    listed = [each.key for each in (await store.list(prefix)).entries]
    for limit in (1, 2, 3):
        page = await overview.list(prefix, limit=limit)
        assert ([each.key for each in page.entries], page.more) == (listed[:limit], limit < 3)
        rest = await overview.list(prefix, after=page.entries[-1].key)
        assert [each.key for each in rest.entries] == listed[limit:]


@pytest.mark.parametrize("count", [999, 1000, 1001, 2600])
async def test_more_than_a_page_is_listed_in_shares_and_nothing_is_left_out(count: int) -> None:
    store = Counted()
    names = sorted({enrollment_hash(str(number)) for number in range(count)})
    for name in names:
        await store.put_new(f"r/enrollment/{name}", b"{}")
    overview = await Overview.read(store, TOKENS)
    assert store.asked["list"] <= 1 + 16
    page = await overview.list(TOKENS, limit=1000)
    listed = [*page.entries]
    while page.more:
        page = await overview.list(TOKENS, after=listed[-1].key, limit=1000)
        listed += page.entries
    assert [each.key.removeprefix(TOKENS) for each in listed] == names
