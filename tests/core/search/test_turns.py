"""What is found as one: a question with its answer, and what never stands for it."""

import random
from collections.abc import Sequence

import pytest

from crystal_core.replica import Replica
from crystal_core.search.by import By
from crystal_core.search.filters import Scope
from crystal_core.search.hits import Hit, SearchResult
from crystal_core.search.search import Searcher
from crystal_core.search.turns import SPANS
from crystal_mirror.operations import Capture, Piece
from tests.core.builders import DAY, NOW, apply, content_hash, forget, new_replica, origin, remember

Said = tuple[str, str]
BEGUN = NOW - 30 * DAY
QUESTION = "what did we decide about the retry budget?"
DECISION = "We decided on nine tries, with jitter between them."


def conversation(
    *said: Said, session: str = "s", begun: int = BEGUN, project: str = "work/uploader", step: int = 1000
) -> Capture:
    """Messages of one piece each, `step` milliseconds apart."""
    pieces = tuple(
        Piece(text, role, begun + number * step, f"{session}-{number}", 0)
        for number, (role, text) in enumerate(said)
    )
    return Capture("agent", session, project, "", "claude-code", pieces)


def memory_of(*conversations: Capture) -> Replica:
    replica = new_replica()
    apply(replica, *conversations)
    return replica


def search(
    replica: Replica, query: str, *, by: By = By.TURN, thinking: bool = False, **scope: str
) -> SearchResult:
    return Searcher(replica.database).search(
        query,
        now_ms=NOW,
        by=by,
        thinking=thinking,
        scope=Scope(**scope),  # type: ignore[arg-type]
    )


def shown(hits: Sequence[Hit]) -> list[tuple[str, str]]:
    return [(hit.turn.question if hit.turn else "", hit.text) for hit in hits]


def test_a_hit_shows_the_question_and_the_answer_and_not_what_was_said_before_looking() -> None:
    replica = memory_of(
        conversation(
            ("user", QUESTION),
            ("thinking", "the retry budget is in the notes, I think"),
            ("assistant", "Let me check the code and the notes on the retry budget."),
            ("assistant", DECISION),
            ("user", "thanks"),
            ("assistant", "You're welcome."),
        )
    )
    (hit,) = search(replica, "retry budget").hits
    assert hit.turn is not None
    assert (hit.turn.question, hit.text, hit.role) == (QUESTION, DECISION, "assistant")
    assert hit.turn.answered
    assert (hit.turn.question_id, hit.turn.answer_id, hit.turn.messages) == (
        content_hash(QUESTION).hex(),
        content_hash(DECISION).hex(),
        3,
    )
    assert (hit.turn.began_at, hit.turn.ended_at) == (BEGUN, BEGUN + 3000)


def test_different_questions_with_one_answer_are_all_found_and_one_that_is_repeated_once() -> None:
    asked = ["move the uploader to port 8080", "rename the uploader's queue", "rename the uploader's queue"]
    replica = memory_of(
        *(
            conversation(("user", words), ("assistant", "Done."), session=f"s-{number}")
            for number, words in enumerate(asked)
        )
    )
    found = shown(search(replica, "uploader").hits)
    assert sorted(question for question, _ in found) == asked[:2]
    assert [text for _, text in found] == ["Done.", found[1][0]], "of the second one the question is shown"


def test_thinking_is_found_if_asked_for_also_by_its_role() -> None:
    replica = memory_of(
        conversation(("user", "why is it slow"), ("thinking", "an index is missing"), ("assistant", "Fixed."))
    )
    assert search(replica, "index missing").hits == ()
    assert [hit.text for hit in search(replica, "index missing", thinking=True).hits] == [
        "an index is missing"
    ]
    assert [hit.text for hit in search(replica, "index missing", role="thinking").hits] == [
        "an index is missing"
    ]


@pytest.mark.parametrize(
    "reply",
    [
        (),
        (("assistant", "Let me look at the retry budget."),),
        (("assistant", "I don't have any record of the retry budget."),),
        (("thinking", "the retry budget, hm"),),
    ],
)
def test_a_question_that_nobody_answered_stands_behind_what_answers(reply: tuple[Said, ...]) -> None:
    replica = memory_of(
        conversation(("user", QUESTION), *reply, session="echo", begun=NOW - DAY),
        conversation(
            ("user", "settle the budget for us"),
            ("assistant", DECISION + " That is the budget."),
            session="old",
        ),
        *(conversation(("user", f"grease winch {number}"), session=f"w{number}") for number in range(9)),
    )
    hits = search(replica, QUESTION).hits
    assert [hit.session for hit in hits] == ["old", "echo"]
    assert [hit.turn.answered for hit in hits if hit.turn] == [True, False]
    assert hits[1].weak and not hits[1].relevance


