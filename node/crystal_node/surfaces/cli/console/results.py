"""What a search found, as people read it: questions with their answers, by conversation.

::

    tidewatch · claude-code on laptop · Why is the export…  where it was said and the conversation's title, once for its hits
      2026-11-17 09:24  955a96bca0e8  The nightly expo…     when, the id that `crystal show` takes, the question in a line
          The export starts ten minutes after the backup …  the passage of the answer, with the query's words marked

Conversations come in the order of their best results. Everything recorded is made printable. Lines are as wide as the terminal;
where there is none, they are not broken, and nothing is marked.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec import structs

from crystal_node.base.agent_names import CLAUDE_CODE, FORMER_DEFAULT
from crystal_node.base.wording import one_line, printable
from crystal_node.search.finding.documents import ResultDocument, ResultKind, SearchDocument, SearchRequest
from crystal_node.search.finding.explanation import how, why
from crystal_node.surfaces.cli.console.output import note, say
from crystal_node.surfaces.cli.console.terminal import is_terminal

_HEADING_CHARS_MAX = 300
_QUESTION_CHARS_MAX = 200
_NOTE_CHARS_MAX = 2000
_PASSAGE_INDENT = 6
_NAMED_BY_TOOL = (CLAUDE_CODE, FORMER_DEFAULT)
"""Agents that nobody named: the tool says more."""
_ROOMY_COLUMNS = 72
"""From this width on, a question stands beside its date and id, else below them."""


def show_found(found: SearchDocument, request: SearchRequest) -> None:
    """Print the results, grouped, and on standard error what is to be said about them."""
    if found.note:
        note(f"{found.note[0].upper()}{found.note[1:]}.")
    if not found.results:
        say("Nothing more." if request.offset else "Nothing found.")
    else:
        show_results(found.results)
    if found.more:
        note(f"There is more: {_next(request)}.")
    for line in how(found.explain):
        note(one_line(line, _NOTE_CHARS_MAX))


def _next(request: SearchRequest) -> str:
    """The option that shows the next results: a page if these were one."""
    behind = request.offset + request.limit
    return f"--offset {behind}" if behind % request.limit else f"--page {behind // request.limit + 1}"


def show_results(results: Iterable[ResultDocument]) -> None:
    """Print them, grouped."""
    groups = grouped(results)
    if is_terminal(output=True):
        _to_terminal(groups)
    else:
        _to_file(groups)


def grouped(results: Iterable[ResultDocument]) -> list[list[ResultDocument]]:
    """Results of one conversation, or of one document, together, where the best of them stood. A memory stands alone.

    Weak results, and questions that nobody answered, are grouped by themselves: nothing that answers stands behind them. Only
    those at the end count as weak, not one that was put before a good one.
    """
    groups: dict[tuple[object, ...], list[ResultDocument]] = {}
    for result in _settled(list(results)):
        groups.setdefault(_origin(result), []).append(result)
    return list(groups.values())


def _settled(results: Sequence[ResultDocument]) -> list[ResultDocument]:
    answering = [not result.weak and not _is_unanswered(result) for result in results]
    good = max((number for number, answers in enumerate(answering) if answers), default=-1)
    return [
        structs.replace(result, weak=result.weak and number > good) for number, result in enumerate(results)
    ]


def _origin(result: ResultDocument) -> tuple[object, ...]:
    if result.kind is ResultKind.DOCUMENT:
        return result.kind, result.weak, result.source, result.path
    if result.kind in (ResultKind.CONVERSATION, ResultKind.ACTION) and result.session:
        return result.kind, result.weak or _is_unanswered(result), result.agent, result.session
    return result.kind, result.id


def _is_unanswered(result: ResultDocument) -> bool:
    turn = result.turn
    return turn is not None and bool(turn.question) and not turn.answered


def _to_file(groups: Iterable[list[ResultDocument]]) -> None:
    for group in groups:
        say(one_line(_heading(group[0]), _HEADING_CHARS_MAX))
        for result in group:
            line = [_when(result), result.placed_id, _flags(result, group[0])]
            if question := _question(result):
                line.append(one_line(question, _QUESTION_CHARS_MAX))
            say("  " + "  ".join(part for part in line if part))
            say(" " * _PASSAGE_INDENT + one_line(result.snippet, len(result.snippet)))
            if result.explain:
                say(" " * _PASSAGE_INDENT + why(result))


def _to_terminal(groups: Iterable[list[ResultDocument]]) -> None:
    from crystal_node.surfaces.cli.console.styled import columns, cut, wrapped  # lazy: not for a file

    width = columns()
    indent = min(_PASSAGE_INDENT, width - 1)
    room = width - indent
    lines: list[str] = []
    for number, group in enumerate(groups):
        if number:
            lines.append("")
        heading = one_line(_heading(group[0]), _HEADING_CHARS_MAX)
        lines.append(cut(heading, [(0, len(heading), "bold")], width))
        for result in group:
            lines += [cut(*head, width) for head in _heads(result, group[0], roomy=width >= _ROOMY_COLUMNS)]
            marks = [(start, end, "bold yellow") for start, end in result.marks]
            below = [*wrapped(printable(result.snippet), marks, room)]
            if result.explain:
                told = why(result)
                below += wrapped(told, [(0, len(told), "dim")], room)
            lines += [f"{' ' * indent}{line}" for line in below]
    say("\n".join(lines))


def _heads(
    result: ResultDocument, first: ResultDocument, *, roomy: bool
) -> list[tuple[str, list[tuple[int, int, str]]]]:
    """The lines above a passage."""
    from crystal_node.surfaces.cli.console.styled import joined

    flags = _flags(result, first)
    parts = [
        ("  ", ""),
        (_when(result), "cyan"),
        (f"  {result.placed_id}", "dim"),
        (f"  {flags}" if flags else "", "yellow"),
    ]
    question = one_line(_question(result), _QUESTION_CHARS_MAX)
    if not question:
        return [joined(*parts)]
    if roomy:
        return [joined(*parts, (f"  {question}", ""))]
    return [joined(*parts), joined((f"    {question}", ""))]


def _heading(result: ResultDocument) -> str:
    """Where it was said: project, tool, device and title; and the agent, where it has a name of its own."""
    if result.kind is ResultKind.DOCUMENT:
        parts = [" on ".join(part for part in (result.source, result.device_name) if part), result.path]
    else:
        parts = [
            f"memory: {result.memory}" if result.memory else "",
            result.project or result.repository,
            " on ".join(part for part in (result.source, result.device_name) if part),
            "" if result.agent in _NAMED_BY_TOOL or result.agent == result.source else result.agent,
            result.title,
        ]
    return " · ".join(part for part in parts if part) or result.kind.value


def _question(result: ResultDocument) -> str:
    """What the shown passage answers; "" where it is the question itself, or there is none."""
    if result.kind is ResultKind.DOCUMENT:
        return result.title
    if result.turn is None or result.role == "user":
        return ""
    return result.turn.question


def _flags(result: ResultDocument, first: ResultDocument) -> str:
    """What is particular about a result, in brackets; ``first`` is that of its heading."""
    turn = result.turn
    alone = result.kind is ResultKind.CONVERSATION and (turn is None or not turn.question)
    parts = [
        "no answer" if _is_unanswered(result) else "",
        result.role if alone or result.role == "thinking" else "",
        result.project if result.project != first.project and result.kind is ResultKind.CONVERSATION else "",
        "not shared yet" if result.provisional else "",
        "weak" if result.weak else "",
        f"again {_local(result.again_at)[:10]}" if result.again_at else "",
        f"and {len(result.alike)} similar" if result.alike else "",
    ]
    said = ", ".join(one_line(part, 60) for part in parts if part)
    return f"({said})" if said else ""


def _when(result: ResultDocument) -> str:
    """When the turn began, or the text was said, in this machine's zone."""
    moment = result.turn.began_at if result.turn is not None else result.created_at
    return _local(moment) if moment else "undated"


def _local(moment: str) -> str:
    """A moment to the minute in this machine's zone."""
    try:
        return datetime.fromisoformat(moment).astimezone().strftime("%Y-%m-%d %H:%M")
    except OverflowError:  # the last day of the calendar, east of Greenwich
        return moment[:16].replace("T", " ")
