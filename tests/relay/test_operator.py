"""What whoever runs a relay can do, on an open store."""

import secrets
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from crystal_relay.errors import BadRequest, NotFound, StoreFull, StoreUnavailable, Unauthorized, VaultDropped
from crystal_relay.local import LocalStore
from crystal_relay.memory import MemoryStore
from crystal_relay.server import RelaySettings
from crystal_relay.server.check import check_store
from crystal_relay.server.enrollment import ID_CHARS, LABEL_CHARS_MAX, enrollment_hash
from crystal_relay.server.operator import GRACE_SECONDS_MAX, Operator
from crystal_relay.store import Body, Object, Page, Store
from tests.support.relay_server import ServedRelay, enrolled, served

UNKNOWN = "f" * 32
GRACE_SECONDS = 7 * 86_400


@pytest_asyncio.fixture(params=["memory", "local"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store]:
    store = MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "store")
    yield store
    await store.aclose()


@pytest_asyncio.fixture
async def relay(store: Store) -> AsyncGenerator[ServedRelay]:
    async with served(store) as relay:
        yield relay


def operator_of(relay: ServedRelay) -> Operator:
    return Operator(relay.store, registry=relay.app.state.relay.registry)


async def test_vaults_are_shown_with_what_they_have(relay: ServedRelay) -> None:
    operator = operator_of(relay)
    assert [each async for each in operator.vaults()] == []
    members = sorted([await enrolled(relay.url) for _ in range(3)], key=lambda member: member.vault)
    client = members[1].store(relay.url)
    await client.put_new(f"{members[1].prefix}devlog/0", b"x" * 1000)
    await client.put_new(f"{members[1].prefix}devlog/1", b"x" * 500)
    await client.aclose()
    found = [each async for each in operator.vaults()]
    assert [each.vault for each in found] == [member.vault for member in members]
    assert [(each.entries, each.bytes, each.dropped_until) for each in found] == [
        (0, 0, None),
        (2, 1500, None),
        (0, 0, None),
    ]
    assert await operator.vault(members[1].vault) == found[1]


async def test_every_vault_is_listed_however_many_records_each_has(store: Store) -> None:
    vaults = sorted(secrets.token_hex(16) for _ in range(40))
    for number, vault in enumerate(vaults):
        await store.put_new(f"r/vault/{vault}/record", b"{}")
        for token in range(100 if number % 7 == 0 else 2):
            await store.put_new(f"r/vault/{vault}/token/{'0' * 32}/{token:064x}", b"{}")
            await store.put_new(f"r/vault/{vault}/revoked/{'0' * 32}/{token:064x}", b"{}")
    assert [each.vault async for each in Operator(store).vaults()] == vaults


async def test_a_dropped_vaults_devices_are_refused_at_once_and_let_in_again(relay: ServedRelay) -> None:
    operator = operator_of(relay)
    lead, other = await enrolled(relay.url), await enrolled(relay.url)
    client, neighbour = lead.store(relay.url), other.store(relay.url)
    await client.put_new(f"{lead.prefix}devlog/0", b"kept")
    state = await operator.drop(lead.vault, GRACE_SECONDS)
    assert state.dropped_until is not None
    with pytest.raises(VaultDropped) as refused:
        await client.put_new(f"{lead.prefix}devlog/1", b"x")
    assert "restore" in refused.value.hint
    with pytest.raises(VaultDropped):
        await client.list(lead.prefix)
    await neighbour.put_new(f"{other.prefix}devlog/0", b"x")
    assert (await operator.vault(lead.vault)).dropped_until == state.dropped_until
    assert (await operator.drop(lead.vault, GRACE_SECONDS_MAX)).dropped_until == state.dropped_until
    assert (await operator.restore(lead.vault)).dropped_until is None
    assert await (await client.get(f"{lead.prefix}devlog/0")).read() == b"kept"
    assert (await operator.restore(lead.vault)).dropped_until is None
    await client.aclose()
    await neighbour.aclose()


