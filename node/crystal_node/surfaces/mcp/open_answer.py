"""A text with what stands around it as the one text that a model reads, within its tokens.

Of a turn, what was asked for, the question and the end of the answer come first; then what is nearest. Each piece has a line of
Crystal's own (who, when, id) and stands in a fence of its own, so that no text can begin another person's words.
"""

from collections.abc import Sequence

from crystal_core.search.turns import UNSAID
from crystal_node.base.wording import counted
from crystal_node.search.finding.documents import PieceDocument, ResultKind, ShowDocument
from crystal_node.search.tokens import cut_to_tokens, estimated_tokens
from crystal_node.surfaces.mcp.arguments import OpenArguments, Whole
from crystal_node.surfaces.mcp.budget import Need, allotted
from crystal_node.surfaces.mcp.fence import Fence, name, visible
from crystal_node.surfaces.mcp.search_answer import SLACK, moment, origin

PIECE_TOKENS_MIN = 250
"""A piece that is longer may be cut to as many; less of it is not worth its place."""
_ENDING_TOKENS = 90
_GAP_TOKENS = 12


def open_text(found: ShowDocument, given: OpenArguments) -> str:
    """The whole answer. It costs at most ``given.max_tokens``."""
    pieces = [piece for piece in found.pieces if piece.asked or piece.role not in UNSAID]
    texts = {number: visible(piece.text) for number, piece in enumerate(pieces)}
    fence = Fence(texts.values())
    heads = {number: _head(piece, alone=len(pieces) == 1) for number, piece in enumerate(pieces)}
    intro = f"{fence.explanation}\n{_about(found)}"
    order = _order(pieces)
    needs: list[Need] = []
    frames: dict[int, int] = {}
    for number in order:
        frames[number] = estimated_tokens(f"\n\n{heads[number]}\n{fence.around('')}\n") + _GAP_TOKENS
        size = estimated_tokens(texts[number])
        needs.append(Need(frames[number] + min(size, PIECE_TOKENS_MIN), frames[number] + size))
    room = given.max_tokens - estimated_tokens(intro) - _ENDING_TOKENS
    # What was asked for is shown even where little of it has room.
    needs[0] = Need(min(needs[0].least, max(room, frames[order[0]] + 1)), needs[0].most)
    shares = dict(zip(order, allotted(needs, room), strict=False))
    if not shares:
        wanted = given.max_tokens - room + needs[0].least + SLACK
        return cut_to_tokens(
            f"{given.max_tokens} tokens are too few to show it: give max_tokens {wanted}.", given.max_tokens
        )
    lines, is_cut, last = [intro], False, -1
    for number in sorted(shares):
        if number > last + 1:
            lines += ["", f"({number - last - 1} left out)"]
        text = cut_to_tokens(texts[number], shares[number] - frames[number])
        is_cut = is_cut or text != texts[number]
        lines += ["", heads[number], fence.around(text)]
        last = number
    if last + 1 < len(pieces):
        lines += ["", f"({len(pieces) - last - 1} left out)"]
    return "\n".join([*lines, *_left_out(found, given, len(pieces) - len(shares), is_cut=is_cut)])


def _order(pieces: Sequence[PieceDocument]) -> list[int]:
    """The pieces by what they are worth: what was asked for, the question, the last words, then the nearest."""
    asked = next((number for number, piece in enumerate(pieces) if piece.asked), 0)
    first = next((number for number in range(asked, -1, -1) if pieces[number].role == "user"), asked)
    ahead = next(
        (number for number in range(asked + 1, len(pieces)) if pieces[number].role == "user"), len(pieces)
    )
    near = sorted(range(len(pieces)), key=lambda number: (abs(number - asked), number))
    return list(dict.fromkeys([asked, first, ahead - 1, *near]))


def _head(piece: PieceDocument, *, alone: bool) -> str:
    mark = "" if alone or not piece.asked else "the one asked for"
    parts = (
        name(piece.role) if piece.role else "",
        moment(piece.created_at),
        mark,
        f"id {piece.placed_id}",
    )
    return " | ".join(part for part in parts if part)


def _about(found: ShowDocument) -> str:
    what = f"memory, {name(found.memory or '')}" if found.kind is ResultKind.MEMORY else found.kind.value
    parts = [what]
    if found.kind is ResultKind.DOCUMENT:
        parts = [f"document {name(found.path)}", f"title {name(found.title)}" if found.title else ""]
    parts += origin(found.project, found.repository, found.device_name, found.source, found.agent)
    if found.session:
        parts.append(f"session {name(found.session)}")
    return " | ".join(part for part in parts if part)


def _left_out(found: ShowDocument, given: OpenArguments, missing: int, *, is_cut: bool) -> list[str]:
    """What is not in the answer, and how to get it."""
    said: list[str] = []
    if is_cut or missing:
        what = " and ".join(
            part
            for part in (counted(missing, "piece") if missing else "", "what … marks" if is_cut else "")
            if part
        )
        said.append(
            f"Left out for room: {what}; a larger max_tokens, or before and after of a nearer id, gives it."
        )
    if found.before or found.after:
        how = (
            "whole conversation, or "
            if given.whole is Whole.TURN and not given.before and not given.after
            else ""
        )
        said.append(
            f"Around it: {found.before:,} before, {found.after:,} behind; {how}before and after give them."
        )
    return ["", " ".join(said)] if said else []
