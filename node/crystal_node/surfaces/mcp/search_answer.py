"""The answer of a search as the one text that a model reads, within its tokens: the most useful result first, with most room.

A result has a line of Crystal's own (date, project, device, tool, id) and then, fenced, the conversation's title where there is
room, the question in a line and the passage of the answer. What is left out is said, and how to get it. There is no second,
structured copy: a model would pay for both, or be handed the one without fences.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from crystal_node.base.agent_names import agent_alias
from crystal_node.base.wording import counted, one_line
from crystal_node.search.finding.documents import NEAREST, ResultDocument, ResultKind, SearchDocument
from crystal_node.search.titles import TITLE_CHARS_MAX
from crystal_node.search.tokens import MARK, cut_to_tokens, estimated_tokens
from crystal_node.surfaces.mcp.arguments import HITS_MAX, SearchArguments
from crystal_node.surfaces.mcp.budget import Need, allotted
from crystal_node.surfaces.mcp.fence import Fence, name, visible

QUESTION_TOKENS = 60
PASSAGE_TOKENS_MIN = 60
"""A result with less of its passage is left to the next call."""
RELEVANCE_MIN = 0.1
"""A weak result that answers in fewer cases is left out."""
_NOTE_CHARS = 200
_ENDING_TOKENS = 70
"""For what is said behind the results."""
SLACK = 20
"""Another answer's fence may cost so much more."""
_LED_BY = "… "
_LEAD_WORDS = 8
"""Words of a snippet by which its place in the text is found."""


@dataclass(frozen=True, slots=True)
class _Shown:
    """A result as it is shown. ``label`` stands before the passage; ``id`` ends the head. ``title``: the conversation's, as a
    line ahead of the question; "" where the question says it already."""

    head: str
    id: str
    title: str
    question: str
    label: str
    text: str
    snippet: str

    def frame(self, fence: Fence) -> int:
        """Tokens of all but the passage."""
        lines = ["", f"{HITS_MAX}. {self.head}{self.id}", fence.around(""), self.question, self.label, ""]
        return estimated_tokens("\n".join(lines))

    @property
    def title_tokens(self) -> int:
        """What the title costs."""
        return estimated_tokens(self.title) + 1 if self.title else 0


def search_text(found: SearchDocument, given: SearchArguments) -> str:
    """The whole answer. It costs at most ``given.max_tokens``."""
    results = [
        each for each in found.results if given.nearest or not each.weak or each.relevance >= RELEVANCE_MIN
    ]
    unlikely = len(found.results) - len(results)
    if not results or (found.weak and not given.nearest):
        return cut_to_tokens(_nothing(found, given), given.max_tokens)
    first = {(each.agent, each.session): number for number, each in reversed(list(enumerate(results)))}
    shown = [
        _shown(each, is_first=first[each.agent, each.session] == number)
        for number, each in enumerate(results)
    ]
    fence = Fence([text for each in shown for text in (each.title, each.question, each.text)])
    intro = fence.explanation
    if found.note:
        intro += f"\nNote: {one_line(found.note, _NOTE_CHARS)}."
    needs = [_need(each, fence) for each in shown]
    room = given.max_tokens - estimated_tokens(intro) - _ENDING_TOKENS
    shares = allotted(needs, room)
    if not shares:
        wanted = given.max_tokens - room + needs[0].least + SLACK
        return cut_to_tokens(
            f"{counted(len(results), 'result')} found, none within {given.max_tokens} tokens: give max_tokens {wanted}.",
            given.max_tokens,
        )
    lines = [intro]
    is_cut = False
    for number, (each, share) in enumerate(zip(shown, shares, strict=False), 1):
        room = share - each.frame(fence)
        text = passage(each.text, each.snippet, room)
        is_titled = estimated_tokens(text) + each.title_tokens <= room
        is_cut = is_cut or text != each.text
        title = each.title if is_titled else ""
        body = "\n".join(part for part in (title, each.question, each.label + text) if part)
        head = f"{number}. {each.head}{each.id}"
        lines += ["", head, fence.around(body)]
    # Counted among all results: those that fit badly stand between the others.
    following = (
        found.results.index(results[len(shares)]) if len(shares) < len(results) else len(found.results)
    )
    left_out = _left_out(
        found, given, following, unlikely, is_cut=is_cut, is_short=len(shares) < len(results)
    )
    return "\n".join([*lines, *left_out])


def _nothing(found: SearchDocument, given: SearchArguments) -> str:
    why = "; ".join(part for part in found.note.split("; ") if part != NEAREST)
    note = f" Note: {one_line(why, _NOTE_CHARS)}." if why else ""
    if not found.results:
        what = "There is nothing more." if given.offset else "Nothing is recorded that fits."
        return f"{what}{note}"
    return f"Nothing recorded is likely to answer this; nearest true gives what comes nearest.{note}"


