"""Enrolment tokens with limits: how many vaults they make, until when, and how much each may store."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import httpx
import msgspec
import pytest

from crystal_relay.errors import (
    EnrollmentClosed,
    Forbidden,
    QuotaExceeded,
    RelayError,
    StoreUnavailable,
    TooManyRequests,
    Unauthorized,
)
from crystal_relay.memory import MemoryStore
from crystal_relay.server import RelaySettings, create_app
from crystal_relay.server.enrollment import Enrollment, EnrollmentState, enrollment_hash, enrollment_key
from crystal_relay.server.grants import ENVIRONMENT
from crystal_relay.server.operator import Operator
from crystal_relay.server.rates import Rates
from crystal_relay.store import Body
from crystal_relay.tokens import recovery_hash, token_hash
from crystal_relay.wire import VaultCreation
from tests.support.relay_server import ENROLL_TOKEN, Member, ServedRelay, enrolled, served

TOKEN = "a-token-of-the-tests-of-grants"
BEGAN = 1_800_000_000.0


async def made(
    store: MemoryStore, *, uses: int = 0, lives_seconds: int = 0, quota_bytes: int = 0
) -> Enrollment:
    return await Operator(store, clock=lambda: BEGAN).enroll(
        enrollment_hash(TOKEN), "for Ada", uses=uses, lives_seconds=lives_seconds, quota_bytes=quota_bytes
    )


async def found(relay: ServedRelay, member: Member, token: str = TOKEN) -> None:
    client = member.store(relay.url)
    try:
        await client.create_vault(
            enroll_token=token,
            recovery_hash=recovery_hash(member.recovery),
            device=member.device,
            token_hash=token_hash(member.token),
            proof=member.proof(client.host),
        )
    finally:
        await client.aclose()


async def used(store: MemoryStore) -> int:
    (token,) = await Operator(store).enrollments()
    return token.used


async def test_a_token_for_one_vault_makes_one_and_the_same_again() -> None:
    store = MemoryStore()
    await made(store, uses=1)
    async with served(store) as relay:
        member = Member()
        for _ in range(2):
            await found(relay, member)
        with pytest.raises(Forbidden, match="good for 1 vault, and is used up") as refused:
            await found(relay, Member())
        assert "Ask the relay's operator" in refused.value.hint
    assert await used(store) == 1


async def test_no_race_makes_more_vaults_than_a_token_is_good_for() -> None:
    store = MemoryStore()
    await made(store, uses=3)
    async with served(store) as one, served(store) as other:
        tries = [found((one, other)[number % 2], Member()) for number in range(12)]
        results = await asyncio.gather(*tries, return_exceptions=True)
    assert [result for result in results if result is not None and not isinstance(result, Forbidden)] == []
    assert results.count(None) == 3
    assert await used(store) == 3


class StumblingStore(MemoryStore):
    """Fails once at a key that contains `at`, as if the relay were killed between two writes."""

    stumbled = False

    def __init__(self, at: str) -> None:
        super().__init__()
        self._at = at

    async def put_new(self, key: str, body: bytes | Body) -> None:
        if self._at in key and not self.stumbled:
            self.stumbled = True
            raise StoreUnavailable("killed here")
        await super().put_new(key, body)


@pytest.mark.parametrize("uses", [1, 2])
@pytest.mark.parametrize("at", ["r/enrolling/", "r/enrolled/", "/record", "/origin", "/token/"])
async def test_a_founding_that_broke_off_goes_on_with_its_use(at: str, uses: int) -> None:
    store = StumblingStore(at)
    await made(store, uses=uses)
    async with served(store) as relay:
        member = Member()
        with pytest.raises(StoreUnavailable):
            await found(relay, member)
        await found(relay, member)
    assert store.stumbled
    assert await used(store) == 1


async def test_an_id_that_is_taken_costs_no_use() -> None:
    store = MemoryStore()
    await made(store, uses=1)
    async with served(store) as relay:
        theirs = await enrolled(relay.url)
        with pytest.raises(RelayError):
            await found(relay, Member(root=theirs.root))
        assert await used(store) == 0
        await found(relay, Member())


class MeetingStore(MemoryStore):
    """The first records of a vault are written only when two founders are about to write them."""

    def __init__(self) -> None:
        super().__init__()
        self._both = asyncio.Barrier(2)
        self._met = 0

    async def put_new(self, key: str, body: bytes | Body) -> None:
        if key.endswith("/record") and self._met < 2:
            self._met += 1
            await self._both.wait()
        await super().put_new(key, body)


async def test_a_vault_that_two_found_at_once_gives_no_use_back() -> None:
    store = MeetingStore()
    await made(store, uses=1)
    async with served(store) as one, served(store) as other:
        member = Member()
        twin = Member(root=member.root)
        results = await asyncio.gather(found(one, member), found(other, twin), return_exceptions=True)
        assert sorted(type(result).__name__ for result in results) == ["AlreadyExists", "NoneType"]
        with pytest.raises(Forbidden, match="used up"):
            await found(one, Member())
    assert await used(store) == 1


async def test_a_vault_that_is_there_gets_no_larger_quota_by_another_token() -> None:
    store = MemoryStore()
    await made(store, uses=1, quota_bytes=10**12)
    async with served(store) as relay:
        old = await enrolled(relay.url)
        await store.delete(f"r/vault/{old.vault}/origin")  # as an older relay has made it
        await found(relay, Member())
        await found(relay, old)
    shown = {each.vault: each async for each in Operator(store).vaults()}
    assert shown[old.vault].quota_bytes == 0


async def test_a_token_ends_at_its_time() -> None:
    store, now = MemoryStore(), [BEGAN]
    await made(store, lives_seconds=3600)
    async with served(store, clock=lambda: now[0]) as relay:
        await found(relay, Member())
        now[0] += 3600
        with pytest.raises(Forbidden, match="expired on 2027-01-15 09:00 UTC"):
            await found(relay, Member())


@pytest.mark.parametrize("entries", [0, 4_000_000], ids=["a relay without quotas", "a relay with one"])
async def test_each_vault_of_a_token_has_the_quota_of_the_token(entries: int) -> None:
    store = MemoryStore()
    await made(store, quota_bytes=10_000)
    settings = RelaySettings(enroll_token=ENROLL_TOKEN, quota_bytes=0, quota_entries=entries)
    async with served(store, settings) as relay:
        small, large = Member(), await enrolled(relay.url)
        await found(relay, small)
        usage = relay.app.state.relay.usage
        for member in (small, large):
            client = member.store(relay.url)
            await client.put_new(f"{member.prefix}blob/first", bytes(9_000))
            await usage.counted()
            if member is small:
                with pytest.raises(QuotaExceeded, match="of 10000"):
                    await client.put_new(f"{member.prefix}blob/second", bytes(9_000))
            else:
                await client.put_new(f"{member.prefix}blob/second", bytes(9_000))
            await client.aclose()


class WaitingStore(MemoryStore):
    """Does something before a vault's origin is written."""

    before: Callable[[], Awaitable[None]] | None = None

    async def put_new(self, key: str, body: bytes | Body) -> None:
        if key.endswith("/origin") and self.before is not None:
            await self.before()
        await super().put_new(key, body)


