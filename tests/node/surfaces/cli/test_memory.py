"""What a person does every day: record, sync, search, remember, forget, and what the programs that call it
rely on."""

import json
import re
from datetime import datetime
from pathlib import Path

import pytest

from crystal_node.base.project import project_name
from tests.support.machine import Machine, Vault, transcript, turn

_HEX = re.compile(r"[0-9a-f]{64}")


def test_what_one_device_recorded_is_found_on_the_others_with_the_relay_stopped(vault: Vault) -> None:
    laptop, tablet = vault.add(), vault.add()
    transcript(laptop, "The retry budget of the importer is eleven attempts in an hour.")
    assert laptop.run("capture", "--json").json["messages"] == 1
    assert laptop.run("sync", "--json").json["pushed_bytes"] > 0
    assert vault.core.run("sync", "--json").json["collected"] == 1
    assert tablet.run("sync", "--json").json["applied"] == 1
    assert laptop.run("sync", "--json").json["durable"] == 1
    assert len(vault.digests()) == 1
    vault.relay.stop()
    try:
        for machine in vault.machines:
            result = machine.run("search", "--json", "how often may an import be repeated").json
            assert result["mode"] == "hybrid"
            assert "eleven attempts" in result["results"][0]["text"]
    finally:
        vault.relay.start()


def test_a_search_result_has_all_that_is_known_of_a_text(vault: Vault) -> None:
    transcript(vault.core, "We decided to keep the raw readings.")
    vault.core.call("capture", "--agent", "cc-desk")
    vault.core.call("sync")
    result = vault.core.call("search", "raw readings", "--json", "--explain").json
    (hit,) = result["results"]
    assert _HEX.fullmatch(hit["id"])
    assert hit["text"] == "We decided to keep the raw readings."
    assert (hit["agent"], hit["session"], hit["role"], hit["source"]) == (
        "cc-desk",
        "session",
        "user",
        "claude-code",
    )
    assert hit["created_at"] == "2026-01-05T09:00:00.000Z"
    assert hit["project"] == project_name("/home/someone/work", vault.core.root)
    assert hit["provisional"] is False
    assert hit["score"] > 0
    assert hit["explain"].keys() >= {"keyword_rank", "vector_rank", "similarity", "recency", "fused"}


def test_todays_conversation_is_found_before_anything_was_synced(vault: Vault) -> None:
    laptop = vault.add()
    transcript(laptop, "The pressure sensor is mounted upside down.")
    laptop.call("capture")
    (hit,) = laptop.call("search", "--json", "pressure sensor").json["results"]
    assert hit["provisional"] is True
    assert "not shared yet" in laptop.call("search", "pressure sensor").out


def test_search_filters_by_agent_and_time_before_it_cuts_off(vault: Vault) -> None:
    path = transcript(
        vault.core, *[f"Gauge reading number {number} was high." for number in range(30)], name="many"
    )
    vault.core.call("capture", str(path), "--agent", "busy")
    rare = vault.core.root / "rare.jsonl"
    rare.write_text(turn("One gauge reading was low.", session="rare", moment="2024-02-03T00:00:00Z"))
    vault.core.call("capture", str(rare), "--agent", "rare")
    vault.core.call("sync")
    assert vault.core.found("gauge reading", "-n", "1", "--agent", "rare") == ["One gauge reading was low."]
    assert len(vault.core.found("gauge reading", "--since", "2025-01-01", "-n", "100")) == 30
    assert len(vault.core.found("gauge reading", "-n", "7")) == 7
    assert vault.core.found("gauge reading", "--agent", "nobody") == []


@pytest.mark.parametrize("since", ["someday", "7x", "", "2026-13-01", "2026-02-30"])
def test_a_time_that_is_none_is_refused_with_the_forms_that_are(vault: Vault, since: str) -> None:
    outcome = vault.core.call("search", "x", "--since", since, "--json", check=False)
    assert outcome.code == 2
    assert "7d" in outcome.error["hint"]


@pytest.mark.parametrize(
    "query", ['"', "AND OR NOT", "a* NEAR(b)", "'; DROP TABLE chunks; --", "\u202e\x1b[31m", "ünïcödé 漢字"]
)
def test_whatever_is_typed_is_a_query(vault: Vault, query: str) -> None:
    vault.core.call("remember", "A first memory.")
    assert vault.core.call("search", "--json", "--", query).json["results"] is not None


def test_an_empty_query_is_a_usage_error(vault: Vault) -> None:
    assert vault.core.call("search", "--json", "  ", check=False).code == 2


def test_terminal_escapes_in_a_conversation_do_not_reach_the_terminal(vault: Vault) -> None:
    vault.core.call("remember", "red \x1b[31malarm\x1b[0m and \u202ereversed")
    shown = vault.core.call("search", "reversed").out
    assert "alarm" in shown
    assert not set(shown) & {"\x1b", "\u202e"}


