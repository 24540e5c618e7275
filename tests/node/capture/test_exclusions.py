"""What a person keeps out of the record: marked words, and projects by folder, repository or ignore file, on all devices."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal_node.base.settings import resolve
from crystal_node.capture.codex import Codex
from crystal_node.capture.exclusions import (
    EXCLUSIONS_MAX,
    Exclusion,
    Exclusions,
    UnreadableExclusion,
    end,
    exclusion_of,
    write,
)
from crystal_node.capture.private_words import without_private
from crystal_node.search.finding.finder import Finder
from crystal_node.search.recall.hook import HookEvent, HookInput
from crystal_node.search.recall.selection import recall
from tests.node.capture.tools import TOOLS, Tool, line, read_all
from tests.node.capture.transcripts import said
from tests.support.machine import Machine, Vault

NOW = datetime(2026, 11, 17, 9, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("<private>my salary is 5</private>Plan the week.", "Plan the week."),
        ("Plan <private>x</private>the week.", "Plan the week."),
        ("Plan.\n\n<Private>\nmany\nlines\n</PRIVATE>\n\nThe week.", "Plan.\n\nThe week."),
        ("a<private>b<private>c</private>d</private>e", "ae"),
        ("Plan.<private>never closed", "Plan."),
        ("<private>all of it</private>", ""),
        ("<private>a</private>b<private>c</private>", "b"),
        ("closed</private> only", "closed</private> only"),
        ("one</private> two <private>x</private> three", "one</private> two  three"),
        ("a private matter, <b>bold</b>", "a private matter, <b>bold</b>"),
    ],
)
def test_marked_words_are_cut_out(text: str, kept: str) -> None:
    assert without_private(text) == kept


@given(st.lists(st.sampled_from(["<private>", "</private>", "secret"]), max_size=30))
def test_no_word_behind_an_open_mark_is_kept(parts: list[str]) -> None:
    depth = 0
    numbered: list[str] = []
    open_words: list[str] = []
    for number, part in enumerate(parts):
        depth = max(depth + {"<private>": 1, "</private>": -1}.get(part, 0), 0)
        numbered.append(f"secret-{number}-" if part == "secret" else part)
        if part == "secret" and depth:
            open_words.append(numbered[-1])
    kept = without_private("".join(numbered))
    assert not any(word in kept for word in open_words)
    assert "<private>" not in kept


@pytest.mark.parametrize("tool", TOOLS, ids=str)
def test_marked_words_of_a_prompt_are_recorded_of_no_tool(tool: Tool, tmp_path: Path) -> None:
    adapter, path = tool.adapter(tmp_path), tmp_path / tool.path
    path.parent.mkdir(parents=True)
    prompts = ["Plan the week. <private>my salary is 5</private>", "<private>my salary is 5</private>"]
    path.write_bytes(tool.begin() + b"".join(tool.line(n, text) for n, text in enumerate(prompts, 1)))
    operations, counts, state = read_all(adapter, path)
    assert said(operations) == [("user", "Plan the week.")]
    assert counts.skipped["private"] == 1
    assert b"salary" not in state.memo


def test_what_is_held_of_a_prompt_has_no_marked_words(tmp_path: Path) -> None:
    path = tmp_path / "sessions" / "rollout-x.jsonl"
    path.parent.mkdir(parents=True)
    content = [{"type": "input_text", "text": "Plan. <private>my salary is 5</private>"}]
    item = {"type": "message", "role": "user", "content": content}
    path.write_bytes(line({"timestamp": NOW.isoformat(), "type": "response_item", "payload": item}))
    _, _, state = read_all(Codex(tmp_path, tmp_path), path)
    assert b"Plan." in state.memo
    assert b"salary" not in state.memo


def test_a_mark_that_begins_in_one_part_of_a_held_prompt_ends_in_another(tmp_path: Path) -> None:
    path = tmp_path / "sessions" / "rollout-x.jsonl"
    path.parent.mkdir(parents=True)
    parts = ("Plan. <private>my", "salary is 5</private> The week.")
    prompt = {"role": "user", "content": [{"type": "input_text", "text": text} for text in parts]}
    answer = {"role": "assistant", "content": [{"type": "output_text", "text": "Done."}]}
    items = [{"type": "message", **item} for item in (prompt, answer)]
    path.write_bytes(
        b"".join(
            line({"timestamp": NOW.isoformat(), "type": "response_item", "payload": item}) for item in items
        )
    )
    operations, _, _ = read_all(Codex(tmp_path, tmp_path), path)
    assert said(operations) == [("user", "Plan.  The week."), ("assistant", "Done.")]


def _excluded(home: Path, *found: Exclusion) -> Exclusions:
    return Exclusions(home, found)


def test_a_folder_holds_with_all_below_it_and_nothing_beside_it(tmp_path: Path) -> None:
    here = _excluded(tmp_path, Exclusion(folder="~/work/diary"), Exclusion(folder="/srv/ledger"))
    for cwd in (f"{tmp_path}/work/diary", f"{tmp_path}/work/diary/deep/er", "/srv/ledger", "/srv/ledger/a"):
        assert here.hides(cwd, "", 5)
    for cwd in (f"{tmp_path}/work/diary2", f"{tmp_path}/work", "/srv/ledgers", "/srv", "", "~/work/diary"):
        assert not here.hides(cwd, "", 5)


def test_a_repository_holds_wherever_it_is_and_a_time_only_for_what_has_one(tmp_path: Path) -> None:
    here = _excluded(
        tmp_path,
        Exclusion(repository="example.org/me/diary"),
        Exclusion(folder="/paused", since=100, until=200),
    )
    assert here.hides("/anywhere", "example.org/me/diary", 5)
    assert not here.hides("/anywhere", "example.org/me/diary2", 5)
    assert [here.hides("/paused/x", "", moment) for moment in (99, 100, 200, 201, 0)] == [
        False,
        True,
        True,
        False,
        True,
    ]
    begun = [here.hides("/paused/x", "", 0, begun) for begun in (99, 200, 201)]
    assert begun == [True, True, False], "without a time: its conversation began after the pause"


@pytest.mark.parametrize(
    ("at", "patterns", "ignored"),
    [
        ("secret", "*", True),
        ("secret", "# nothing\n\n", False),
        ("secret", "*.md\nbuild/", False),
        (".", "secret/", True),
        (".", "/secret", True),
        (".", "secret/deep", True),
        (".", "other/", False),
        (".", "secret/deep\n!secret/deep", False),
        (".", "[", False),
    ],
)
def test_a_folder_is_kept_out_by_an_ignore_file_in_it_or_above(
    tmp_path: Path, at: str, patterns: str, ignored: bool
) -> None:
    folder = tmp_path / "secret" / "deep"
    folder.mkdir(parents=True)
    (tmp_path / at / ".crystalignore").write_text(patterns)
    assert _excluded(tmp_path).hides(str(folder), "", 5) is ignored


def test_an_ignore_file_that_is_a_link_or_a_folder_means_nothing_and_one_that_cannot_be_read_stops_the_reading(
    tmp_path: Path,
) -> None:
    ignore = tmp_path / ".crystalignore"
    ignore.mkdir()
    assert not _excluded(tmp_path).hides(str(tmp_path), "", 5)
    ignore.rmdir()
    (tmp_path / "all").write_text("*")
    ignore.symlink_to(tmp_path / "all")
    assert not _excluded(tmp_path).hides(str(tmp_path), "", 5)


def test_what_a_person_names_is_a_folder_or_a_repository(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / ".git").mkdir(parents=True)
    (work / ".git" / "config").write_text('[remote "origin"]\n\turl = git@example.org:me/work.git\n')
    assert exclusion_of(str(work), tmp_path, since=0) == [
        Exclusion(folder="~/work"),
        Exclusion(repository="example.org/me/work"),
    ]
    assert exclusion_of(str(work / ".git"), tmp_path, since=3) == [Exclusion(folder="~/work/.git", since=3)]
    assert exclusion_of("https://u:p@example.org/me/diary.git", tmp_path, since=0) == [
        Exclusion(repository="example.org/me/diary")
    ]
    assert exclusion_of("example.org/me/diary", tmp_path, since=0) == [
        Exclusion(repository="example.org/me/diary")
    ]
    assert exclusion_of("/nowhere/at/all", tmp_path, since=0) == []
    assert exclusion_of("diary", tmp_path, since=0) == []


def test_a_damaged_exclusion_is_an_error_and_not_nothing(tmp_path: Path) -> None:
    write(tmp_path, Exclusion(folder="~/work"))
    (path,) = (tmp_path / "exclusions").iterdir()
    assert Exclusions.read(tmp_path, tmp_path).all == (Exclusion(folder="~/work"),)
    for damage in (b"", b"{}", b"[]", b'{"folder": 7}', b"\xff"):
        path.write_bytes(damage)
        with pytest.raises(UnreadableExclusion, match="is no exclusion"):
            Exclusions.read(tmp_path, tmp_path)


def test_the_end_of_an_exclusion_ends_the_one_that_a_conflict_put_beside_it(tmp_path: Path) -> None:
    write(tmp_path, Exclusion(folder="~/work", until=3))
    write(tmp_path, Exclusion(folder="~/other"))
    (tmp_path / "exclusions" / "0 (conflict).json").write_text('{"folder": "~/work"}')
    end(tmp_path, "~/work", until=7)
    found = Exclusions.read(tmp_path, tmp_path).all
    assert sorted((one.folder, one.until) for one in found if not one.holds) == [("~/work", 3), ("~/work", 7)]
    assert [one.folder for one in found if one.holds] == ["~/other"]


def test_more_exclusions_than_are_read_are_an_error_and_not_left_out(tmp_path: Path) -> None:
    for number in range(EXCLUSIONS_MAX + 1):
        (tmp_path / "exclusions").mkdir(exist_ok=True)
        (tmp_path / "exclusions" / f"{number}.json").write_text('{"folder": "~/work"}')
    with pytest.raises(UnreadableExclusion, match="more than 1,000 files"):
        Exclusions.read(tmp_path, tmp_path)


def _say(machine: Machine, folder: str, text: str, moment: datetime) -> None:
    path = machine.projects / "-work" / f"{folder.replace('/', '-')}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    cwd = machine.root / folder
    cwd.mkdir(parents=True, exist_ok=True)
    spoken = {
        "type": "user",
        "uuid": f"{folder}-{text}",
        "sessionId": folder,
        "timestamp": moment.isoformat(),
        "cwd": str(cwd),
        "message": {"role": "user", "content": text},
    }
    with path.open("a") as file:
        file.write(json.dumps(spoken) + "\n")


def test_an_excluded_project_is_recorded_on_no_device_and_again_when_it_is_included(vault: Vault) -> None:
    core, other = vault.core, vault.add()
    _say(core, "work/diary", "Said before, not read yet.", NOW)
    told = core.call("capture", "exclude", str(core.root / "work" / "diary"), "--json").json
    assert told["excluded"] == [{"folder": "~/work/diary", "repository": "", "since": None}]
    assert core.call("capture", "exclude", "~/work/diary", "--json").json["changed"] is False
    vault.settle()
    for machine in (core, other):
        _say(machine, "work/diary", f"Secret of {machine.root.name}.", datetime.now(UTC))
        _say(machine, "work/other", f"Open on {machine.root.name}.", datetime.now(UTC))
        report = machine.call("capture", "--json").json
        assert report["messages"] == 1
        assert report["skipped_reasons"]["excluded project"] >= 1
        assert "Kept out: ~/work/diary" in machine.call("capture", "status").out
    vault.settle()
    assert core.found("secret OR said", "-n", "50") == []
    inner = other.call("capture", "include", "~/work/diary/inner")
    assert "recorded from now on" not in inner.out
    assert "~/work/diary/inner: not kept out under that name. Kept out: ~/work/diary." in inner.err
    other.call("capture", "exclude", "example.org/me/diary")
    ended = other.call("capture", "include", "~/work/diary")
    assert "Still kept out: example.org/me/diary." in ended.out
    other.call("capture", "include", "example.org/me/diary")
    assert "Kept out" not in other.call("capture", "status").out
    _say(other, "work/diary", "Said when it was over.", datetime.now(UTC) + timedelta(seconds=5))
    assert other.call("capture", "--json").json["messages"] == 1
    assert other.found("when it was over") == ["Said when it was over."]
    assert other.call("backfill", "--json").json["new"] == 0, "what was said meanwhile stays out"


def test_a_paused_project_is_recorded_up_to_then_and_behind_it(vault: Vault) -> None:
    core = vault.core
    _say(core, "work/diary", "Said before.", NOW)
    core.call("capture", "pause", "~/work/diary")
    _say(core, "work/diary", "Said in the pause.", datetime.now(UTC) + timedelta(seconds=1))
    assert core.call("capture", "--json").json["messages"] == 1
    core.call("capture", "include", "~/work/diary")
    assert core.found("said", "-n", "50") == ["Said before."]


def test_an_ignore_file_keeps_a_project_out_and_a_person_is_told_what_is_wrong(vault: Vault) -> None:
    core = vault.core
    _say(core, "work/diary", "Not to be read.", NOW)
    (core.root / "work" / "diary" / ".crystalignore").write_text("*\n")
    assert core.call("capture", "--json").json["skipped_reasons"] == {"excluded project": 1}
    wrong = core.call("capture", "exclude", "nonsense", check=False)
    assert wrong.code == 2
    assert "no folder here and no repository" in wrong.err
    assert core.call("capture", "exclude", check=False).code == 2
    write(core.home, Exclusion(folder="~/work"))
    (path,) = (core.home / "exclusions").iterdir()
    os.truncate(path, 0)
    _say(core, "work/other", "Waits.", NOW)
    report = core.call("capture", "--json").json
    assert report["messages"] == 0
    assert any("is no exclusion" in each["problem"] for each in report["problems"])
    for words in (["status"], ["include", "~/work"]):
        refused = core.call("capture", *words, "--json", check=False)
        assert (refused.code, refused.error["exit_code"]) == (8, 8)
        assert refused.error["error"] == f"exclusions/{path.name} of the home is no exclusion"
        assert "delete it" in refused.error["hint"]


def test_marked_words_of_a_prompt_are_neither_searched_for_nor_kept_in_the_recall_log(vault: Vault) -> None:
    core = vault.core
    settings = resolve(environment=core.environment | {"CRYSTAL_HOME": str(core.home)})
    asked = "When is the harbour crane serviced? <private>my salary is 5</private>"
    with Finder(settings) as found:
        hook = HookInput(HookEvent.PROMPT, "s", str(core.root), prompt=asked)
        assert recall(hook, settings, lambda: found, 0).prompt == "When is the harbour crane serviced?"


def test_what_is_remembered_is_without_marked_words(vault: Vault) -> None:
    vault.core.call("remember", "Tea is at four. <private>my salary is 5</private>")
    assert [each["text"] for each in vault.core.call("memories", "list", "--json").json["memories"]] == [
        "Tea is at four."
    ]
