"""`crystal search` and `crystal show` as people and programs use them: filters, snippets, pages, what stands around a text."""

import json
import shutil
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC
from pathlib import Path

import pytest

from crystal_core.embed import builtin as builtin_module
from crystal_core.embed.builtin import BuiltinEmbedder
from crystal_core.embed.manifest import WEIGHTS_FILE
from crystal_node.base.errors import UsageError
from crystal_node.models.embedding import selection
from crystal_node.search.conversation_documents import ConversationsRequest
from crystal_node.search.conversations import ConversationList
from crystal_node.search.finding.documents import ResultKind, SearchRequest, ShowRequest
from crystal_node.search.finding.finder import Finder
from crystal_node.search.finding.validation import scope_of
from tests.node.search.finding.deep_memory import SAID, settings_of
from tests.support.constant import always
from tests.support.machine import Machine
from tests.support.overlap_judge import OverlapJudge


def found(memory: Machine, *arguments: str) -> list[str]:
    return [hit["text"] for hit in memory.call("search", "--json", *arguments).json["results"]]


def test_every_filter_of_the_command_narrows(memory: Machine) -> None:
    everything = sorted(SAID)
    first = memory.call("search", "--json", "crane").json["results"][0]
    device = first["device_name"]
    admitted = (
        ("--project", "work"),
        ("--session", "session"),
        ("--role", "user"),
        ("--kind", "conversation"),
        ("--source", "claude-code"),
        ("--agent", "claude-code"),
        ("--agent", "cc-mini"),
        ("--device", device),
        ("--device", device.upper()),
        ("--device", first["device"][:8]),
        ("--since", "2026-01-05"),
        ("--until", "2026-01-06"),
        ("--since", "January 2026"),
        ("--until", "05.01.2026"),
    )
    for option, value in admitted:
        assert sorted(found(memory, "crane", option, value)) == everything, option
    refused = (
        ("--project", "ork"),
        ("--session", "another"),
        ("--role", "assistant"),
        ("--kind", "memory"),
        ("--source", "codex"),
        ("--agent", "codex"),
        ("--since", "2026-01-06"),
        ("--until", "2026-01-04"),
        ("--since", "February 2026"),
        ("--until", "2025"),
        ("--category", "fact"),
        ("--status", "any"),
    )
    for option, value in refused:
        assert found(memory, "crane", option, value) == [], option


def test_an_unknown_device_is_answered_with_those_that_are_known(memory: Machine) -> None:
    device = memory.call("search", "--json", "crane").json["results"][0]["device_name"]
    for as_json in ((), ("--json",)):
        outcome = memory.call("search", "crane", "--device", "toaster", *as_json, check=False)
        assert (outcome.code, outcome.out) == (2, "")
        assert "toaster" in outcome.err
        assert device in outcome.err