async def test_nothing_is_stored_in_a_vault_before_its_quota_is_known() -> None:
    store = WaitingStore()
    await made(store, quota_bytes=10_000)
    async with served(store, RelaySettings(enroll_token=ENROLL_TOKEN, quota_bytes=0)) as relay:
        member = Member()
        client = member.store(relay.url)
        usage = relay.app.state.relay.usage

        async def hurry() -> None:
            with suppress(Unauthorized):
                await client.put_new(f"{member.prefix}blob/hurried", bytes(100))
            await usage.counted()

        store.before = hurry
        await found(relay, member)
        await client.put_new(f"{member.prefix}blob/first", bytes(9_000))
        await usage.counted()
        with pytest.raises(QuotaExceeded, match="of 10000"):
            await client.put_new(f"{member.prefix}blob/second", bytes(9_000))
        await client.aclose()


async def test_the_list_says_by_which_token_and_when_a_vault_came() -> None:
    store = MemoryStore()
    token = await made(store, quota_bytes=5)
    async with served(store, clock=lambda: BEGAN + 60) as relay:
        member = Member()
        await found(relay, member)
        other = await enrolled(relay.url)
    vaults = {each.vault: each async for each in Operator(store).vaults()}
    mine, by_environment = vaults[member.vault], vaults[other.vault]
    assert (mine.token, mine.created, mine.quota_bytes) == (token.id, BEGAN + 60, 5)
    assert (by_environment.token, by_environment.quota_bytes) == (ENVIRONMENT, 0)


async def test_a_vault_of_an_older_relay_is_listed_without_an_origin() -> None:
    store = MemoryStore()
    async with served(store) as relay:
        member = await enrolled(relay.url)
    await store.delete(f"r/vault/{member.vault}/origin")
    (shown,) = [each async for each in Operator(store).vaults()]
    assert (shown.vault, shown.token, shown.created) == (member.vault, "", 0)


