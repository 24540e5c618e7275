"""A text that was said in several projects is opened where it was found, and nowhere else unasked."""

import pytest

from crystal_core.replica import Replica
from crystal_core.search.filters import Scope
from crystal_core.search.search import Searcher
from crystal_mirror.operations import Capture, Piece, PutDocument, PutSource
from crystal_node.base.errors import NoSuchEntry, UsageError
from crystal_node.base.lookup import find_text, place_in
from crystal_node.search.conversation import transcript
from crystal_node.search.finding.documents import ResultKind, ShowDocument, ShowRequest
from crystal_node.search.finding.finder import shown
from crystal_node.search.places import newest_place_to_name, place_digits, place_to_name
from tests.core.builders import NOW, apply, content_hash, forget, new_replica, origin, remember

ANSWER = "Nine tries it is."
ID = content_hash(ANSWER).hex()
OURS, THEIRS = ("work/ours", ""), ("", "example.org/acme/theirs")


def said(session: str, question: str, project: str, repository: str = "", at: int = NOW) -> Capture:
    pieces = (
        Piece(question, "user", at, f"{session}-1", 0),
        Piece(ANSWER, "assistant", at + 1000, f"{session}-2", 0),
    )
    return Capture("agent", session, project, repository, "claude-code", pieces)


OUR = said("our", "How often may the import retry?", "work/ours")
THEIR = said("their", "How often does Acme pay?", "work/theirs", "example.org/acme/theirs", NOW + 60_000)


def opened(replica: Replica, given: str = ID, here: tuple[str, str] | None = None) -> ShowDocument:
    return shown(replica.database, ShowRequest(id=given, turn=True), here)


def both() -> Replica:
    replica = new_replica()
    apply(replica, OUR, THEIR)
    return replica


def test_an_id_alone_opens_no_project_where_it_stands_in_two() -> None:
    replica = both()
    with pytest.raises(UsageError, match="2 projects") as raised:
        opened(replica)
    for session, project in (("our", "work/ours"), ("their", "example.org/acme/theirs")):
        named = f"{ID[:12]}@{place_digits('conversation', 'agent', session)} ({project}, "
        assert named in (raised.value.hint or "")
    with pytest.raises(UsageError, match="2 projects"):
        transcript(replica.database, ID)


@pytest.mark.parametrize("short", [True, False])
@pytest.mark.parametrize("conversation", [OUR, THEIR])
def test_a_place_behind_the_id_opens_that_conversation(conversation: Capture, *, short: bool) -> None:
    place = place_digits("conversation", "agent", conversation.session)
    given = f"{ID[:12] if short else ID}@{place}"
    found = opened(both(), given)
    assert found.session == conversation.session
    assert [piece.text for piece in found.pieces] == [piece.text for piece in conversation.pieces]
    assert found.pieces[1].placed_id == f"{ID[:12]}@{place}"
    assert "@" not in found.pieces[0].placed_id, "the question was asked once"


@pytest.mark.parametrize(("here", "session"), [(OURS, "our"), (THEIRS, "their")])
def test_within_a_project_its_own_is_opened(here: tuple[str, str], session: str) -> None:
    replica = both()
    assert opened(replica, here=here).session == session
    assert transcript(replica.database, ID, here=here).session == session


def test_from_a_third_project_nothing_is_opened() -> None:
    with pytest.raises(UsageError):
        opened(both(), here=("work/third", ""))


def test_within_one_project_the_latest_conversation_is_opened() -> None:
    replica = new_replica()
    apply(replica, OUR, said("our-2", "And the export?", "work/ours", at=NOW + 60_000))
    assert opened(replica).session == "our-2"
    assert opened(replica, f"{ID}@{place_digits('conversation', 'agent', 'our')}").session == "our"


def test_a_pending_conversation_is_a_place_too() -> None:
    replica = new_replica()
    apply(replica, OUR)
    replica.index_provisional(origin(900), THEIR)
    with pytest.raises(UsageError):
        opened(replica)
    assert opened(replica, here=THEIRS).pieces[0].text == THEIR.pieces[0].text


def test_a_search_names_the_place_of_its_hit_only_where_there_are_others() -> None:
    replica = both()
    (hit,) = Searcher(replica.database).search("retry import", now_ms=NOW).hits
    assert (hit.id, hit.session) == (ID, "our")
    place = place_to_name(replica.database, hit.chunk, hit.kind, hit.agent, hit.session)
    assert opened(replica, f"{hit.id}@{place}").session == "our"
    alone = find_text(replica.database, content_hash(OUR.pieces[0].text).hex())
    assert place_to_name(replica.database, alone.chunk, "conversation", "agent", "our") == ""
    assert newest_place_to_name(replica.database, alone.chunk) == ""
    assert newest_place_to_name(replica.database, hit.chunk) == place_digits("conversation", "agent", "their")


def test_a_memory_is_opened_by_itself_where_its_words_were_said_in_another_project() -> None:
    replica = new_replica()
    apply(replica, THEIR, remember(ANSWER))
    found = opened(replica)
    assert (found.kind, found.session, len(found.pieces)) == (ResultKind.MEMORY, "", 1)
    assert opened(replica, here=THEIRS).session == "their"
    (hit,) = Searcher(replica.database).search("nine tries", now_ms=NOW, scope=Scope(kind="memory")).hits
    place = place_to_name(replica.database, hit.chunk, hit.kind, "", "")
    assert place
    assert opened(replica, f"{hit.id}@{place}").session == ""


def test_a_document_and_a_conversation_are_two_places() -> None:
    replica = new_replica()
    put = PutDocument(
        "notes",
        "retries.md",
        content_hash("1"),
        NOW + 90_000,
        "markdown",
        0,
        2,
        ("Retries", ANSWER),
        ("", ""),
    )
    apply(replica, OUR, PutSource("notes", "", ("*.md",), (), NOW), put)
    with pytest.raises(UsageError) as raised:
        opened(replica)
    assert "notes: retries.md" in (raised.value.hint or "")
    found = opened(replica, f"{ID}@{place_digits('document', 'notes', 'retries.md')}")
    assert (found.kind, found.path) == (ResultKind.DOCUMENT, "retries.md")
    assert opened(replica, here=OURS).session == "our"


def test_what_was_said_twice_in_a_conversation_is_opened_where_it_was_said_last() -> None:
    replica = new_replica()
    pieces = tuple(
        Piece(text, role, NOW + 1000 * number, f"m{number}", 0)
        for number, (role, text) in enumerate(
            [("user", "Which budget?"), ("assistant", ANSWER), ("user", "Still?"), ("assistant", ANSWER)]
        )
    )
    apply(replica, Capture("agent", "long", "work/ours", "", "claude-code", pieces))
    found = opened(replica)
    assert [piece.text for piece in found.pieces] == ["Still?", ANSWER]
    assert [piece.hit for piece in transcript(replica.database, ID).pieces] == [False, False, False, True]


def test_another_place_is_none() -> None:
    with pytest.raises(NoSuchEntry, match="does not stand"):
        opened(both(), f"{ID}@00000000")
    for given in (f"{ID}@", f"{ID}@123", f"{ID}@zzzzzzzz", f"{ID}@@0000000", f"@{ID}"):
        with pytest.raises(UsageError, match="is no id"):
            place_in(given)


def test_forgotten_words_have_no_place() -> None:
    replica = both()
    replica.index_provisional(origin(900), forget(ANSWER))
    with pytest.raises(NoSuchEntry):
        opened(replica, here=OURS)
