"""The start-up probe: what a bucket makes of conditional writes is found out, on real servers and on those that lie."""

from collections import Counter
from collections.abc import Callable

import pytest

from crystal_relay.errors import StoreUnavailable, Unusable
from crystal_relay.s3 import Conditions, S3Settings, S3Store, open_s3_store
from crystal_relay.s3.bucket import Bucket, Content
from crystal_relay.s3.probe import FINDING_KEY, FINDING_SECONDS_MAX, RACERS, ProbeResult, probe, remembered
from tests.support.fault_proxy import Fault, FaultProxy
from tests.support.s3_servers import S3Server
from tests.support.s3_stores import QUICK, QUICK_CLAIM, address_of, opened_s3_store, quiet, session_of


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("moto_server", Conditions.HONOURED),
        ("rgw_server", Conditions.HONOURED),
        ("swift_server", Conditions.NOT_HONOURED),
        ("rclone_server", Conditions.NOT_HONOURED),
    ],
)
async def test_the_probe_finds_out_what_a_server_does_and_leaves_nothing_behind(
    request: pytest.FixtureRequest, name: str, expected: Conditions
) -> None:
    server: S3Server = request.getfixturevalue(name)
    place = server.with_new_bucket()
    said: list[str] = []
    left: list[int] = []
    for _ in range(2):
        async with opened_s3_store(place, announce=said.append) as store:
            assert store.conditions is expected
            assert store.operations["put"] <= 210
            left.append(len((await store.list("r/probe/")).entries))
    assert bool(said) is (expected is Conditions.NOT_HONOURED)
    assert all("only one" in line for line in said)
    # After sixteen writes at once of one object rclone goes on listing it now and then, however often it is deleted.
    assert name == "rclone_server" or (left == [0, 0] and objects_in(place) == [FINDING_KEY])
    assert max(left) <= 2


async def test_a_command_tests_no_bucket_that_was_tested_lately_through_the_same_endpoint(
    server: S3Server, proxy: FaultProxy
) -> None:
    for fewest, most in ((201, 300), (2, 2)):
        store = await open_s3_store(
            address_of(server),
            announce=quiet,
            session=session_of(server),
            for_command=True,
            clock=lambda: 1e9,
        )
        assert fewest <= store.operations.total() <= most
        await store.aclose()
    here, elsewhere = (
        Bucket(address_of(server, endpoint=endpoint), S3Settings(), session_of(server))
        for endpoint in (None, proxy.url)
    )
    assert remembered(here, 1e9 + FINDING_SECONDS_MAX - 1) == ProbeResult(Conditions.HONOURED)
    assert remembered(here, 1e9 + FINDING_SECONDS_MAX) is None
    assert remembered(here, 1e9 - 1) is None
    assert remembered(elsewhere, 1e9) is None
    here.put(FINDING_KEY, Content.of(b"{}"))
    assert remembered(here, 1e9) is None
    here.close()
    elsewhere.close()


async def test_a_list_holds_what_the_sdk_would_read_of_it(server: S3Server) -> None:
    client = server.client()
    names = ["r/a", "r/a b", "r/a&b<c>", "r/ä", "r/%41", "r/a+b", 'r/"', "r/b\tc"]
    for size, name in enumerate(names):
        client.put_object(Bucket=server.bucket, Key=name, Body=b"x" * size)
    bucket = Bucket(address_of(server), S3Settings(), session_of(server))
    expected = [
        (each["Key"], each["Size"]) for each in client.list_objects_v2(Bucket=server.bucket)["Contents"]
    ]
    assert bucket.list("r/") == (expected, False)
    assert bucket.list("r/", limit=3) == (expected[:3], True)
    assert bucket.list("x/") == ([], False)
    bucket.close()


def objects_in(place: S3Server) -> list[str]:
    listed = place.client().list_objects_v2(Bucket=place.bucket)
    return [entry["Key"] for entry in listed.get("Contents", ())]


def probed(store: S3Store, rounds: int = 3) -> ProbeResult:
    return probe(store.bucket, rounds=rounds)


async def test_a_server_that_only_looks_first_is_found_out(
    store: S3Store, server: S3Server, proxy: FaultProxy
) -> None:
    """The condition holds for who comes later, and not for who comes at once: as one that looks, then writes."""
    honest = store.bucket.client.put_object
    come: Counter[str] = Counter()

    def put(**asked: object) -> object:
        key = str(asked["Key"])
        come[key] += 1
        if come[key] <= RACERS:
            asked.pop("IfNoneMatch", None)
        return honest(**asked)

    with_faults: Callable[..., object] = put
    store.bucket.client.put_object = with_faults
    finding = probed(store)
    assert finding.conditions is Conditions.NOT_HONOURED
    assert "writers were told" in finding.why


async def test_failures_of_single_requests_do_not_decide_what_a_bucket_can_do(
    store: S3Store, proxy: FaultProxy
) -> None:
    proxy.next("PUT", Fault.LOSE_ANSWER, Fault.BROKEN, Fault.TOO_MANY, Fault.CONFLICT, Fault.BROKEN_AFTER)
    assert probed(store).conditions is Conditions.HONOURED


async def test_a_bucket_that_fails_all_the_time_is_unavailable_not_judged(
    store: S3Store, proxy: FaultProxy
) -> None:
    proxy.always = lambda method, _path: Fault.BROKEN if method == "PUT" else None
    with pytest.raises(StoreUnavailable):
        probed(store, rounds=1)


@pytest.mark.parametrize(("method", "fault"), [("PUT", Fault.DENIED), ("GET", Fault.DENIED)])
async def test_credentials_that_may_not_do_what_is_needed_are_told_at_the_start(
    server: S3Server, proxy: FaultProxy, method: str, fault: Fault
) -> None:
    proxy.always = lambda asked, _path: fault if asked == method else None
    with pytest.raises(Unusable) as caught:
        await open_s3_store(
            address_of(server, endpoint=proxy.url),
            announce=quiet,
            settings=QUICK,
            claim_times=QUICK_CLAIM,
            session=session_of(server),
        )
    assert "credentials" in caught.value.hint


async def test_a_bucket_that_does_not_exist_is_told_at_the_start(server: S3Server) -> None:
    server.client().delete_bucket(Bucket=server.bucket)
    with pytest.raises(Unusable) as caught:
        async with opened_s3_store(server):
            pass
    assert "no such bucket" in caught.value.hint


async def test_nobody_at_the_endpoint_is_told_at_the_start(server: S3Server, proxy: FaultProxy) -> None:
    proxy.always = lambda _method, _path: Fault.LOSE_ANSWER
    with pytest.raises(StoreUnavailable):
        async with opened_s3_store(server, endpoint=proxy.url, settings=QUICK):
            pass
