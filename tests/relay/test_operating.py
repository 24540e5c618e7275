"""The operator's commands on a relay with a directory of its own: while it runs, and when it does not."""

import asyncio
import secrets
import tarfile
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from crystal_relay.cli.failures import RelayExitCode
from crystal_relay.cli.output import size
from crystal_relay.cli.vaults import seconds_of
from crystal_relay.errors import (
    BadRequest,
    EnrollmentClosed,
    RelayError,
    Unauthorized,
    VaultDropped,
    VaultReadOnly,
    VaultSuspended,
)
from crystal_relay.local import LocalStore
from tests.support.operating import Said, crystal_relay, run_crystal_relay
from tests.support.relay_process import RelayProcess
from tests.support.relay_server import Member, enrolled


@pytest_asyncio.fixture
async def relay(tmp_path: Path) -> AsyncGenerator[RelayProcess]:
    """It takes the enrolment tokens that its store knows: none is set."""
    relay = RelayProcess(tmp_path / "store", environment={"CRYSTAL_RELAY_ENROLL_TOKEN": ""})
    await asyncio.to_thread(relay.start)
    yield relay
    assert await asyncio.to_thread(relay.stop) == 0


async def on(relay: RelayProcess, *words: str, typed: str = "") -> Said:
    return await run_crystal_relay(*words, "--store", relay.directory.as_uri(), typed=typed)


def tars_in(directory: Path) -> list[str]:
    return [path.name for path in directory.glob("*.tar*")]


async def new_member(relay: RelayProcess) -> Member:
    made = await on(relay, "tokens", "create", "--label", "tests")
    assert (made.code, len(made.out.split())) == (0, 1)
    return await enrolled(relay.url, enroll_token=made.out.strip())


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_an_operator_limits_exports_deletes_and_restores_a_vault_while_its_relay_runs(
    relay: RelayProcess, tmp_path: Path
) -> None:
    lead = await new_member(relay)
    store = lead.store(relay.url)
    await store.put_new(f"{lead.prefix}devlog/0", b"x" * 2048)
    shown = await on(relay, "vaults", "list", "--sort", "used")
    assert lead.vault in shown.out
    assert "2.0 KiB" in shown.out

    suspended = await on(
        relay, "vaults", "suspend", lead.vault, "--reason", "moving house", typed=f"{lead.vault}\n"
    )
    assert (suspended.code, "Suspended." in suspended.out) == (0, True)
    with pytest.raises(VaultSuspended, match="moving house"):
        await store.list(lead.prefix)
    read_only = await on(relay, "vaults", "read-only", lead.vault, "--yes", "--json")
    assert (read_only.document["access"], read_only.document["not_told"]) == ("read-only", 0)
    with pytest.raises(VaultReadOnly):
        await store.put_new(f"{lead.prefix}devlog/1", b"x")
    (listed,) = (await on(relay, "vaults", "--json")).document["vaults"]
    assert (listed["access"], len(listed["last_used"])) == ("read-only", len("2026-11-23"))
    file = tmp_path / "vault.tar"
    exported = await on(relay, "vaults", "export", lead.vault, str(file), "--json")
    assert (exported.document["objects"], exported.document["bytes"]) == (1, 2048)
    with tarfile.open(file) as archive:
        assert archive.getnames() == [f"{lead.vault}/devlog/0", f"{lead.vault}/EXPORT.json"]
    again = await on(relay, "vaults", "export", lead.vault, str(file))
    assert (again.code, "exists already" in again.err) == (2, True)
    none = await on(relay, "vaults", "export", "f" * 32, str(tmp_path / "none.tar"))
    assert (none.code, await asyncio.to_thread(tars_in, tmp_path)) == (10, ["vault.tar"])
    assert (await on(relay, "vaults", "resume", lead.vault)).out == "Open. Its devices have access again.\n"

    quota = await on(relay, "vaults", "quota", lead.vault, "20GiB", "--json")
    assert quota.document["quota_bytes"] == 20 * 1024**3
    assert "20.0 GiB" in (await on(relay, "vaults", "list")).out

    assert (await on(relay, "tokens", "close")).code == 0
    with pytest.raises(EnrollmentClosed):
        await new_member(relay)
    assert "Closed since" in (await on(relay, "tokens", "list")).err
    assert "Closed since" in (await on(relay, "tokens", "create")).err
    assert (await on(relay, "tokens", "open")).code == 0
    await new_member(relay)

    deleted = await on(relay, "vaults", "delete", lead.vault, typed=f"{lead.vault}\n")
    assert (deleted.code, "it is deleted after" in deleted.out) == (0, True)
    with pytest.raises(VaultDropped):
        await store.put_new(f"{lead.prefix}devlog/1", b"x")
    assert "dropped, deleted after" in (await on(relay, "vaults", "list")).out
    restored = await on(relay, "vaults", "restore", lead.vault, "--json")
    assert restored.document == {"vault": lead.vault, "dropped_until": None, "not_told": 0}
    await store.put_new(f"{lead.prefix}devlog/1", b"x")
    await store.aclose()