async def test_a_vault_is_gone_when_its_time_of_grace_is_over_and_no_other_is_touched(
    relay: ServedRelay,
) -> None:
    now = [2_000_000_000.0]
    operator = Operator(relay.store, registry=relay.app.state.relay.registry, clock=lambda: now[0])
    lead, other = await enrolled(relay.url), await enrolled(relay.url)
    for member in (lead, other):
        client = member.store(relay.url)
        await client.put_new(f"{member.prefix}devlog/0", b"x")
        await client.aclose()
    state = await operator.drop(lead.vault, 3600)
    assert (await operator.sweep()).deleted == {}
    assert state.dropped_until is not None
    now[0] = state.dropped_until + 1
    report = await operator.sweep()
    assert (sum(report.deleted.values()) > 0, report.failures) == (True, 0)
    assert [each.vault async for each in operator.vaults()] == [other.vault]
    assert (await relay.store.list(lead.prefix)).entries == ()
    assert len((await relay.store.list(other.prefix)).entries) == 1
    with pytest.raises(NotFound):
        await operator.restore(lead.vault)


@pytest.mark.parametrize("vault", ["", "a", "A" * 32, "../" + "a" * 29, "a" * 33, "a" * 31 + "/"])
async def test_what_is_no_vaults_id_is_refused(vault: str) -> None:
    operator = Operator(MemoryStore())
    for call in (operator.vault(vault), operator.drop(vault, GRACE_SECONDS), operator.restore(vault)):
        with pytest.raises(BadRequest):
            await call


async def test_an_unknown_vault_cannot_be_dropped() -> None:
    store = MemoryStore()
    operator = Operator(store)
    for call in (operator.vault(UNKNOWN), operator.drop(UNKNOWN, GRACE_SECONDS), operator.restore(UNKNOWN)):
        with pytest.raises(NotFound):
            await call
    assert (await store.list("")).entries == ()


async def test_a_time_of_grace_is_bounded(store: Store) -> None:
    await store.put_new(f"r/vault/{UNKNOWN}/record", b"{}")
    for grace in (-1, GRACE_SECONDS_MAX + 1):
        with pytest.raises(BadRequest):
            await Operator(store).drop(UNKNOWN, grace)


async def test_other_processes_are_told_of_a_drop_and_of_its_end(store: Store) -> None:
    told: list[str] = []

    async def changed(vault: str) -> int:
        told.append(vault)
        return 3

    await store.put_new(f"r/vault/{UNKNOWN}/record", b"{}")
    operator = Operator(store, changed=changed)
    assert (await operator.drop(UNKNOWN, GRACE_SECONDS)).not_told == 3
    assert (await operator.restore(UNKNOWN)).not_told == 3
    assert told == [UNKNOWN, UNKNOWN]


# --- enrolment tokens -------------------------------------------------------------------------------------------------


async def test_an_enrolment_token_lets_in_until_it_is_revoked(store: Store) -> None:
    operator = Operator(store)
    token = secrets.token_urlsafe(32)
    made = await operator.enroll(enrollment_hash(token), "for Ada")
    assert await operator.enroll(enrollment_hash(token), "again") == made
    assert [each.label for each in await operator.enrollments()] == ["for Ada"]
    async with served(store, RelaySettings()) as relay:
        member = await enrolled(relay.url, enroll_token=token)
        assert (await operator.revoke_enrollment(made.id)).label == "for Ada"
        with pytest.raises(Unauthorized):
            await enrolled(relay.url, enroll_token=token)
        client = member.store(relay.url)
        await client.put_new(f"{member.prefix}devlog/0", b"x")
        await client.aclose()
    assert await operator.enrollments() == []
    with pytest.raises(NotFound):
        await operator.revoke_enrollment(made.id)


async def test_the_store_keeps_no_enrolment_token(store: Store) -> None:
    token = secrets.token_urlsafe(32)
    await Operator(store).enroll(enrollment_hash(token), "x")
    for entry in (await store.list("")).entries:
        assert token not in entry.key
        assert token.encode() not in await (await store.get(entry.key)).read()