async def test_a_token_that_was_made_counts_beside_the_one_of_the_environment() -> None:
    store = MemoryStore()
    await made(store)
    async with served(store) as relay:
        await found(relay, Member())
        await found(relay, Member(), ENROLL_TOKEN)
        with pytest.raises(Unauthorized):
            await found(relay, Member(), TOKEN + "x")


async def test_a_record_of_an_older_relay_has_no_limits_and_a_damaged_one_lets_nobody_in() -> None:
    store = MemoryStore()
    await store.put_new(enrollment_key(enrollment_hash(TOKEN)), b"{}")
    await store.put_new(enrollment_key(enrollment_hash(TOKEN + "2")), b"\xff")
    async with served(store) as relay:
        for _ in range(3):
            await found(relay, Member())
        with pytest.raises(RelayError):
            await found(relay, Member(), TOKEN + "2")
    assert len([each async for each in Operator(store).vaults()]) == 3


async def test_who_founds_again_and_again_with_a_used_up_token_or_no_proof_is_shut_out() -> None:
    """Each try costs a look at every use of the token, or the check of a chain of roots."""
    store = MemoryStore()
    await made(store)
    app = create_app(store, RelaySettings(rate_unauthorized=1 / 3600))
    member = Member()
    hashes = recovery_hash(member.recovery), member.device, token_hash(member.token)
    statuses: dict[str, list[int]] = {}
    for address, proof in (("203.0.113.7", None), ("203.0.113.8", member.proof("relay.example.org"))):
        transport = httpx.ASGITransport(app, client=(address, 50_000))
        async with httpx.AsyncClient(transport=transport, base_url="http://relay.example.org") as http:
            statuses[address] = [
                (
                    await http.post(
                        "/v2/vaults",
                        content=msgspec.json.encode(VaultCreation(member.vault, *hashes, proof)),
                        headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
                    )
                ).status_code
                for _ in range(2)
            ]
    assert statuses == {"203.0.113.7": [403, 429], "203.0.113.8": [201, 201]}


async def test_revoking_a_token_takes_the_records_of_its_uses_along() -> None:
    store = MemoryStore()
    token = await made(store, uses=2)
    async with served(store) as relay:
        await found(relay, Member())
    await Operator(store).revoke_enrollment(token.id)
    assert (await store.list("r/enroll")).entries == ()


async def test_closed_enrolment_takes_no_new_vault_and_a_founding_that_was_done_is_repeated() -> None:
    store = MemoryStore()
    await made(store)
    async with served(store) as relay, served(store) as other:
        operator, member = Operator(store, clock=lambda: BEGAN), Member()
        await found(relay, member)
        assert await operator.set_enrollment(closed=True) == EnrollmentState(True, int(BEGAN))
        for process, token in ((relay, TOKEN), (other, TOKEN), (relay, ENROLL_TOKEN)):
            with pytest.raises(EnrollmentClosed, match="no new vaults since 2027-01-15 08:00") as refused:
                await found(process, Member(), token)
            assert "crystal-relay" not in refused.value.hint
        await found(other, member)
        assert await operator.set_enrollment(closed=True) == EnrollmentState(True, int(BEGAN))
        assert await operator.set_enrollment(closed=False) == EnrollmentState(False)
        await found(other, Member())
    assert await used(store) == 2


async def test_a_token_founds_so_many_vaults_an_hour_and_another_one_is_not_held_up() -> None:
    store = MemoryStore()
    await made(store)
    settings = RelaySettings(enroll_token=ENROLL_TOKEN, foundings_per_hour=3)
    async with served(store, settings) as relay:
        first = Member()
        await found(relay, first)
        for _ in range(2):
            await found(relay, Member())
        with pytest.raises(
            TooManyRequests, match="3 new vaults with this enrolment token in an hour"
        ) as refused:
            await found(relay, Member())
        assert refused.value.retry_after > 60
        await found(relay, first)
        await found(relay, Member(), ENROLL_TOKEN)
        assert relay.app.state.relay.rates.refused_foundings == 1


def test_an_address_founds_so_many_vaults_an_hour_whatever_its_tokens() -> None:
    now = [0.0]
    rates = Rates(RelaySettings(foundings_per_hour=2), clock=lambda: now[0])
    here, elsewhere = {"client": ("192.0.2.1", 1)}, {"client": ("192.0.2.2", 1)}
    rates.found(here, "one")
    rates.found(here, "another")
    with pytest.raises(TooManyRequests, match="from this address"):
        rates.found(here, "a third")
    rates.found(elsewhere, "a third")
    rates.found(elsewhere, "a third")  # it was not used up by what was refused
    now[0] = 1801.0
    rates.found(here, "a fourth")
    with pytest.raises(TooManyRequests):
        rates.found(here, "a fifth")