@pytest.mark.slow
@pytest.mark.parametrize(
    "typed", ["", "\n", "yes\n", "f" * 32 + "\n"], ids=["nothing", "enter", "yes", "another"]
)
async def test_what_is_not_confirmed_is_not_done(relay: RelayProcess, typed: str) -> None:
    lead = await new_member(relay)
    refused = await on(relay, "vaults", "delete", lead.vault, typed=typed)
    assert (refused.code, refused.out) == (2, "")
    assert "nothing was changed" in refused.err
    store = lead.store(relay.url)
    await store.put_new(f"{lead.prefix}devlog/0", b"x")
    await store.aclose()


@pytest.mark.slow
async def test_a_token_counts_until_it_is_revoked_and_is_shown_once(relay: RelayProcess) -> None:
    made = (await on(relay, "tokens", "create", "--label", "for Ada", "--json")).document
    await enrolled(relay.url, enroll_token=made["token"])
    listed = await on(relay, "tokens", "list", "--json")
    assert {name: value for name, value in made.items() if name != "token"} | {"used": 1} in listed.document[
        "tokens"
    ]
    assert made["token"] not in listed.out
    assert (await on(relay, "tokens", "revoke", made["id"])).code == 0
    with pytest.raises(Unauthorized):
        await enrolled(relay.url, enroll_token=made["token"])
    again = await on(relay, "tokens", "revoke", made["id"], "--json")
    assert (again.code, again.failure["exit_code"]) == (10, 10)
    assert made["token"] not in relay.errors


@pytest.mark.slow
async def test_a_store_is_tried_out_while_its_relay_runs_and_after(relay: RelayProcess) -> None:
    for _ in range(2):
        report = (await on(relay, "check", "--json")).document
        assert report["ok"]
        assert all(step["seconds"] > 0 for step in report["steps"])
        assert await asyncio.to_thread(relay.stop) == 0


@pytest.mark.slow
async def test_a_stopped_relays_vaults_are_shown_and_dropped(relay: RelayProcess) -> None:
    lead = await new_member(relay)
    assert await asyncio.to_thread(relay.stop) == 0
    shown = (await on(relay, "vaults", "--json")).document
    assert [each["vault"] for each in shown["vaults"]] == [lead.vault]
    dropped = await on(relay, "vaults", "delete", lead.vault, "--yes", "--grace", "2w", "--json")
    assert dropped.document["dropped_until"] > 0
    assert "nothing was due" in (await on(relay, "sweep")).out
    await asyncio.to_thread(relay.start)
    store = lead.store(relay.url)
    with pytest.raises(VaultDropped):
        await store.list(lead.prefix)
    await store.aclose()


@pytest.mark.slow
async def test_a_command_finds_the_relay_that_was_killed_gone_and_the_directory_usable(
    relay: RelayProcess,
) -> None:
    lead = await new_member(relay)
    await asyncio.to_thread(relay.kill)
    shown = await on(relay, "vaults", "--json")
    assert (shown.code, shown.document["vaults"][0]["vault"]) == (0, lead.vault)


@pytest.mark.slow
async def test_commands_at_once_all_succeed(relay: RelayProcess) -> None:
    assert await asyncio.to_thread(relay.stop) == 0
    ended = await asyncio.gather(*(on(relay, "tokens", "create", "--label", str(n)) for n in range(4)))
    assert [each.code for each in ended] == [0] * 4
    listed = (await on(relay, "tokens", "list", "--json")).document["tokens"]
    assert {"0", "1", "2", "3"} <= {each["label"] for each in listed}


async def test_a_directory_that_another_program_holds_is_said(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    try:
        refused = await run_crystal_relay("check", "--store", (tmp_path / "store").as_uri())
    finally:
        await store.aclose()
    assert refused.code == 9
    assert "another process" in refused.err


@pytest.mark.slow
def test_a_mistyped_directory_is_said_and_not_made(tmp_path: Path) -> None:
    for words in (("vaults",), ("check",), ("tokens", "list"), ("sweep",)):
        refused = crystal_relay(*words, "--store", (tmp_path / "no-such").as_uri(), "--json")
        assert (refused.code, refused.out) == (8, "")
        assert "no store" in refused.failure["error"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("vaults", "delete", "no-id", "--yes"), 2),
        (("vaults", "delete", "f" * 32, "--yes"), 10),
        (("vaults", "delete", "f" * 32, "--yes", "--grace", "soon"), 2),
        (("vaults", "delete", "f" * 32, "--yes", "--grace", "9999d"), 2),
        (("vaults", "restore", "f" * 32), 10),
        (("tokens", "revoke", "xyz"), 2),
        (("tokens", "create", "--label", "x" * 65), 2),
        (("check", "--store", "memory:"), 2),
    ],
    ids=range(8),
)
def test_what_cannot_be_done_is_said_with_an_exit_code(
    tmp_path: Path, words: tuple[str, ...], code: int
) -> None:
    asyncio.run(LocalStore(tmp_path / "store").aclose())
    environment = {"CRYSTAL_RELAY_STORE": (tmp_path / "store").as_uri()}
    refused = crystal_relay(*words, environment=environment)
    assert (refused.code, refused.out) == (code, "")
    assert refused.err.startswith("crystal-relay: ")
    assert "Traceback" not in refused.err


