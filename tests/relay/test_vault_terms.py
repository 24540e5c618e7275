"""What an operator may do with a vault: suspend it, make it read-only, change its quota, export it, see when it was used."""

import io
import secrets
import tarfile
from collections.abc import AsyncGenerator, Awaitable
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from crystal_node.device.runner import store_failure
from crystal_relay.cli.vaults import bytes_of
from crystal_relay.cli.vaults_export import write_export
from crystal_relay.client.http import HttpStore
from crystal_relay.errors import (
    BadRequest,
    NotFound,
    QuotaExceeded,
    RelayError,
    StoreDamaged,
    StoreUnavailable,
    VaultReadOnly,
    VaultSuspended,
)
from crystal_relay.local import LocalStore
from crystal_relay.memory import MemoryStore
from crystal_relay.server import RelaySettings
from crystal_relay.server.export import PIECE_BYTES, ExportPiece
from crystal_relay.server.last_used import LastUsed
from crystal_relay.server.operator import Operator
from crystal_relay.server.vault_terms import REASON_CHARS_MAX, VaultAccess
from crystal_relay.store import Body, Store
from crystal_relay.tokens import Preset, new_token, token_hash
from tests.support.relay_server import ENROLL_TOKEN, Member, ServedRelay, enrolled, served

BEGAN = 1_800_000_000.0
"""2027-01-15 08:00 UTC."""
DAY = 86_400


@pytest_asyncio.fixture(params=["memory", "local"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store]:
    store = MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "store")
    yield store
    await store.aclose()


@pytest_asyncio.fixture
async def relay(store: Store) -> AsyncGenerator[ServedRelay]:
    async with served(store, clock=lambda: BEGAN) as relay:
        yield relay


@pytest_asyncio.fixture
async def lead(relay: ServedRelay) -> Member:
    return await enrolled(relay.url)


@pytest_asyncio.fixture
async def client(relay: ServedRelay, lead: Member) -> AsyncGenerator[HttpStore]:
    client = lead.store(relay.url)
    await client.put_new(f"{lead.prefix}devlog/0", b"kept")
    yield client
    await client.aclose()


def operator_of(relay: ServedRelay) -> Operator:
    running = relay.app.state.relay
    return Operator(relay.store, registry=running.registry, forget=running.forget, clock=lambda: BEGAN)


async def refused(asked: Awaitable[object], kind: type[RelayError]) -> RelayError:
    with pytest.raises(kind) as caught:
        await asked
    assert type(caught.value) is kind
    return caught.value


async def test_a_suspended_vault_is_closed_at_once_and_nothing_in_it_is_lost(
    relay: ServedRelay, lead: Member, client: HttpStore
) -> None:
    operator, other = operator_of(relay), await enrolled(relay.url)
    key = f"{lead.prefix}devlog/0"
    await operator.set_access(lead.vault, VaultAccess.SUSPENDED, "the disk is being replaced")
    for asked in (client.list(lead.prefix), client.put_new(f"{lead.prefix}devlog/1", b"x")):
        await refused(asked, VaultSuspended)
    error = await refused(client.get(key), VaultSuspended)
    assert str(error) == (
        "this vault was suspended by the relay's operator on 2027-01-15 08:00 UTC: the disk is being replaced"
    )
    shown = store_failure(error)
    assert (shown.exit_code, str(shown), shown.hint) == (5, str(error), error.hint)
    assert "move to another relay" in error.hint
    neighbour = other.store(relay.url)
    await neighbour.put_new(f"{other.prefix}devlog/0", b"x")
    await neighbour.aclose()
    summary = await operator.vault(lead.vault)
    assert (summary.access, summary.reason) == (VaultAccess.SUSPENDED, "the disk is being replaced")
    await operator.set_access(lead.vault, VaultAccess.OPEN, "")
    assert await (await client.get(key)).read() == b"kept"


async def test_the_recovery_secret_opens_no_suspended_vault(relay: ServedRelay, lead: Member) -> None:
    await operator_of(relay).set_access(lead.vault, VaultAccess.SUSPENDED, "")
    client = lead.store(relay.url)
    newcomer = secrets.token_hex(16)
    registered = client.register_token(
        device=newcomer,
        token_hash=token_hash(new_token(newcomer)),
        preset=Preset.DEVICE,
        recovery=lead.recovery,
    )
    await refused(registered, VaultSuspended)
    await client.aclose()