def test_a_question_asked_three_times_is_found_with_the_answer_it_got_once() -> None:
    replica = memory_of(
        conversation(("user", QUESTION), ("assistant", DECISION), session="first"),
        conversation(("user", QUESTION), ("assistant", "Let me see."), session="second", begun=NOW - 2 * DAY),
        conversation(("user", QUESTION), session="third", begun=NOW - DAY),
    )
    best = search(replica, QUESTION).hits[0]
    assert (best.session, best.text) == ("first", DECISION)


def test_pieces_of_one_message_are_one_question_and_consecutive_messages_are_not() -> None:
    pieces = (
        Piece("a long prompt on the crane", "user", BEGUN, "m", 0),
        Piece("and its second half on the winch", "user", BEGUN, "m", 1),
        Piece("The crane was greased.", "assistant", BEGUN + 1, "a", 0),
        Piece("one more thing on the crane", "user", BEGUN + 2, "m2", 0),
        Piece("and another on the crane", "user", BEGUN + 3, "m3", 0),
        Piece("Both done for the crane.", "assistant", BEGUN + 4, "b", 0),
    )
    replica = memory_of(Capture("agent", "s", "work", "", "claude-code", pieces))
    found = {hit.text: hit.turn for hit in search(replica, "crane").hits}
    first = found["The crane was greased."]
    assert first is not None and (first.question, first.messages) == ("a long prompt on the crane", 3)
    last = found["Both done for the crane."]
    assert last is not None and (last.question, last.messages) == ("and another on the crane", 2)
    alone = found["one more thing on the crane"]
    assert alone is not None and not alone.answered


def test_where_no_person_spoke_each_message_stands_alone() -> None:
    replica = memory_of(
        conversation(("assistant", "the crane report, first part"), ("assistant", "the crane report, rest"))
    )
    hits = search(replica, "crane report").hits
    assert {(hit.text, hit.turn.question if hit.turn else None) for hit in hits} == {
        ("the crane report, first part", ""),
        ("the crane report, rest", ""),
    }


def test_without_times_the_order_of_recording_counts() -> None:
    pieces = tuple(
        Piece(text, role, 0, f"m{number}", 0)
        for number, (role, text) in enumerate(
            (
                ("user", "who greases the crane"),
                ("assistant", "Ingrid does."),
                ("user", "and the winch"),
                ("assistant", "Per."),
            )
        )
    )
    replica = memory_of(Capture("agent", "s", "work", "", "claude-code", pieces))
    assert shown(search(replica, "crane").hits) == [("who greases the crane", "Ingrid does.")]
    assert shown(search(replica, "winch").hits) == [("and the winch", "Per.")]


def test_pending_messages_belong_to_the_turn_that_they_continue() -> None:
    replica = memory_of(conversation(("user", "who greases the crane"), ("assistant", "Let me ask.")))
    pending = Capture(
        "agent",
        "s",
        "work/uploader",
        "",
        "claude-code",
        (Piece("Ingrid does.", "assistant", BEGUN + 5000, "late", 0),),
    )
    replica.index_provisional(origin(7), pending)
    (hit,) = search(replica, "crane").hits
    assert (hit.text, hit.provisional) == ("Ingrid does.", True)
    assert hit.turn is not None and hit.turn.answered and hit.turn.messages == 3


def test_what_was_forgotten_is_in_no_turn() -> None:
    replica = memory_of(conversation(("user", QUESTION), ("assistant", DECISION)))
    replica.index_provisional(origin(7), forget(DECISION))
    for hit in search(replica, "retry budget").hits:
        assert DECISION not in hit.text
    apply(replica, forget(QUESTION))
    assert all(
        QUESTION not in (hit.turn.question if hit.turn else "")
        for hit in search(replica, "tries jitter").hits
    )


def test_an_answer_of_another_project_is_not_shown_in_this_one() -> None:
    """A session may move on to another project in the middle of a turn."""
    replica = memory_of(
        conversation(("user", QUESTION), project="work/uploader"),
        conversation(
            ("assistant", "the client's secret budget"), project="clients/secret", begun=BEGUN + 5000
        ),
    )
    found = search(replica, "retry budget", project="work/uploader").hits
    assert [hit.text for hit in found] == [QUESTION]


def test_the_words_of_another_project_are_in_no_part_of_a_hit() -> None:
    secret = "confidential merger of Acme and Bolt: what retry budget do we take?"
    replica = memory_of(
        conversation(("user", secret), project="work/client"),
        conversation(("assistant", DECISION), project="work/mine", begun=BEGUN + 5000),
    )
    found = Searcher(replica.database).search(
        "tries with jitter", now_ms=NOW, scope=Scope(projects=(("work/mine", ""),))
    )
    assert [hit.text for hit in found.hits] == [DECISION]
    assert "confidential" not in repr(found)
    assert content_hash(secret).hex() not in repr(found)