def test_options_before_the_word_are_refused_rather_than_ignored(tmp_path: Path) -> None:
    asyncio.run(LocalStore(tmp_path / "other").aclose())
    environment = {"CRYSTAL_RELAY_STORE": (tmp_path / "other").as_uri()}
    words = ("vaults", "--store", (tmp_path / "meant").as_uri(), "drop", "f" * 32, "--yes")
    refused = crystal_relay(*words, environment=environment)
    assert (refused.code, refused.out) == (2, "")
    assert "drop" in refused.err


@pytest.mark.slow
def test_the_store_of_the_environment_is_used_and_the_option_wins(tmp_path: Path) -> None:
    for name in ("one", "two"):
        asyncio.run(LocalStore(tmp_path / name).aclose())
    environment = {"CRYSTAL_RELAY_STORE": (tmp_path / "one").as_uri()}
    assert crystal_relay("tokens", "create", "--label", "in one", environment=environment).code == 0
    two = ("--store", (tmp_path / "two").as_uri())
    assert crystal_relay("tokens", "create", "--label", "in two", *two, environment=environment).code == 0
    assert "in one" in crystal_relay("tokens", "list", environment=environment).out
    assert "in two" in crystal_relay("tokens", "list", *two, environment=environment).out
    assert "in one" not in crystal_relay("tokens", "list", *two, environment=environment).out


def test_every_error_ends_the_command_with_a_code_that_is_documented() -> None:
    pending, seen = [RelayError], set[type[RelayError]]()
    while pending:
        kind = pending.pop()
        seen.add(kind)
        pending += kind.__subclasses__()
    assert len(seen) > 20
    assert {kind.exit_code for kind in seen} <= set(RelayExitCode)


def test_the_version_is_said() -> None:
    said = crystal_relay("--version")
    assert (said.code, said.out.split()[0]) == (0, "crystal-relay")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("30m", 1800), ("12h", 43200), ("7d", 604800), ("2w", 1209600), ("0s", 0)],
)
def test_times_are_a_number_and_a_unit(text: str, seconds: int) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "7", "d", "-1d", "1.5d", "7 d", "7D", "7d\n", "\u0667d", "9" * 7 + "s"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        seconds_of(text)


def test_sizes_are_readable() -> None:
    assert [size(count) for count in (0, 1023, 1024, 5 * 1024**3, 3000 * 1024**4)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "5.0 GiB",
        "3000.0 TiB",
    ]


@pytest.mark.slow
async def test_secrets_are_in_no_log_no_argument_and_no_metrics(tmp_path: Path) -> None:
    enroll, scrape = secrets.token_hex(20), secrets.token_hex(20)
    relay = RelayProcess(
        tmp_path / "store",
        enroll_token=enroll,
        options=("--log", "json", "--verbose"),
        environment={"CRYSTAL_RELAY_METRICS_TOKEN": scrape},
        fresh=True,
    )
    await asyncio.to_thread(relay.start)
    try:
        lead = await enrolled(relay.url, enroll_token=enroll)
        store = lead.store(relay.url)
        await store.put_new(f"{lead.prefix}devlog/0", b"the bytes of an object")
        await store.aclose()
        made = (await on(relay, "tokens", "create")).out.strip()
        async with httpx.AsyncClient(base_url=relay.url) as http:
            await http.get("/metrics", headers={"Authorization": f"Bearer {scrape}x"})
            await http.get(f"/{scrape}", headers={"Authorization": f"Bearer {scrape}"})
            shown = (await http.get("/metrics", headers={"Authorization": f"Bearer {scrape}"})).text
        argument = await asyncio.to_thread(Path(f"/proc/{relay.pid}/cmdline").read_bytes)
    finally:
        assert await asyncio.to_thread(relay.stop) == 0
    assert 'route="put_object"' in shown
    for secret in (enroll, scrape, made, lead.token, lead.token.partition(".")[2]):
        assert secret not in relay.errors
        assert secret not in shown
        assert secret.encode() not in argument
    for name in (lead.vault, lead.device, "devlog/0", "the bytes"):
        assert name not in relay.errors
        assert name not in shown