async def test_a_read_only_vault_is_read_and_nothing_in_it_changes(
    relay: ServedRelay, lead: Member, client: HttpStore
) -> None:
    operator, key = operator_of(relay), f"{lead.prefix}devlog/0"
    await operator.set_access(lead.vault, VaultAccess.READ_ONLY, "")
    assert await (await client.get(key)).read() == b"kept"
    assert [entry.key for entry in (await client.list(lead.prefix)).entries] == [key]
    cursor = f"{lead.prefix}cursor/{lead.device}"
    for asked in (
        client.put(cursor, b"x"),
        client.put(key, b"x"),
        client.delete(key),
        client.condemn(keys=[f"{lead.prefix}mirror/1/0"]),
        client.create_invite("ab" * 16, "cd" * 32),
    ):
        await refused(asked, VaultReadOnly)
    error = await refused(client.put_new(f"{lead.prefix}devlog/1", b"x"), VaultReadOnly)
    assert str(error) == "this vault was made read-only by the relay's operator on 2027-01-15 08:00 UTC"
    assert store_failure(error).hint == error.hint
    reader = Member(root=lead.root)  # somebody who lost his token still gets at what is there
    await client.register_token(
        device=reader.device,
        token_hash=token_hash(reader.token),
        preset=Preset.DEVICE,
        recovery=lead.recovery,
    )
    theirs = reader.store(relay.url)
    assert await (await theirs.get(key)).read() == b"kept"
    await theirs.aclose()
    await operator.set_access(lead.vault, VaultAccess.OPEN, "")
    await client.put_new(f"{lead.prefix}devlog/1", b"x")


async def test_a_damaged_word_of_the_operator_opens_nothing(relay: ServedRelay, lead: Member) -> None:
    await relay.store.put(f"r/vault/{lead.vault}/terms", b'{"access": "who knows"}')
    client = lead.store(relay.url)
    await refused(client.list(lead.prefix), StoreDamaged)
    await client.aclose()


async def test_another_process_that_is_told_obeys_at_once(store: Store) -> None:
    async with served(store) as one, served(store) as other:
        lead = await enrolled(one.url)
        client = lead.store(other.url)
        await client.list(lead.prefix)  # its token is in the cache
        told: list[str] = []

        async def tell(vault: str) -> int:
            told.append(vault)
            other.app.state.relay.forget(vault)
            return 0

        operator = Operator(store, changed=tell)
        assert (await operator.set_access(lead.vault, VaultAccess.SUSPENDED, "")).not_told == 0
        await refused(client.list(lead.prefix), VaultSuspended)
        assert told == [lead.vault]
        await client.aclose()


async def test_a_larger_quota_counts_at_once_and_a_smaller_one_deletes_nothing(store: Store) -> None:
    settings = RelaySettings(enroll_token=ENROLL_TOKEN, quota_bytes=10_000)
    async with served(store, settings) as relay:
        lead = await enrolled(relay.url)
        client, operator = lead.store(relay.url), operator_of(relay)
        usage = relay.app.state.relay.usage

        async def put(name: str) -> None:
            await client.put_new(f"{lead.prefix}blob/{name}", bytes(9_000))
            await usage.counted()

        async def is_refused(name: str, quota: int) -> None:
            """The first one lets the relay look, the next one has the new quota."""
            with pytest.raises(QuotaExceeded):
                await put(name)
            await usage.counted()
            with pytest.raises(QuotaExceeded) as caught:
                await put(name)
            assert f"of {quota}" in str(caught.value)

        await put("1")
        await is_refused("2", 10_000)
        listings = usage.listings
        assert (await operator.set_quota(lead.vault, 20_000)).quota_bytes == 20_000
        with pytest.raises(QuotaExceeded):
            await put("2")
        await usage.counted()
        assert usage.listings == listings, "a new quota lists nothing"
        await put("2")
        await is_refused("3", 20_000)
        assert (await operator.vault(lead.vault)).quota_bytes == 20_000
        await operator.set_quota(lead.vault, 0)
        await is_refused("3", 10_000)
        assert (await operator.vault(lead.vault)).entries == 2
        await client.aclose()