def test_equally_named_folders_of_different_repositories_are_different_projects() -> None:
    pieces = (Piece("The client's retry budget is secret.", "assistant", BEGUN, "m", 0),)
    replica = memory_of(Capture("agent", "s", "…/app/src", "host/client/secret", "claude-code", pieces))
    mine = Scope(projects=(("…/app/src", "host/me/mine"),))
    assert Searcher(replica.database).search("retry budget", now_ms=NOW, scope=mine).hits == ()
    mine = Scope(projects=(("…/app/src", ""),))
    assert Searcher(replica.database).search("retry budget", now_ms=NOW, scope=mine).hits == ()


def test_an_answer_is_found_behind_any_number_of_thoughts() -> None:
    thoughts = [("thinking", f"quorum lease quorum lease {number}") for number in range(90)]
    replica = memory_of(
        conversation(("user", "settle it"), *thoughts, ("assistant", "done"), session="loud"),
        conversation(
            ("user", "which lease"),
            ("assistant", "A lease by quorum, with a long explanation of its reasons."),
        ),
    )
    assert "s" in {hit.session for hit in search(replica, "quorum lease").hits}
    assert "s" in {hit.session for hit in search(replica, "quorum lease", by=By.MESSAGE).hits}


def test_a_memory_is_found_behind_later_thoughts_of_the_same_words() -> None:
    replica = memory_of(
        *(conversation(("thinking", "tabs are four wide"), session=f"t{n}") for n in range(12))
    )
    apply(replica, remember("tabs are four wide", "preference", created_at=BEGUN - DAY))
    assert [hit.category for hit in search(replica, "tabs four wide").hits] == ["preference"]


def test_a_turn_whose_answer_was_forgotten_is_unanswered() -> None:
    replica = memory_of(
        conversation(
            ("user", QUESTION),
            ("assistant", "Let me read the notes about the retry budget."),
            ("assistant", DECISION),
        )
    )
    replica.index_provisional(origin(7), forget(DECISION))
    assert [hit.turn.answered for hit in search(replica, "retry budget").hits if hit.turn] == [False]


@pytest.mark.parametrize("seed", range(6))
def test_pages_hold_every_turn_once_also_where_the_latest_is_put_first(seed: int) -> None:
    from tests.core.meanings import MeaningEmbedder, set_model

    embedder, generator, replica = MeaningEmbedder(), random.Random(seed), new_replica()
    apply(
        replica,
        *(
            conversation(
                ("user", f"the port of the {generator.choice(['relay', 'core', 'page'])} {number}"),
                (
                    "assistant",
                    f"The port of the relay {generator.choice(['is', 'changed to', 'was'])} {8000 + number}.",
                ),
                session=f"s{number}",
                begun=BEGUN + generator.randrange(20) * DAY,
            )
            for number in range(14)
        ),
        vectors=embedder.vectors,
    )
    set_model(replica, embedder.identity)
    searcher = Searcher(replica.database, embedder)

    def page(limit: int, offset: int = 0) -> list[str]:
        found = searcher.search("what is the port of the relay now", now_ms=NOW, limit=limit, offset=offset)
        return [hit.id for hit in found.hits]

    assert [one for offset in range(0, 15, 3) for one in page(3, offset)] == page(15)


def test_of_values_the_latest_holds() -> None:
    from tests.core.meanings import MeaningEmbedder, set_model

    embedder = MeaningEmbedder()
    replica = new_replica()
    apply(
        replica,
        conversation(
            ("user", "the port of the relay"), ("assistant", "The port of the relay is 8080."), session="old"
        ),
        conversation(
            ("user", "change the port of the relay"),
            ("assistant", "The port of the relay changed to 9090."),
            session="new",
            begun=NOW - DAY,
        ),
        vectors=embedder.vectors,
    )
    set_model(replica, embedder.identity)
    found = Searcher(replica.database, embedder).search("what is the port of the relay now", now_ms=NOW)
    assert found.hits[0].text == "The port of the relay changed to 9090."


def test_a_value_that_came_back_holds_since_it_was_said_again() -> None:
    from tests.core.meanings import MeaningEmbedder, set_model

    embedder, replica = MeaningEmbedder(), new_replica()
    told = [
        ("first", "the port of the relay", "The port of the relay is 8080.", 9),
        ("then", "change the port of the relay", "The port of the relay changed to 9090.", 5),
        ("back", "take that back, as it was before", "The port of the relay is 8080.", 1),
    ]
    for session, asked, answered, days in told:
        said = conversation(("user", asked), ("assistant", answered), session=session, begun=NOW - days * DAY)
        apply(replica, said, vectors=embedder.vectors)
    set_model(replica, embedder.identity)
    searcher = Searcher(replica.database, embedder)
    first = searcher.search("what is the port of the relay now", now_ms=NOW).hits[0]
    assert first.text == "The port of the relay is 8080."
    assert max(first.created_at, first.again_at) >= NOW - DAY
    assert first.freshness.value == "fresh"
    before = Scope(until_ms=NOW - 2 * DAY)
    first = searcher.search("what is the port of the relay now", now_ms=NOW, scope=before).hits[0]
    assert first.text == "The port of the relay changed to 9090."
    assert first.again_at == 0