def test_a_transcript_is_recorded_once_however_often_it_is_captured(vault: Vault) -> None:
    path = transcript(vault.core, "First words.")
    first = vault.core.call("capture", "--json").json
    assert {"messages", "redacted", "skipped"} <= first.keys()
    assert all(isinstance(first[name], int) for name in ("messages", "redacted", "skipped"))
    assert vault.core.call("capture", "--json").json["messages"] == 0
    transcript(vault.core, "Second words.")
    assert vault.core.call("capture", str(path), "--json").json["messages"] == 1
    assert vault.core.call("capture", str(path.parent), "--json").json["messages"] == 0


def test_credentials_are_blanked_out_and_counted_before_anything_is_stored(vault: Vault) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    transcript(vault.core, f"Use {secret} for the upload.")
    assert vault.core.call("capture", "--json").json["redacted"] == 1
    assert vault.core.call("remember", "--json", f"The token is {secret} for now.").json["redacted"] == 1
    vault.core.call("sync")
    held = [
        path for path in vault.core.home.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()
    ]
    assert held == []


def test_a_path_that_is_not_there_is_named(vault: Vault) -> None:
    outcome = vault.core.call("capture", "/nowhere/x.jsonl", "--json", check=False)
    assert outcome.code == 10
    assert "/nowhere/x.jsonl" in outcome.error["error"]


def test_a_transcript_that_cannot_be_read_does_not_keep_the_others_from_being_recorded(vault: Vault) -> None:
    good = transcript(vault.core, "Readable words.")
    (good.parent / "folder.jsonl").mkdir()
    (good.parent / "link.jsonl").symlink_to("/etc/passwd")
    report = vault.core.call("capture", str(good), str(good.parent / "link.jsonl"), "--json").json
    assert report["messages"] == 1
    assert len(report["problems"]) == 1
    assert "link.jsonl" in report["problems"][0]["path"]


def test_a_memory_has_an_id_a_category_and_reaches_every_device(vault: Vault) -> None:
    node = vault.add()
    made = node.call("remember", "--json", "--category", "preference", "Levels are in millimetres.").json
    vault.settle()
    (hit,) = vault.core.call("search", "--json", "millimetres").json["results"]
    assert (hit["id"], hit["memory"]) == (made["id"], "preference")
    assert datetime.fromisoformat(hit["created_at"]).tzinfo is not None


def test_a_memory_can_be_piped_and_an_empty_or_endless_one_is_refused(vault: Vault) -> None:
    vault.core.call("remember", "-", typed="Piped words.\nOn two lines.\n")
    assert vault.core.found("piped words") == ["Piped words.\nOn two lines."]
    assert vault.core.call("remember", "   ", check=False).code == 2
    assert vault.core.call("remember", "x" * 70_000, check=False).code == 2


def test_a_forgotten_text_is_found_nowhere_and_comes_back_only_when_remembered(vault: Vault) -> None:
    node = vault.add()
    path = transcript(node, "The safe opens with four seven one one.", "Another sentence stays.")
    node.call("capture")
    vault.settle()
    found = vault.core.call("search", "--json", "safe opens").json["results"][0]["id"]
    assert vault.core.call("forget", found[:12], "--json").json["forgotten"] == [found]
    assert "safe" not in " ".join(vault.core.found("safe opens")), "hidden here at once"
    vault.settle()
    for machine in vault.machines:
        assert machine.found("safe opens with four seven, sentence stays", "-n", "50") == [
            "Another sentence stays."
        ]
    path.rename(path.with_name("resumed.jsonl"))
    node.call("capture")
    copy = node.root / "copy.jsonl"
    copy.write_text((path.parent / "resumed.jsonl").read_text())
    node.call("capture", str(copy))
    vault.settle()
    for machine in vault.machines:
        assert machine.found("safe opens with four seven, sentence stays", "-n", "50") == [
            "Another sentence stays."
        ]
    node.call("remember", "The safe opens with four seven one one.")
    vault.settle()
    assert all("The safe opens" in machine.found("safe opens")[0] for machine in vault.machines)
    assert len(vault.digests()) == 1


def test_forgotten_words_are_in_no_file_of_any_device_after_the_next_sync(vault: Vault) -> None:
    node = vault.add()
    made = node.call("remember", "--json", "Zanzibarquokka is the word that must go.").json["id"]
    vault.settle()
    vault.core.call("forget", made)
    vault.settle()
    held = [
        path.relative_to(machine.root)
        for machine in vault.machines
        for path in machine.home.rglob("*")
        if path.is_file() and b"zanzibarquokka" in path.read_bytes().lower()
    ]
    assert held == []


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ("abcdef", 10),
        ("not hex at all", 10),
        ("0123456789abcdef", 10),
        ("f" * 64, 10),
        ("f" * 65, 10),
        (" ", 2),
    ],
)
def test_an_id_that_is_none_or_nobodys_is_told_apart(vault: Vault, given: str, code: int) -> None:
    outcome = vault.core.call("forget", "--json", given, check=False)
    assert (outcome.code, outcome.error["exit_code"]) == (code, code)
    assert outcome.error["hint"]


