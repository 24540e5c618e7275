"""What a search prints for people: questions with their answers by conversation, at any width, whatever was recorded."""

import re
import time
from collections.abc import Generator

import pytest
from msgspec import structs

from crystal_node.search.finding.documents import ResultDocument, ResultKind, TurnDocument
from crystal_node.surfaces.cli.console import results
from crystal_node.surfaces.cli.console.results import grouped, show_results

QUESTION = "How often may the importer try again?"
ANSWER = "The retry budget is eleven attempts in an hour."
ID = "aa" * 32
MARK = "\x1b[1;33m"
HOSTILE = "\x1b]0;title\x07\x1b[2J\u202etxet\u2028\r\n\x9b31m\u200f[bold]no[/bold]"


def turn_of(question: str = QUESTION, *, answered: bool = True) -> TurnDocument:
    return TurnDocument(
        question=question,
        question_id="bb" * 32,
        answer_id=ID if answered else "",
        answered=answered,
        began_at="2026-03-14T09:05:00.000Z",
        ended_at="2026-03-14T09:06:00.000Z",
        messages=2,
    )


def result_of(**fields: object) -> ResultDocument:
    made = ResultDocument(
        id=ID,
        text=ANSWER,
        snippet=ANSWER,
        marks=[(4, 9)],
        score=1.0,
        kind=ResultKind.CONVERSATION,
        agent="cc-mini",
        session="one",
        role="assistant",
        created_at="2026-03-14T09:06:00.000Z",
        project="src/importer",
        repository="",
        source="claude-code",
        freshness="stale",
        turn=turn_of(),
    )
    return structs.replace(made, **fields)


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def in_file(capfd: pytest.CaptureFixture[str], *found: ResultDocument) -> list[str]:
    show_results(found)
    return capfd.readouterr().out.splitlines()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A terminal of 100 columns with colours."""

    def is_terminal(*, output: bool = False) -> bool:
        return output

    monkeypatch.setattr(results, "is_terminal", is_terminal)
    for name, value in {"COLUMNS": "100", "TERM": "xterm", "FORCE_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    return monkeypatch


def test_a_result_is_a_question_in_a_line_and_the_passage_of_its_answer(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert in_file(capfd, result_of()) == [
        "src/importer · claude-code",
        f"  2026-03-14 09:05  {ID[:12]}  {QUESTION}",
        f"      {ANSWER}",
    ]


def test_results_of_a_conversation_stand_under_one_heading_where_its_best_stood(
    capfd: pytest.CaptureFixture[str],
) -> None:
    found = [
        result_of(session="two", snippet="first"),
        result_of(session="one", snippet="second"),
        result_of(kind=ResultKind.MEMORY, memory="fact", session="", turn=None, snippet="third"),
        result_of(session="two", snippet="fourth", project="src/other"),
        result_of(session="two", agent="another", snippet="fifth"),
        result_of(
            kind=ResultKind.DOCUMENT, source="notes", path="a.md", title="A", turn=None, snippet="sixth"
        ),
        result_of(
            kind=ResultKind.DOCUMENT, source="notes", path="a.md", title="B", turn=None, snippet="last"
        ),
    ]
    groups = [[one.snippet for one in group] for group in grouped(found)]
    assert groups == [["first", "fourth"], ["second"], ["third"], ["fifth"], ["sixth", "last"]]
    good, poor = found[0], result_of(session="two", weak=True)
    assert grouped([poor, good, poor]) == [[result_of(session="two", weak=False), good], [poor]], (
        "only at the end"
    )
    asked = result_of(session="two", role="user", turn=turn_of(answered=False))
    order = [good, found[1], poor, asked]
    assert grouped(order) == [[good], [found[1]], [poor, asked]], (
        "nothing that answers stands behind what does not"
    )
    lines = in_file(capfd, *found)
    headings = [line for line in lines if not line.startswith(" ")]
    assert headings == [
        "src/importer · claude-code",
        "src/importer · claude-code",
        "memory: fact · src/importer · claude-code",
        "src/importer · claude-code · another",
        "notes · a.md",
    ]
    assert "(src/other)" in lines[3], "a conversation went on in another project"


def test_what_nobody_answered_is_marked_and_not_said_twice(capfd: pytest.CaptureFixture[str]) -> None:
    asked = result_of(role="user", snippet=QUESTION, turn=turn_of(answered=False))
    assert in_file(capfd, asked)[1:] == [
        f"  2026-03-14 09:05  {ID[:12]}  (no answer)",
        f"      {QUESTION}",
    ]
    ignorant = result_of(snippet="I do not know.", turn=turn_of(answered=False))
    assert in_file(capfd, ignorant)[1:] == [
        f"  2026-03-14 09:05  {ID[:12]}  (no answer)  {QUESTION}",
        "      I do not know.",
    ]


def test_a_message_says_whose_it_is_and_what_else_is_particular(capfd: pytest.CaptureFixture[str]) -> None:
    (_, line, _) = in_file(capfd, result_of(turn=None, provisional=True, weak=True, alike=["x", "y"]))
    assert line == f"  2026-03-14 09:06  {ID[:12]}  (assistant, not shared yet, weak, and 2 similar)"
    (_, line, _) = in_file(capfd, result_of(role="thinking"))
    assert line == f"  2026-03-14 09:05  {ID[:12]}  (thinking)  {QUESTION}"
    (_, line, _) = in_file(capfd, result_of(turn=None, created_at=""))
    assert line.startswith("  undated  ")


def test_nothing_recorded_reaches_the_terminal_as_a_command(
    capfd: pytest.CaptureFixture[str], terminal: pytest.MonkeyPatch
) -> None:
    hostile = result_of(
        snippet=HOSTILE,
        marks=[(0, 3)],
        agent=HOSTILE,
        project=HOSTILE,
        source=HOSTILE,
        role=HOSTILE,
        turn=turn_of(HOSTILE, answered=False),
    )
    document = structs.replace(hostile, kind=ResultKind.DOCUMENT, title=HOSTILE, path=HOSTILE, turn=None)
    message = structs.replace(hostile, turn=None)
    for colours in ("xterm", "dumb"):
        terminal.setenv("TERM", colours)
        show_results([hostile, document, message])
        out = capfd.readouterr().out
        assert all(char.isprintable() or char in "\n\x1b" for char in out)
        assert "\x1b" not in re.sub(r"\x1b\[[0-9;]*m", "", out), "no sequence but our own"
        assert "[bold]no[/bold]" in out


@pytest.mark.parametrize("columns", [1, 5, 20, 40, 71, 72, 80, 200])
def test_no_line_is_wider_than_the_terminal(
    capfd: pytest.CaptureFixture[str], terminal: pytest.MonkeyPatch, columns: int
) -> None:
    from rich.cells import cell_len

    terminal.setenv("COLUMNS", str(columns))
    wide = "再試行の予算は一時間に十一回です。" * 6
    question = result_of(turn=turn_of(wide), snippet=f"{wide} {'x' * 300}", marks=[(0, 3), (50, 60)])
    show_results([question, result_of(session="two", explain={"keyword_rank": 0})])
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capfd.readouterr().out).splitlines()
    assert max(cell_len(line) for line in lines) <= columns
    if columns >= 20:
        assert "".join("".join(line.split()) for line in lines).count("x") >= 300, "passages are whole"
    below = [number for number, line in enumerate(lines) if line.startswith("  2026-03-14")]
    beside = [number for number in below if "再" in lines[number]]
    assert bool(beside) is (columns >= 72)


def test_what_matched_stands_out_where_there_are_colours(
    capfd: pytest.CaptureFixture[str], terminal: pytest.MonkeyPatch
) -> None:
    show_results([result_of()])
    assert f"The {MARK}retry\x1b[0m budget" in capfd.readouterr().out
    terminal.setenv("NO_COLOR", "1")
    show_results([result_of()])
    out = capfd.readouterr().out
    assert "The \x1b[1mretry\x1b[0m budget" in out
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", out)
    terminal.setenv("TERM", "dumb")
    terminal.delenv("FORCE_COLOR")
    show_results([result_of()])
    assert "\x1b" not in capfd.readouterr().out