async def test_a_token_of_an_older_relay_and_a_damaged_one_are_listed_and_revoked(store: Store) -> None:
    await store.put_new(f"r/enrollment/{'a' * 64}", b"{}")
    await store.put_new(f"r/enrollment/{'b' * 64}", b"\xff no json")
    operator = Operator(store)
    assert {each.id for each in await operator.enrollments()} == {"a" * ID_CHARS, "b" * ID_CHARS}
    for name in ("a", "b"):
        await operator.revoke_enrollment(name * ID_CHARS)
    assert await operator.enrollments() == []


async def test_an_ambiguous_id_revokes_nothing(store: Store) -> None:
    operator = Operator(store)
    for end in "01":
        await operator.enroll("a" * 63 + end, "")
    with pytest.raises(BadRequest):
        await operator.revoke_enrollment("a" * ID_CHARS)
    assert len(await operator.enrollments()) == 2
    await operator.revoke_enrollment("a" * 63 + "1")
    assert len(await operator.enrollments()) == 1


@pytest.mark.parametrize("name", ["", "a" * (ID_CHARS - 1), "A" * ID_CHARS, "a" * 65, "../../vault/x"])
async def test_what_is_no_tokens_id_is_refused(name: str) -> None:
    store = MemoryStore()
    await store.put_new(f"r/enrollment/{'a' * 64}", b"{}")
    with pytest.raises(BadRequest):
        await Operator(store).revoke_enrollment(name)
    assert len((await store.list("")).entries) == 1


@pytest.mark.parametrize("label", ["x" * (LABEL_CHARS_MAX + 1), "a\nb", "\x1b[2J"])
async def test_a_label_is_short_and_printable(label: str) -> None:
    with pytest.raises(BadRequest):
        await Operator(MemoryStore()).enroll("a" * 64, label)


# --- trying a store out -----------------------------------------------------------------------------------------------


async def test_a_good_store_passes_and_is_left_as_it_was(store: Store) -> None:
    report = await check_store(store)
    assert report.ok
    assert len(report.steps) == 7
    assert all(step.seconds >= 0 and not step.error for step in report.steps)
    assert (await store.list("")).entries == ()


class LyingStore(MemoryStore):
    """Does not do one of the things that a store promises."""

    def __init__(self, lie: str) -> None:
        super().__init__()
        self._lie = lie

    async def put_new(self, key: str, body: bytes | Body) -> None:
        if self._lie == "full":
            raise StoreFull("no room")
        await (self.put(key, body) if self._lie == "overwrites" else super().put_new(key, body))

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
        if self._lie == "ignores ranges":
            return await super().get(key)
        found = await super().get(key, start=start, length=length)
        return Object.of(b"?" * found.length) if self._lie == "other bytes" else found

    async def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Page:
        return Page((), False) if self._lie == "lists nothing" else await super().list(prefix, after=after)

    async def delete(self, key: str) -> None:
        if self._lie == "fails to delete":
            raise StoreUnavailable("gone")
        if self._lie != "keeps":
            await super().delete(key)


@pytest.mark.parametrize(
    ("lie", "step"),
    [
        ("full", "write"),
        ("other bytes", "read"),
        ("ignores ranges", "read a part"),
        ("lists nothing", "list"),
        ("overwrites", "refuse a second write"),
        ("fails to delete", "delete"),
        ("keeps", "be gone"),
    ],
)
async def test_a_store_that_lies_is_found_out_by_the_step_that_it_lies_in(lie: str, step: str) -> None:
    store = LyingStore(lie)
    report = await check_store(store)
    assert not report.ok
    assert [each.name for each in report.steps if each.error] == [step]
    if step not in ("delete", "be gone"):
        assert report.steps[-1].name == "be gone"
        assert (await MemoryStore.list(store, "")).entries == ()
