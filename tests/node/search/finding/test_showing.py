"""A piece of a document is shown with its neighbours in the document; an old version of one is not shown beside the new."""

import pytest

from crystal_core.database import Database
from crystal_core.search.search import Searcher
from crystal_mirror.operations import Capture, Piece, PutDocument, PutSource
from crystal_node.base.errors import NoSuchEntry, UsageError
from crystal_node.search.conversation import TURN_PIECES_MAX
from crystal_node.search.finding.documents import ResultKind, ShowRequest
from crystal_node.search.finding.finder import shown
from tests.core.builders import NOW, apply, capture, content_hash, forget, new_replica, origin, remember

PIECES = tuple(f"{word} of the pump's handbook" for word in ("Cover", "Start", "Care", "Faults", "Index"))


def put(version: str, pieces: tuple[str, ...]) -> PutDocument:
    titles = tuple(f"Pump > {piece.split()[0]}" for piece in pieces)
    return PutDocument(
        "notes", "pumps/handbook.md", content_hash(version), NOW, "markdown", 0, len(pieces), pieces, titles
    )


def id_of(text: str) -> str:
    return content_hash(text).hex()


def test_a_piece_of_a_document_stands_between_its_neighbours() -> None:
    replica = new_replica()
    apply(replica, PutSource("notes", "", ("*.md",), (), NOW), put("1", PIECES))
    document = shown(replica.database, ShowRequest(id=id_of(PIECES[2]), before=1, after=5))
    assert (document.kind, document.source, document.path) == (
        ResultKind.DOCUMENT,
        "notes",
        "pumps/handbook.md",
    )
    assert document.title == "Pump > Care"
    assert [piece.text for piece in document.pieces] == list(PIECES[1:])
    assert [piece.asked for piece in document.pieces] == [False, True, False, False]
    (hit,) = Searcher(replica.database).search("faults", now_ms=NOW).hits
    assert (hit.kind, hit.path, hit.title) == ("document", "pumps/handbook.md", "Pump > Faults")


def test_what_pends_already_counts() -> None:
    replica = new_replica()
    apply(replica, PutSource("notes", "", ("*.md",), (), NOW), put("1", PIECES))
    newer = (*PIECES[:3], "Repairs of the pump's handbook")
    replica.index_provisional(origin(900), put("2", newer))
    document = shown(replica.database, ShowRequest(id=id_of(PIECES[2]), before=0, after=2))
    assert [piece.text for piece in document.pieces] == [PIECES[2], newer[3]]
    assert [hit.text for hit in Searcher(replica.database).search("faults repairs", now_ms=NOW).hits] == [
        newer[3]
    ]


def test_what_was_forgotten_here_is_not_shown() -> None:
    replica = new_replica()
    apply(replica, capture("a secret and more"), capture("something else", message="2", created_at=NOW + 1))
    replica.index_provisional(origin(900), forget("a secret and more"))
    around = shown(replica.database, ShowRequest(id=id_of("something else"), before=5, after=5))
    assert [piece.text for piece in around.pieces] == ["something else"]
    with pytest.raises(NoSuchEntry):
        shown(replica.database, ShowRequest(id=id_of("a secret and more")))


def test_the_beginning_of_two_ids_is_no_id() -> None:
    replica = new_replica()
    apply(replica, capture("one"), capture("two", message="2"))
    for text in ("one", "two"):
        replica.database.run(
            "UPDATE chunks SET id = CAST(x'00112233' || substr(id, 5) AS BLOB) WHERE text = ?", (text,)
        )
    with pytest.raises(UsageError, match="more than one"):
        shown(replica.database, ShowRequest(id="00112233"))


def said(*spoken: tuple[str, str], session: str = "session") -> Capture:
    """A conversation of these roles and texts, a second apart."""
    pieces = tuple(
        Piece(text, role, NOW + 1000 * number, f"{session}-{number}", 0)
        for number, (role, text) in enumerate(spoken)
    )
    return Capture("agent", session, "projects/crystal", "example.org/crystal", "claude-code", pieces)


def turn_shown(database: Database, text: str) -> list[str]:
    return [piece.text for piece in shown(database, ShowRequest(id=id_of(text), turn=True)).pieces]


def test_a_turn_is_shown_from_its_question_to_its_answer() -> None:
    replica = new_replica()
    apply(
        replica,
        said(
            ("assistant", "Hello."),
            ("user", "How often may it retry?"),
            ("thinking", "The budget stands in the settings."),
            ("assistant", "Let me check."),
            ("assistant", "Three times in an hour."),
            ("user", "Thanks."),
            ("assistant", "You are welcome."),
        ),
    )
    turn = ["How often may it retry?", "Let me check.", "Three times in an hour."]
    for text in turn:
        assert turn_shown(replica.database, text) == turn
    assert turn_shown(replica.database, "Thanks.") == ["Thanks.", "You are welcome."]
    assert turn_shown(replica.database, "Hello.") == ["Hello."], "nobody had asked"
    thought = "The budget stands in the settings."
    assert turn_shown(replica.database, thought) == [turn[0], thought, *turn[1:]]


def test_a_turn_of_hundreds_of_pieces_is_shown_with_its_ends() -> None:
    replica = new_replica()
    steps = [("assistant", f"Step {number} is done.") for number in range(400)]
    apply(replica, said(("user", "Do it all."), *steps, ("user", "And then?")))
    for number in (0, 1, 200, 398, 399):
        texts = turn_shown(replica.database, f"Step {number} is done.")
        assert len(texts) == TURN_PIECES_MAX
        assert (texts[0], texts[-1]) == ("Do it all.", "Step 399 is done.")
        assert f"Step {number} is done." in texts
        assert len(set(texts)) == len(texts)


def test_a_memory_and_a_piece_of_a_document_have_no_turn() -> None:
    replica = new_replica()
    apply(replica, PutSource("notes", "", ("*.md",), (), NOW), put("1", PIECES), remember("It is oiled."))
    assert turn_shown(replica.database, PIECES[2]) == [PIECES[2]]
    assert turn_shown(replica.database, "It is oiled.") == ["It is oiled."]
