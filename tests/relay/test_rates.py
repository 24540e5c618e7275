"""How often one may ask: over real HTTP with small limits, and with a clock of the test's own."""

import asyncio
import secrets
from pathlib import Path

import pytest
from starlette.types import Scope

from crystal_relay.cli.serve import parts_of
from crystal_relay.client.http import HttpStore
from crystal_relay.decorators import TOLD_SECONDS_MAX, RetryingStore, RetryPolicy
from crystal_relay.errors import BadRequest, TooManyRequests, Unauthorized
from crystal_relay.invites import access_hash, invite_credential
from crystal_relay.memory import MemoryStore
from crystal_relay.server import RelaySettings
from crystal_relay.server.rates import KEYS_MAX, Rates, address_of
from crystal_relay.server.scopes import SCOPES, Identity
from crystal_relay.server.settings import network_of
from crystal_relay.tokens import Preset, new_token
from tests.support.raw_http import RawReply, raw_request
from tests.support.relay_process import RelayProcess
from tests.support.relay_server import ENROLL_TOKEN, Member, enrolled, joined, served

FIRST, SECOND, THIRD, FOURTH = (f"203.0.113.{number}" for number in range(7, 11))


def settings(**changed: float | tuple[str, ...]) -> RelaySettings:
    return RelaySettings(enroll_token=ENROLL_TOKEN, **changed)  # type: ignore[arg-type]


def scope_of(host: str | None) -> Scope:
    return {"type": "http", "client": None if host is None else (host, 4711)}


async def ask(url: str, vault: str, token: str, *, forwarded: str = "", path: str = "list") -> RawReply:
    lines = [f"GET /v2/vaults/{vault}/{path} HTTP/1.1", "Host: relay", f"Authorization: Bearer {token}"]
    if forwarded:
        lines.append(f"X-Forwarded-For: {forwarded}")
    return await raw_request(url, ("\r\n".join(lines) + "\r\n\r\n").encode())


async def allowed(url: str, member: Member, count: int, *, forwarded: str = "") -> int:
    """How many of so many requests are not turned away."""
    replies = [await ask(url, member.vault, member.token, forwarded=forwarded) for _ in range(count)]
    return sum(reply.status == 200 for reply in replies)


async def test_a_device_over_its_rate_is_told_when_to_come_again_and_others_go_on() -> None:
    async with served(MemoryStore(), settings(rate_per_token=0.4)) as relay:
        one, stranger = await enrolled(relay.url), await enrolled(relay.url)
        sibling = await joined(relay.url, one)
        assert await allowed(relay.url, one, 6) <= 4
        refused = await ask(relay.url, one.vault, one.token)
        assert (refused.status, refused.json["error"]) == (429, "too-many-requests")
        assert refused.headers["retry-after"] in {"1", "2", "3"}
        assert one.token.encode() not in refused.body
        for other in (sibling, stranger):
            assert await allowed(relay.url, other, 3) == 3
        store = one.store(relay.url)
        with pytest.raises(TooManyRequests) as caught:
            await store.list(one.prefix)
        assert 1 <= caught.value.retry_after <= 3
        with pytest.raises(TooManyRequests):
            await store.put_new(one.prefix + "devlog/0", b"not stored")
        await store.aclose()
        assert not (await relay.store.list(one.prefix)).entries


async def test_every_route_of_a_device_counts_and_a_long_poll_counts_once() -> None:
    async with served(MemoryStore(), settings(rate_per_token=1.0)) as relay:
        member = await enrolled(relay.url)
        waits = [
            ask(relay.url, member.vault, member.token, path="wait?timeout=0"),
            ask(relay.url, member.vault, member.token, path="list"),
            ask(relay.url, member.vault, member.token, path="objects/devlog/0"),
        ]
        statuses = [(await each).status for each in waits]
        assert statuses == [200, 200, 404]
        assert await allowed(relay.url, member, 12) in {7, 8}


async def test_an_address_over_its_rate_stops_none_of_the_others() -> None:
    limits = settings(rate_per_address=0.5, trusted_proxies=("127.0.0.1",))
    async with served(MemoryStore(), limits) as relay:
        member = await enrolled(relay.url)
        assert await allowed(relay.url, member, 8, forwarded=FIRST) == 5
        refused = await ask(relay.url, member.vault, member.token, forwarded=FIRST)
        assert refused.status == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert await allowed(relay.url, member, 5, forwarded=SECOND) == 5
        # This machine itself has no limit.
        assert await allowed(relay.url, member, 20) == 20