def test_the_outbox_is_counted_until_what_is_in_it_is_durable(vault: Vault) -> None:
    node = vault.add()
    node.call("remember", "Something to carry.")
    pending: list[int] = []
    for machine in (node, node, vault.core, node):
        status = node.call("status", "--json").json["outbox"]
        pending.append(status["pending"])
        assert (status["oldest_seconds"] is None) == (status["pending"] == 0)
        machine.call("sync")
    pending.append(node.call("status", "--json").json["outbox"]["pending"])
    assert pending == [1, 1, 1, 1, 0]


def test_status_is_a_few_lines_for_people(vault: Vault) -> None:
    said = vault.core.run("status").out
    assert "is a Core of vault" in said
    assert "outbox   empty" in said
    assert len(said.splitlines()) <= 12


def test_verify_finds_a_row_that_somebody_changed(vault: Vault) -> None:
    import apsw

    transcript(vault.core, "The truth of the matter.")
    vault.core.call("capture")
    vault.core.call("sync")
    good = vault.core.call("verify", "--json").json
    assert (good["ok"], good["digest"]) == (True, good["mirror"])
    assert _HEX.fullmatch(good["digest"])
    connection = apsw.Connection(str(vault.core.home / "memory" / "crystal.db"))
    connection.execute("UPDATE occurrences SET role = 'assistant'")
    connection.close()
    outcome = vault.core.call("verify", "--json", check=False)
    assert outcome.code == 8
    assert "damaged" in outcome.error["error"]


def test_a_home_that_is_not_set_up_says_how_to_set_it_up(machine: Machine) -> None:
    for command in (
        ["status"],
        ["sync"],
        ["capture"],
        ["search", "x"],
        ["remember", "x"],
        ["forget", "a" * 64],
        ["devices"],
        ["verify"],
        ["role"],
        ["private", "on"],
        ["pair", "--offline", "--yes"],
    ):
        outcome = machine.call(*command, "--json", check=False)
        assert (outcome.code, outcome.out) == (3, ""), command
        assert "crystal up" in outcome.error["hint"]
        assert set(outcome.error) == {"error", "hint", "exit_code"}
    assert not machine.home.exists(), "asking makes nothing"


def test_usage_errors_are_json_too(machine: Machine) -> None:
    for command in (
        ["search", "--json"],
        ["status", "--json", "--bogus"],
        ["init", "--role", "queen", "--json"],
        ["nope", "--json"],
    ):
        outcome = machine.run(*command, check=False)
        assert (outcome.code, outcome.error["exit_code"]) == (2, 2)
        assert "--help" in outcome.error["hint"]


def test_every_command_explains_itself_with_an_example_and_no_secret_in_it(machine: Machine) -> None:
    listed = machine.run("help", "--all").out
    for verb in (
        "init",
        "pair",
        "capture",
        "sync",
        "search",
        "remember",
        "forget",
        "status",
        "devices",
        "verify",
        "role",
        "demo",
    ):
        assert verb in listed
        said = machine.call(verb, "--help").out
        assert "Example" in said
        assert "mc3:" not in said.split("Options")[0]


def test_the_version_is_printed(machine: Machine) -> None:
    assert re.fullmatch(r"crystal \d+\.\d+\.\d+\S*\n", machine.run("--version").out)
    assert machine.call("--version").out == machine.run("--version").out


def test_a_reader_that_goes_away_is_no_error(vault: Vault) -> None:
    process = vault.core.start("status", "--json")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert (process.wait(30), said) == (0, "")


def test_text_that_is_no_unicode_is_made_whole(vault: Vault) -> None:
    path = vault.core.root / "odd.jsonl"
    path.write_text(turn("A lone half \ud83d of a pair.") + json.dumps({"type": "user"}) + "\n{broken\n")
    report = vault.core.call("capture", str(path), "--json").json
    assert report["messages"] == 1
    assert report["skipped"] == 2
    assert vault.core.found("lone half") == ["A lone half ? of a pair."]


def test_the_database_opens_with_any_sqlite_tool(vault: Vault) -> None:
    import sqlite3

    vault.core.call("remember", "Portable.")
    vault.core.call("sync")
    connection = sqlite3.connect(f"file:{vault.core.home / 'memory' / 'crystal.db'}?mode=ro", uri=True)
    try:
        assert connection.execute("SELECT text FROM chunks").fetchall() == [("Portable.",)]
    finally:
        connection.close()
    assert Path(vault.core.home / "memory" / "crystal.db").stat().st_mode & 0o077 == 0