def _left_out(
    found: SearchDocument,
    given: SearchArguments,
    following: int,
    unlikely: int,
    *,
    is_cut: bool,
    is_short: bool,
) -> list[str]:
    """What is not in the answer, and how to get it."""
    said: list[str] = []
    if is_cut:
        said.append("… marks what is cut: crystal_open with the id gives it whole.")
    if is_short:
        said.append(
            f"{counted(len(found.results) - following, 'result')} left out: offset {given.offset + following}, "
            "or a larger max_tokens."
        )
    elif found.more:
        said.append(f"There are more: offset {given.offset + following}.")
    if unlikely and not is_short:
        said.append(f"{unlikely} unlikely left out: nearest true gives them.")
    return ["", " ".join(said)] if said else []


def _shown(found: ResultDocument, *, is_first: bool) -> _Shown:
    """``is_first``: no result before it is of the same conversation; the others do without its title."""
    turn = found.turn
    text = visible(found.text)
    question, label = "", ""
    if turn is not None and found.role == "user":
        label = "Asked: "
    elif turn is not None:
        asked = one_line(visible(turn.question), len(turn.question))
        question = cut_to_tokens(f"Asked: {asked}", QUESTION_TOKENS) if asked else ""
        label = "Answered: " if turn.answered else "Said: "
    asked = "" if turn is None else turn.question
    is_told = found.kind is ResultKind.CONVERSATION and is_first and found.title
    is_asked = found.title.rstrip("…") in one_line(asked, len(asked))
    title = (
        "" if is_asked or not is_told else f"Conversation: {visible(one_line(found.title, TITLE_CHARS_MAX))}"
    )
    return _Shown(
        _head(found), f" | id {found.placed_id}", title, question, label, text, visible(found.snippet)
    )


def _need(each: _Shown, fence: Fence) -> Need:
    frame, text = each.frame(fence), estimated_tokens(each.text)
    return Need(frame + min(text, PASSAGE_TOKENS_MIN), frame + text + each.title_tokens)


def _head(found: ResultDocument) -> str:
    turn = found.turn
    parts = [moment(found.created_at if turn is None or not turn.began_at else turn.began_at)]
    if found.kind is ResultKind.MEMORY:
        parts.append(f"memory, {name(found.memory or '')}")
    elif found.kind is ResultKind.DOCUMENT:
        parts += [f"document {name(found.path)}", f"title {name(found.title)}" if found.title else ""]
    parts += origin(found.project, found.repository, found.device_name, found.source, found.agent)
    if turn is None and found.role:
        parts.append(f"role {name(found.role)}")
    if turn is not None and not turn.answered:
        parts.append("unanswered")
    if found.again_at:
        parts.append(f"again {moment(found.again_at)}")
    if turn is not None and turn.messages > 2:
        parts.append(f"{turn.messages} messages")
    return " | ".join(part for part in parts if part)


def origin(project: str, repository: str, device: str, source: str, agent: str) -> Sequence[str]:
    """Where a text comes from, in a head line's parts. An agent with its tool's name is not shown twice."""
    own = "" if source and source in (agent, agent_alias(agent)) else agent
    named = (("project", repository or project), ("device", device), ("tool", source), ("agent", own))
    return [f"{what} {name(which)}" for what, which in named if which]


def moment(iso: str) -> str:
    """A moment of an answer to the minute: "2026-03-14T13:05Z"."""
    return f"{iso[:16]}Z" if len(iso) >= 16 else "undated"


def passage(text: str, snippet: str, tokens: int) -> str:
    """As much of the text as fits, from what the query found on; from further ahead, where the rest of it leaves room."""
    if estimated_tokens(text) <= tokens:
        return text
    begin = _place(text, snippet)
    room = tokens - estimated_tokens(_LED_BY)
    if begin and estimated_tokens(text[:begin]) <= room // 3:
        begin = 0
    if not begin:
        return cut_to_tokens(text, tokens)
    starts = [found.start() for found in re.finditer(r"\S+", text[:begin])]
    low, high = 0, len(starts)
    while low < high:
        middle = (low + high) // 2
        if estimated_tokens(text[starts[middle] :]) <= room:
            high = middle
        else:
            low = middle + 1
    begin = starts[low] if low < len(starts) else begin
    return (_LED_BY + cut_to_tokens(text[begin:], room)) if room > estimated_tokens(MARK) else ""


def _place(text: str, snippet: str) -> int:
    """Where a snippet begins in its text; 0 if it is not found."""
    words = snippet.strip("… ").split()[:_LEAD_WORDS]
    found = re.search(r"\s+".join(map(re.escape, words)), text) if words else None
    return 0 if found is None else found.start()