async def test_what_a_client_says_of_its_address_counts_only_from_a_declared_proxy() -> None:
    async with served(MemoryStore(), settings(rate_per_address=0.5)) as relay:
        member = await enrolled(relay.url)
        assert await allowed(relay.url, member, 10, forwarded=FIRST) == 10
    limits = settings(rate_per_address=0.5, trusted_proxies=("127.0.0.0/8", "203.0.113.200"))
    async with served(MemoryStore(), limits) as relay:
        member = await enrolled(relay.url)
        # The proxy appends whom it saw: what stands before that is the client's own invention.
        replies = [
            await ask(relay.url, member.vault, member.token, forwarded=f"198.51.100.{n}, 127.0.0.1, {FIRST}")
            for n in range(8)
        ]
        assert sum(reply.status == 200 for reply in replies) == 5


async def test_guessing_tokens_is_slowed_down_before_the_store_is_asked() -> None:
    limits = settings(rate_unauthorized=0.5, trusted_proxies=("127.0.0.1",))
    store = MemoryStore()
    async with served(store, limits) as relay:
        member = await enrolled(relay.url)
        assert await allowed(relay.url, member, 1, forwarded=FIRST) == 1
        statuses = [
            (await ask(relay.url, member.vault, new_token(member.device), forwarded=FIRST)).status
            for _ in range(8)
        ]
        assert statuses == [401] * 5 + [429] * 3
        # Whoever is known goes on, though it shares the address.
        assert await allowed(relay.url, member, 3, forwarded=FIRST) == 3
        guess = new_token(member.device)
        assert (await ask(relay.url, member.vault, guess, forwarded=SECOND)).status == 401


async def test_guessing_an_invites_secret_is_slowed_and_so_is_joining_again_and_again() -> None:
    limits = settings(rate_unauthorized=0.5, trusted_proxies=("127.0.0.1",))
    async with served(MemoryStore(), limits) as relay:
        lead = await enrolled(relay.url)
        store = lead.store(relay.url)
        mailbox, access = secrets.token_hex(16), secrets.token_bytes(32)
        await store.create_invite(mailbox, access_hash(access))
        for at, wrong in ((FIRST, invite_credential(mailbox, bytes(32))), (SECOND, "Crystal-Invite x")):
            replies = [await put_join(relay.url, lead.vault, wrong, forwarded=at) for _ in range(8)]
            assert replies == [401] * 5 + [429] * 3
        right = invite_credential(mailbox, access)
        assert await put_join(relay.url, lead.vault, right, forwarded=FIRST) == 429
        replies = [await put_join(relay.url, lead.vault, right, forwarded=THIRD) for _ in range(8)]
        assert replies == [201] + [412] * 5 + [429] * 2
        await store.close_invite(mailbox, "burnt")
        replies = [await put_join(relay.url, lead.vault, right, forwarded=FOURTH) for _ in range(8)]
        assert replies == [410] * 5 + [429] * 3
        await store.aclose()


async def put_join(url: str, vault: str, credential: str, *, forwarded: str) -> int:
    mailbox = credential.removeprefix("Crystal-Invite ").partition(".")[0].rjust(32, "0").replace("x", "0")
    lines = [
        f"PUT /v2/vaults/{vault}/objects/invite/{mailbox}/join HTTP/1.1",
        *("Host: relay", "If-None-Match: *", "Content-Length: 0"),
        *(f"Authorization: {credential}", f"X-Forwarded-For: {forwarded}"),
    ]
    return (await raw_request(url, ("\r\n".join(lines) + "\r\n\r\n").encode())).status


def test_credit_comes_back_with_time_and_never_exceeds_its_burst() -> None:
    now = 1000.0
    rates = Rates(settings(rate_per_token=2.0), clock=lambda: now)
    identity = Identity("0" * 32, "1" * 32, SCOPES[Preset.DEVICE])
    for _ in range(20):
        rates.check(identity)
    with pytest.raises(TooManyRequests) as caught:
        rates.check(identity)
    assert caught.value.retry_after == pytest.approx(0.5)
    now += 0.5
    rates.check(identity)
    with pytest.raises(TooManyRequests):
        rates.check(identity)
    now += 3600
    for _ in range(20):
        rates.check(identity)
    with pytest.raises(TooManyRequests):
        rates.check(identity)
    assert rates.refused_devices == 3


@pytest.mark.slow
def test_a_hundred_thousand_addresses_take_bounded_memory() -> None:
    rates = Rates(settings())
    for number in range(100_000):
        host = f"198.{18 + number // 65536}.{number // 256 % 256}.{number % 256}"
        rates.admit(scope_of(host))
        rates.failed(scope_of(host))
    assert rates.remembered <= 2 * KEYS_MAX


def test_zero_means_no_limit() -> None:
    rates = Rates(settings(rate_per_token=0, rate_per_address=0, rate_unauthorized=0), clock=lambda: 1.0)
    for _ in range(20_000):
        rates.check(Identity("0" * 32, "1" * 32, SCOPES[Preset.DEVICE]))
        rates.admit(scope_of(FIRST))
        rates.failed(scope_of(FIRST))
        rates.before_lookup(scope_of(FIRST))
    assert rates.remembered == 0


