"""The operator's commands on a bucket: beside two running relays, without any, and on a bucket that is not to be used."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families

from crystal_relay.errors import VaultDropped, VaultSuspended
from tests.support.operating import Said, run_crystal_relay
from tests.support.processes import eventually
from tests.support.relay_process import RelayProcess
from tests.support.relay_server import enrolled
from tests.support.s3_servers import S3Server

METRICS_TOKEN = "metrics-token-of-the-tests"


@pytest.fixture
def server(moto_server: S3Server) -> S3Server:
    return moto_server.with_new_bucket()


def store_options(server: S3Server) -> tuple[str, ...]:
    return ("--store", f"s3://{server.bucket}/relay", "--s3-endpoint", server.endpoint)


@pytest_asyncio.fixture
async def pair(server: S3Server, tmp_path: Path) -> AsyncGenerator[list[RelayProcess]]:
    async with AsyncExitStack() as stack:
        relays: list[RelayProcess] = []
        for name in ("one", "other"):
            relay = RelayProcess(
                tmp_path / name,
                options=(*store_options(server), "--log", "json", "--verbose"),
                environment=server.environment
                | {"CRYSTAL_RELAY_ENROLL_TOKEN": "", "CRYSTAL_RELAY_METRICS_TOKEN": METRICS_TOKEN},
            )
            stack.callback(relay.kill)
            await asyncio.to_thread(relay.start)
            relays.append(relay)
        yield relays


async def on(server: S3Server, *words: str, typed: str = "") -> Said:
    return await run_crystal_relay(
        *words, *store_options(server), typed=typed, environment=server.environment
    )


async def test_a_drop_or_a_suspension_counts_at_once_at_every_process_and_so_does_its_end(
    server: S3Server, pair: list[RelayProcess]
) -> None:
    made = await on(server, "tokens", "create")
    lead = await enrolled(pair[0].url, enroll_token=made.out.strip())
    stores = [lead.store(relay.url) for relay in pair]
    for number, store in enumerate(stores):
        await store.put_new(f"{lead.prefix}devlog/{number}", b"x")
    shown = (await on(server, "vaults", "--json")).document["vaults"]
    assert [(each["vault"], each["entries"]) for each in shown] == [(lead.vault, 2)]
    dropped = await on(server, "vaults", "delete", lead.vault, typed=f"{lead.vault}\n")
    assert dropped.code == 0
    assert "could not be told" not in dropped.err
    for store in stores:
        with pytest.raises(VaultDropped):
            await store.list(lead.prefix)
    restored = await on(server, "vaults", "restore", lead.vault, "--json")
    suspended = await on(server, "vaults", "suspend", lead.vault, "--yes", "--json")
    assert suspended.document["not_told"] == 0
    for store in stores:
        with pytest.raises(VaultSuspended):
            await store.list(lead.prefix)
    assert (await on(server, "vaults", "resume", lead.vault)).code == 0
    assert restored.document["not_told"] == 0
    for store in stores:
        assert len((await store.list(lead.prefix)).entries) == 2
        await store.aclose()


async def test_the_store_is_tried_out_beside_its_relays(server: S3Server, pair: list[RelayProcess]) -> None:
    report = (await on(server, "check", "--json")).document
    assert report["ok"]
    assert report["notes"] == []
    assert [relay.stop() for relay in pair] == [0, 0]
    assert (await on(server, "check", "--json")).document["ok"]


async def test_a_check_says_that_only_one_relay_may_use_the_bucket(rclone_server: S3Server) -> None:
    said = await on(rclone_server.with_new_bucket(), "check", "--json")
    assert said.document["ok"]
    assert "only one on the bucket" in said.document["notes"][0]


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_an_endpoint_that_cannot_be_spoken_to_is_named(rgw_server: S3Server, scheme: str) -> None:
    port = rgw_server.endpoint.rpartition(":")[2] if scheme == "https" else "1"
    endpoint = f"{scheme}://127.0.0.1:{port}"
    words = ("check", "--store", f"s3://{rgw_server.bucket}/x", "--s3-endpoint", endpoint, "--json")
    refused = await run_crystal_relay(*words, environment=rgw_server.environment)
    assert refused.code == 4
    assert endpoint in refused.failure["error"]
    assert ("certificate" in refused.failure["hint"]) == (scheme == "https")


async def test_what_the_bucket_was_asked_is_counted_and_health_asks_nothing_more(
    server: S3Server, pair: list[RelayProcess]
) -> None:
    async with httpx.AsyncClient(base_url=pair[0].url) as http:

        async def operations() -> dict[str, float]:
            reply = await http.get("/metrics", headers={"Authorization": f"Bearer {METRICS_TOKEN}"})
            families = {family.name: family for family in text_string_to_metric_families(reply.text)}
            assert {
                sample.labels["state"]: sample.value for sample in families["crystal_relay_peers"].samples
            }["known"] == 1
            samples = families["crystal_relay_store_operations"].samples
            return {sample.labels["operation"]: sample.value for sample in samples}

        assert (await http.get("/health")).status_code == 200
        before = await operations()
        for _ in range(100):
            assert (await http.get("/health/ready")).status_code == 200
        after = await operations()
    assert before.get("list", 0) > 0
    # One more look, if ten seconds went by meanwhile, and one of the sweeper's.
    assert sum(after.values()) - sum(before.values()) <= 2


async def test_secrets_are_in_no_log(server: S3Server, pair: list[RelayProcess]) -> None:
    made = await on(server, "tokens", "create")
    lead = await enrolled(pair[0].url, enroll_token=made.out.strip())
    # A request is logged when it is over, which is after its reply.
    await eventually(lambda: '"route": "create_vault"' in pair[0].errors)
    said = "".join(relay.errors for relay in pair)
    # A shorter one would be in some other word by chance.
    for secret in (server.secret_key, made.out.strip(), lead.token, METRICS_TOKEN):
        assert secret not in said
        assert secret not in made.err
    assert lead.vault not in said


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong-secret"}, 8),
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, 8),
    ],
    ids=["wrong", "none"],
)
async def test_credentials_that_will_not_do_are_said(
    rgw_server: S3Server, change: dict[str, str], code: int
) -> None:
    environment = rgw_server.environment | {"AWS_EC2_METADATA_DISABLED": "true"} | change
    words = ("check", "--store", f"s3://{rgw_server.bucket}/x", "--s3-endpoint", rgw_server.endpoint)
    refused = await run_crystal_relay(*words, "--json", environment=environment)
    assert (refused.code, refused.out) == (code, "")
    assert refused.failure["hint"]
    assert "wrong-secret" not in refused.err


async def test_a_bucket_that_is_not_there_is_said(moto_server: S3Server) -> None:
    words = ("vaults", "--store", "s3://no-such-bucket/x", "--s3-endpoint", moto_server.endpoint)
    refused = await run_crystal_relay(*words, "--json", environment=moto_server.environment)
    assert (refused.code, refused.out) == (8, "")
    assert "Traceback" not in refused.err


async def test_a_relay_that_was_killed_is_said_not_to_have_been_told(
    server: S3Server, pair: list[RelayProcess]
) -> None:
    made = await on(server, "tokens", "create")
    lead = await enrolled(pair[0].url, enroll_token=made.out.strip())
    await asyncio.to_thread(pair[1].kill)
    dropped = await on(server, "vaults", "delete", lead.vault, "--yes")
    assert dropped.code == 0
    assert "1 relay processes could not be told" in dropped.err
    store = lead.store(pair[0].url)
    with pytest.raises(VaultDropped):
        await store.list(lead.prefix)
    await store.aclose()