@pytest.mark.parametrize(
    ("text", "count"),
    [("5", 5), ("20GiB", 20 * 1024**3), ("500MB", 500_000_000), ("1.5 TiB", 3 * 1024**4 // 2), ("1kB", 1000)],
)
def test_a_size_is_given_with_a_unit_or_without(text: str, count: int) -> None:
    assert bytes_of(text) == count


@pytest.mark.parametrize("text", ["", "0", "GiB", "-1", "5 apples", "1e9", "9999999999TiB", "1.5.1GB", "٣GB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        bytes_of(text)


async def test_what_is_no_reason_quota_or_vault_is_refused(relay: ServedRelay, lead: Member) -> None:
    operator = operator_of(relay)
    for reason in ("x" * (REASON_CHARS_MAX + 1), "a\nb", "\x1b[31m"):
        await refused(operator.set_access(lead.vault, VaultAccess.SUSPENDED, reason), BadRequest)
    await refused(operator.set_quota(lead.vault, -1), BadRequest)
    for vault, kind in (("f" * 32, NotFound), ("../" + "a" * 29, BadRequest)):
        await refused(operator.set_access(vault, VaultAccess.SUSPENDED, ""), kind)
        await refused(operator.set_quota(vault, 1), kind)
        with pytest.raises(kind):
            _ = [piece async for piece in operator.export(vault)]


# --- exports ----------------------------------------------------------------------------------------------------------


async def test_an_export_holds_every_object_of_the_vault_and_no_other(
    relay: ServedRelay, lead: Member, client: HttpStore
) -> None:
    other = await enrolled(relay.url)
    neighbour = other.store(relay.url)
    await neighbour.put_new(f"{other.prefix}devlog/0", b"another's")
    await neighbour.aclose()
    sent = {"devlog/0": b"kept", "blob/empty": b"", "blob/odd": bytes(range(256)) * 3 + b"!"}
    sent |= {"blob/long": bytes(7) + b"x" * (3 * PIECE_BYTES), f"blob/{'n' * 200}": b"a long name"}
    for key, body in sent.items():
        if key != "devlog/0":
            await client.put_new(lead.prefix + key, body)
    out = io.BytesIO()
    report = await write_export(out, lead.vault, operator_of(relay).export(lead.vault))
    assert (report.objects, report.bytes) == (len(sent), sum(map(len, sent.values())))
    out.seek(0)
    with tarfile.open(fileobj=out) as archive:
        members = archive.getmembers()
        held = {each.name: archive.extractfile(each) for each in members}
        found = {name: file.read() for name, file in held.items() if file is not None}
    end = msgspec.json.decode(found.pop(f"{lead.vault}/EXPORT.json"))
    assert members[-1].name == f"{lead.vault}/EXPORT.json"
    assert end == {"vault": lead.vault, "objects": report.objects, "bytes": report.bytes, "made": report.made}
    assert found == {f"{lead.vault}/{key}": body for key, body in sent.items()}


async def test_an_object_that_breaks_off_ends_the_export_without_its_last_entry() -> None:
    async def pieces() -> AsyncGenerator[ExportPiece]:
        yield ExportPiece("blob/a", 10, 0, b"12345")
        yield ExportPiece("blob/b", 1, 0, b"x")

    out = io.BytesIO()
    with pytest.raises(StoreUnavailable, match="broke off"):
        await write_export(out, "ab" * 16, pieces())
    assert b"EXPORT.json" not in out.getvalue()


# --- the day of last use ----------------------------------------------------------------------------------------------


class CountingStore(MemoryStore):
    """Counts writes of days of last use, and can fail them."""

    writes = 0
    fails = False

    async def put_new(self, key: str, body: bytes | Body) -> None:
        if "/used/" in key:
            self.writes += 1
            if self.fails:
                raise StoreUnavailable("away")
        await super().put_new(key, body)


async def test_a_vault_says_on_which_day_it_was_last_used_for_one_write_a_day() -> None:
    store, now = CountingStore(), [BEGAN]
    settings = RelaySettings(
        enroll_token=ENROLL_TOKEN, auth_cache_seconds=0
    )  # every request looks its token up
    async with served(store, settings, clock=lambda: now[0]) as relay:
        operator, used = operator_of(relay), relay.app.state.relay.last_used
        lead, idle = await enrolled(relay.url), await enrolled(relay.url)
        assert (await operator.vault(lead.vault)).last_used == ""
        client = lead.store(relay.url)
        for days, expected in ((0, "2027-01-15"), (1, "2027-01-16"), (40, "2027-02-24")):
            now[0] = BEGAN + days * DAY
            for _ in range(3):
                await client.list(lead.prefix)
            await used.written()
            assert (await operator.vault(lead.vault)).last_used == expected
        assert store.writes == 3
        assert (await operator.vault(idle.vault)).last_used == ""
        assert len((await store.list(f"r/vault/{lead.vault}/used/")).entries) == 1
        await client.aclose()


async def test_no_request_fails_or_waits_because_a_day_cannot_be_written_and_it_is_written_later() -> None:
    store = CountingStore()
    settings = RelaySettings(enroll_token=ENROLL_TOKEN, auth_cache_seconds=0)
    async with served(store, settings, clock=lambda: BEGAN) as relay:
        lead = await enrolled(relay.url)
        client, used = lead.store(relay.url), relay.app.state.relay.last_used
        store.fails = True
        await client.list(lead.prefix)
        await used.written()
        store.fails = False
        assert await used.day(lead.vault) == ""
        await client.list(lead.prefix)
        await used.written()
        assert await used.day(lead.vault) == "2027-01-15"
        await client.aclose()


async def test_an_unknown_token_is_no_use_of_a_vault(relay: ServedRelay, lead: Member) -> None:
    stranger = Member(root=lead.root).store(relay.url)
    with pytest.raises(RelayError):
        await stranger.list(lead.prefix)
    await stranger.aclose()
    used: LastUsed = relay.app.state.relay.last_used
    await used.written()
    assert await used.day(lead.vault) == ""