@pytest.mark.parametrize(
    ("host", "counted"),
    [
        (None, None),
        ("127.0.0.1", None),
        ("127.255.0.1", None),
        ("::1", None),
        ("::ffff:127.0.0.1", None),
        ("203.0.113.7", "203.0.113.7"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::"),
        ("unknown" * 50, ("unknown" * 50)[:64]),
    ],
)
def test_a_customer_of_ipv6_is_one_address_and_this_machine_none(
    host: str | None, counted: str | None
) -> None:
    assert address_of(scope_of(host)) == counted


async def test_a_client_waits_as_long_as_it_was_told() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    answers = [3.0, 7_200.0, 0.0]

    class Refusing(MemoryStore):
        async def delete(self, key: str) -> None:
            if answers:
                raise TooManyRequests("too many", retry_after=answers.pop(0))

    policy = RetryPolicy(tries=5, first_seconds=0.01)
    await RetryingStore(Refusing(), policy=policy, sleep=sleep).delete("v/a/b")
    assert slept[:2] == [3.0, TOLD_SECONDS_MAX]
    assert slept[2] <= 0.04


async def test_a_refused_write_arrives_once_it_is_its_turn() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await asyncio.sleep(0.3)

    async with served(MemoryStore(), settings(rate_per_token=4.0)) as relay:
        member = await enrolled(relay.url)
        http: HttpStore = member.store(relay.url)
        store = RetryingStore(http, sleep=sleep)
        for number in range(44):
            await store.put_new(f"{member.prefix}devlog/{number:02d}", b"x")
        assert len((await relay.store.list(member.prefix)).entries) == 44
        assert slept
        assert min(slept) >= 1.0
        await http.aclose()


@pytest.mark.parametrize("text", ["*", "", "proxy.example", "10.0.0.0/33", "10.0.0.1/8", "10.0.0.0/8,*"])
def test_a_proxy_that_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        network_of(text)


def test_serve_takes_its_limits_from_the_command_line(tmp_path: Path) -> None:
    options = ("--rate-per-token", "0.3", "--rate-per-address", "5", "--trusted-proxy", "127.0.0.0/8")
    relay = RelayProcess(tmp_path / "relay", options=options)
    relay.start()
    try:
        count = asyncio.run(_tokens_until_refused(relay))
    finally:
        assert relay.stop() == 0
    assert count <= 4


async def _tokens_until_refused(relay: RelayProcess) -> int:
    member = await enrolled(relay.url, enroll_token=relay.enroll_token)
    return await allowed(relay.url, member, 10)


async def test_without_credentials_the_description_of_the_routes_is_limited_too() -> None:
    limits = settings(rate_per_address=0.3, trusted_proxies=("127.0.0.1",))
    async with served(MemoryStore(), limits) as relay:
        request = f"GET /v2/openapi.json HTTP/1.1\r\nHost: relay\r\nX-Forwarded-For: {FIRST}\r\n\r\n".encode()
        statuses = [(await raw_request(relay.url, request)).status for _ in range(6)]
        assert statuses == [200] * 3 + [429] * 3


async def test_a_wrong_enrolment_token_and_a_wrong_recovery_secret_count_as_guesses() -> None:
    rates = settings(rate_unauthorized=0.3, trusted_proxies=("127.0.0.1",))
    async with served(MemoryStore(), rates) as relay:
        victim = await enrolled(relay.url)
        lines = (
            f"DELETE /v2/vaults/{victim.vault}/tokens/{victim.device} HTTP/1.1",
            "Host: relay",
            f"X-Forwarded-For: {FIRST}",
            f"Authorization: Crystal-Recovery {'0' * 64}",
        )
        request = ("\r\n".join(lines) + "\r\n\r\n").encode()
        statuses = [(await raw_request(relay.url, request)).status for _ in range(5)]
        assert statuses == [401] * 3 + [429] * 2
        with pytest.raises(Unauthorized):
            await enrolled(relay.url, enroll_token="not-the-enrolment-token")


def test_proxies_are_named_one_by_one_or_with_commas_and_spaces_between() -> None:
    both = ["10.0.0.0/8", "127.0.0.1", "::1"]
    for values in (both, ["10.0.0.0/8,127.0.0.1,::1"], ["10.0.0.0/8, 127.0.0.1", " ::1,"]):
        assert parts_of(values) == both
    assert parts_of(["", ","]) == []


def test_a_rounding_error_is_no_wait() -> None:
    now = [0.0]
    rates = Rates(RelaySettings(rate_unauthorized=1 / 3_601, foundings_per_hour=0.7), clock=lambda: now[0])
    for seconds in range(3_000, 6_000):
        now[0] = seconds + 0.123456
        stranger = {"client": (f"203.0.{seconds // 256}.{seconds % 256}", 1)}
        rates.before_lookup(stranger)
        rates.found(stranger, f"token {seconds}")
