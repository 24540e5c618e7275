"""What becomes of stored texts does not depend on the order in which they are replaced, and no place is lost."""

from hypothesis import given
from hypothesis import strategies as st

from crystal_mirror.operations import Capture, Piece
from crystal_node.capture.stored_redaction import BARE_MARK, Replacement, batches, settled
from tests.core.builders import NOW, apply, capture, new_replica, target

TEXTS = [f"text {letter}" for letter in "abcdefgh"]


def _left(becomes: dict[str, str | None], groups: list[list[str]]) -> dict[str, str]:
    """The text at each text's place, after all of it was written as one run of redaction writes it."""
    replica = new_replica()
    apply(replica, *(capture(text, session=text) for text in TEXTS))
    found = [Replacement(tuple((target(old), becomes[old]) for old in group)) for group in groups]
    for operations, _ in batches(settled(found, target)):
        apply(replica, *operations)
    rows = replica.database.rows(
        "SELECT o.session, c.text FROM occurrences o JOIN chunks c ON c.rowid = o.chunk"
    )
    assert replica.digest() == replica.recompute_digest()
    return {str(session): str(text) for session, text in rows}


def _last(becomes: dict[str, str | None], text: str) -> str:
    met = {text}
    while text in becomes:
        after = becomes[text]
        if after is None or after in met:
            return BARE_MARK
        met.add(after)
        text = after
    return text


def test_a_text_that_is_replaced_before_another_becomes_it_takes_no_place_along() -> None:
    b, a = "text b", "text a"
    assert _left({b: "text x", a: b}, [[b, a]])[a] == "text x"
    assert _left({b: None, a: b}, [[a], [b]]).get(a) == BARE_MARK


@given(
    becomes=st.dictionaries(
        st.sampled_from(TEXTS), st.none() | st.sampled_from([*TEXTS, "x", "y"]), min_size=1
    ),
    data=st.data(),
)
def test_no_place_is_lost_in_any_order(becomes: dict[str, str | None], data: st.DataObject) -> None:
    order = data.draw(st.permutations(sorted(becomes)))
    cuts = data.draw(st.lists(st.booleans(), min_size=len(order), max_size=len(order)))
    groups: list[list[str]] = [[]]
    for text, cut in zip(order, cuts, strict=True):
        groups[-1].append(text)
        if cut:
            groups.append([])
    left = _left(becomes, [group for group in groups if group])
    assert left == {text: _last(becomes, text) for text in TEXTS if becomes.get(text, "") is not None}


def test_a_piece_that_a_message_has_one_more_of_is_settled_as_well() -> None:
    more = Capture("agent", "s", "", "", "tool", (Piece("text b", "user", NOW, "m", 1),))
    found = [Replacement(((target("text a"), "x"),), (more,)), Replacement(((target("text b"), "y"),))]
    (piece,) = settled(found, target)[0].more[0].pieces
    assert piece.text == "y"