def test_by_message_nothing_is_put_together() -> None:
    replica = memory_of(
        conversation(("user", QUESTION), ("assistant", DECISION + " So much for the budget."))
    )
    assert {hit.turn for hit in search(replica, "budget", by=By.MESSAGE).hits} == {None}
    assert len(search(replica, "budget", by=By.MESSAGE).hits) == 2
    apply(replica, remember("the budget is nine"))
    assert [hit.turn is None for hit in search(replica, "budget nine").hits if hit.category] == [True]


@pytest.mark.parametrize("seed", range(20))
def test_turns_are_those_that_a_reader_would_see(seed: int) -> None:
    """Against the plain reading of a conversation from its beginning, of random ones with equal times and split messages."""
    generator = random.Random(seed)
    said: list[Piece] = []
    turns: dict[str, int] = {}
    turn, at = 0, BEGUN
    for number in range(60):
        role = generator.choice(("user", "assistant", "assistant", "thinking"))
        at += generator.choice((1, 1, 1000))
        if role == "user":
            turn += 1
        for part in range(generator.choice((1, 1, 2))):
            text = f"crane {number} {part}"
            said.append(Piece(text, role, at, f"m{number}", part))
            turns[text] = turn
    replica = memory_of(Capture("agent", "s", "work", "", "claude-code", tuple(said)))
    result = Searcher(replica.database).search("crane", now_ms=NOW, limit=200, thinking=True)
    for hit in result.hits:
        if not turns[hit.text]:
            continue  # before the person's first message
        assert hit.turn is not None
        within = [
            piece for piece in said if turns[piece.text] == turns[hit.text] and piece.role != "thinking"
        ]
        assert hit.turn.messages == len(within)
        assert (hit.turn.began_at, hit.turn.ended_at) == (within[0].created_at, within[-1].created_at)
    spoken = [turns[hit.text] for hit in result.hits if turns[hit.text]]
    assert len(set(spoken)) == len(spoken)


def test_what_a_subagent_thinks_or_is_asked_answers_nobody() -> None:
    replica = memory_of(
        conversation(
            ("user", "which port does the uploader use"),
            ("assistant", "The uploader uses port 8080, see its settings."),
            ("subagent-user", "Look up which port the uploader uses in the settings."),
            ("subagent-thinking", "the uploader has a port somewhere"),
        )
    )
    (hit,) = search(replica, "uploader port").hits
    assert (hit.role, hit.text) == ("assistant", "The uploader uses port 8080, see its settings.")
    assert search(replica, "somewhere").hits == ()
    assert [hit.text for hit in search(replica, "somewhere", thinking=True).hits] == [
        "the uploader has a port somewhere"
    ]


def test_a_question_without_its_answer_stands_behind_answers_of_later_layers() -> None:
    unanswered = [
        conversation(("user", f"what is the quota of bucket {number}?"), session=f"open-{number}")
        for number in range(60)
    ]
    told = conversation(
        ("user", "tell me about storage, please"),
        (
            "assistant",
            "Among many other things that we keep in mind for the storage, a bucket has a quota of 5 GB.",
        ),
        session="told",
    )
    replica = memory_of(*unanswered, told)
    result = search(replica, "what is the quota of a bucket?")
    assert result.hits[0].session == "told"


def test_turns_of_one_moment_are_looked_up_not_read() -> None:
    """A drop gives all its messages the time of its file: nothing may read a whole session for each of them."""
    plan = memory_of().database.rows("EXPLAIN QUERY PLAN " + SPANS, ("{}",))
    lookups = [str(row[3]) for row in plan if "SEARCH" in str(row[3])]
    assert len(lookups) == 6
    assert all("(created_at,rowid)" in lookup for lookup in lookups), lookups


def test_in_one_moment_turns_follow_the_order_in_which_they_came() -> None:
    said = [(role, f"{role} {number} on the quota") for number in range(4) for role in ("user", "assistant")]
    replica = memory_of(conversation(*said, step=0))
    hits = search(replica, "quota").hits
    assert {(hit.turn.question, hit.text) for hit in hits if hit.turn} == {
        (f"user {number} on the quota", f"assistant {number} on the quota") for number in range(4)
    }