def test_with_exchanged_weights_it_searches_by_words_and_says_so(
    memory: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "model"
    shutil.copytree(Path(builtin_module.__file__).parent / "model", copy)
    weights = copy / WEIGHTS_FILE
    size = weights.stat().st_size
    weights.write_bytes(weights.read_bytes()[: size // 2] + bytes(size - size // 2))

    def builtin(threads: int | None, *, worker: bool) -> BuiltinEmbedder:
        return BuiltinEmbedder(threads=threads, directory=copy)

    monkeypatch.setattr(selection, "builtin", builtin)
    answer = memory.call("search", "--json", "crane").json
    assert answer["mode"] == "keyword"
    assert WEIGHTS_FILE in answer["note"]
    assert "Install memory-crystal again" in answer["note"]
    assert answer["results"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--kind", "nonsense"),
        ("--status", "nonsense"),
        ("--until", "someday"),
        ("--since", "2026-02-30"),
        ("--until", " "),
        ("--since", "2026-01-06", "--until", "2026-01-04"),
        ("--category", "nonsense"),
        ("--provider", "nonsense"),
        ("--fast", "--deep"),
        ("--page", "2", "--offset", "3"),
        ("-n", "1000", "--page", "12"),
        ("--agent", "a" * 2000),
    ],
)
def test_a_filter_that_cannot_be_used_is_a_usage_error(memory: Machine, arguments: tuple[str, ...]) -> None:
    outcome = memory.call("search", "--json", "crane", *arguments, check=False)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.error["hint"] is not None


def test_a_page_says_where_the_next_one_begins(memory: Machine) -> None:
    first = memory.call("search", "--json", "crane", "-n", "2").json
    assert first["more"] is True
    assert "--page 2" in memory.call("search", "crane", "-n", "2").err
    pages = [found(memory, "crane", "-n", "2", "--page", str(page)) for page in (1, 2, 3)]
    assert sorted(text for page in pages for text in page) == sorted(SAID)


def test_marks_lie_on_the_words_that_matched(memory: Machine) -> None:
    (hit,) = memory.call("search", "--json", "squeaking", "-n", "1").json["results"]
    assert [hit["snippet"][start:end] for start, end in hit["marks"]] == ["squeaks"]
    assert hit["kind"] == "conversation"


def test_where_nothing_matches_well_the_answer_says_so(memory: Machine) -> None:
    answer = memory.call("search", "--json", "recipes for lemon cake").json
    assert answer["weak"] is True
    assert all(hit["weak"] for hit in answer["results"])
    assert memory.call("search", "--json", "sensor readings").json["weak"] is False


def test_a_text_is_shown_with_what_was_said_around_it(memory: Machine) -> None:
    (hit,) = memory.call("search", "--json", "squeaks", "-n", "1").json["results"]
    shown = memory.call("show", hit["id"][:12], "--context", "1", "--json").json
    assert [piece["text"] for piece in shown["pieces"]] == list(SAID[2:5])
    assert [piece["asked"] for piece in shown["pieces"]] == [False, True, False]
    assert (shown["id"], shown["kind"], shown["session"]) == (hit["id"], "conversation", "session")
    alone = memory.call("show", hit["id"], "--json").json
    assert [piece["text"] for piece in alone["pieces"]] == [SAID[3]]
    before = memory.call("show", hit["id"], "--before", "2", "--json").json
    assert [piece["text"] for piece in before["pieces"]] == list(SAID[1:4])
    assert SAID[3] in memory.call("show", hit["id"], "-C", "1").out


def test_a_text_that_is_not_there_or_no_id_is_named(memory: Machine) -> None:
    assert memory.call("show", "0" * 16, check=False).code == 10
    for given in ("no id at all", "12", "zzzzzzzzzz"):
        assert memory.call("show", given, "--json", check=False).code == 2


def test_a_memory_stands_alone(memory: Machine) -> None:
    with Finder(settings_of(memory)) as finder:
        made = json.loads(memory.call("remember", "--json", "Cranes are oiled in March.").out)["id"]
        (hit,) = finder.search(SearchRequest(query="oiled March", kind=ResultKind.MEMORY)).results
        assert (hit.id, hit.memory, hit.provisional) == (made, "fact", True)
        shown = finder.show(ShowRequest(id=made, before=5, after=5))
        assert (shown.kind, shown.memory, len(shown.pieces)) == (ResultKind.MEMORY, "fact", 1)
        memory.call("forget", made)
        assert finder.search(SearchRequest(query="oiled March", kind=ResultKind.MEMORY)).results == []


def test_a_request_beyond_the_limits_is_refused_by_the_finder_itself(memory: Machine) -> None:
    with Finder(settings_of(memory)) as finder:
        for request in (
            SearchRequest(query="x" * 20_000),
            SearchRequest(query="x", limit=0),
            SearchRequest(query="x", offset=-1),
        ):
            with pytest.raises(UsageError):
                finder.search(request)
        with pytest.raises(UsageError):
            finder.show(ShowRequest(id="0" * 64, before=51))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("search", ""), "the query is empty"),
        (("search", "x" * 16_385), "the query has 16,385 characters, and may have 16,384"),
        (("show", "12"), "'12' is no id"),
    ],
)
def test_what_is_beyond_the_limits_is_said_in_words_for_people(
    memory: Machine, arguments: tuple[str, ...], said: str
) -> None:
    outcome = memory.call(*arguments, check=False)
    assert outcome.code == 2
    assert outcome.err.startswith(f"crystal: {said}")


def test_a_folder_of_this_machine_is_the_project_that_it_was_recorded_as(tmp_path: Path) -> None:
    for given, recorded in (
        (f"{tmp_path}/src/crane", "src/crane"),
        ("~/src/crane/", "src/crane"),
        ("/elsewhere/src/crane", "…/dljtdcuts4tf/src/crane"),
        ("crane/", "crane"),
        ("example.org/owner/crane", "example.org/owner/crane"),
    ):
        assert scope_of(SearchRequest(query="x", project=given), 0, tmp_path, UTC).project == recorded, given


def test_others_search_while_a_judge_reads(memory: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    class AskingJudge(OverlapJudge):
        """Has somebody else search with the same finder, and waits for what they find."""

        def scores(self, query: str, passages: Sequence[str]) -> list[float]:
            with ThreadPoolExecutor(1) as others:
                asked = others.submit(finder.search, SearchRequest(query="crane", projects=[]))
                assert asked.result(timeout=20).query == "crane"
            return super().scores(query, passages)

    judge = AskingJudge()
    monkeypatch.setattr("crystal_node.search.finding.finder.judge_for", always((judge, "")))
    with Finder(settings_of(memory)) as finder:
        found = finder.search(SearchRequest(query="how often may an import be repeated", explain=True))
        assert judge.asked
        assert found.results[0].explain is not None
        assert found.results[0].explain["judge_score"] is not None


def test_a_search_is_answered_while_the_list_of_conversations_is_made(
    memory: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, may_go_on = threading.Event(), threading.Event()
    look = ConversationList._look  # pyright: ignore[reportPrivateUsage]  happens within

    def slow(conversations: ConversationList) -> None:
        made.set()
        assert may_go_on.wait(100)
        look(conversations)

    monkeypatch.setattr(ConversationList, "_look", slow)
    with Finder(settings_of(memory)) as finder, ThreadPoolExecutor(2) as threads:
        try:
            listed = threads.submit(finder.conversations, ConversationsRequest())
            assert made.wait(100)
            assert threads.submit(finder.search, SearchRequest(query="crane")).result(timeout=100).results
            assert not listed.done()
        finally:
            may_go_on.set()
        assert listed.result(timeout=100).total == 1
