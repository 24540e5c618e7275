"""The latest turns of a project: whole ones, however long, and none of which a part was said elsewhere."""

from collections.abc import Sequence
from typing import Any

import pytest

from crystal_core.database import Database
from crystal_core.replica import Replica
from crystal_core.search import latest
from crystal_core.search.latest import LatestTurn, latest_turns
from crystal_mirror.operations import Capture, Piece
from tests.core.builders import NOW, apply, new_replica

APP, OTHER = ("work/app", "host/me/app"), ("clients/acme", "host/acme/app")
Spoken = tuple[tuple[str, str], str, str]


def spoken(replica: Replica, *pieces: Spoken, session: str = "session", at: int = NOW) -> None:
    for number, (place, role, text) in enumerate(pieces):
        piece = Piece(text, role, at + number * 1000, f"{session}-{number}", 0)
        apply(replica, Capture("agent", session, *place, "claude-code", (piece,)))


def turns(replica: Replica) -> list[tuple[str, str]]:
    """Question and answer of the latest turns of the app, the latest first."""
    return [_words(turn) for session in latest_turns(replica.database, [APP]) for turn in session]


def _words(turn: LatestTurn) -> tuple[str, str]:
    return turn.question.text, turn.answer.text if turn.answer else ""


def test_no_turn_is_put_together_over_what_was_said_elsewhere() -> None:
    replica = new_replica()
    spoken(
        replica,
        (APP, "user", "How tall is the mast?"),
        (APP, "assistant", "It is nine metres tall."),
        (APP, "user", "How many sails has it?"),
        (OTHER, "user", "What does the client pay?"),
        (OTHER, "assistant", "The client pays forty."),
        (APP, "assistant", "As that is settled, the client is told."),
        (APP, "user", "Which wood is the mast of?"),
        (OTHER, "assistant", "The client's wood is teak."),
    )
    assert turns(replica) == [
        ("How many sails has it?", ""),
        ("How tall is the mast?", "It is nine metres tall."),
    ]


def test_what_was_done_elsewhere_within_a_turn_takes_nothing_from_it() -> None:
    replica = new_replica()
    spoken(
        replica,
        (APP, "user", "Publish the mast."),
        (OTHER, "assistant", "Acme's pipeline is looked at."),
        (APP, "assistant", "The mast is published."),
    )
    assert turns(replica) == [("Publish the mast.", "The mast is published.")]


@pytest.mark.parametrize("between", [90, 1_100])
def test_a_long_last_turn_is_still_the_last_one(between: int) -> None:
    replica = new_replica()
    spoken(
        replica, (APP, "user", "How tall is it?"), (APP, "assistant", "Nine."), session="old", at=NOW - 10**8
    )
    replies = [
        Piece(f"Step {number} is taken.", "tool", NOW + number, f"m{number}", 0) for number in range(between)
    ]
    asked = Piece("Rig the ship.", "user", NOW - 1, "first", 0)
    done = Piece("The ship is rigged with nine sails.", "assistant", NOW + between, "last", 0)
    for number in range(0, between, 500):
        apply(replica, Capture("agent", "new", *APP, "claude-code", tuple(replies[number : number + 500])))
    apply(replica, Capture("agent", "new", *APP, "claude-code", (asked, done)))
    assert turns(replica)[0] == ("Rig the ship.", "The ship is rigged with nine sails.")


def test_a_turn_without_end_leaves_its_session_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latest, "PIECES_MAX", (2, 3))
    replica = new_replica()
    spoken(replica, (APP, "user", "Is it?"), *[(APP, "assistant", f"Step {number}.") for number in range(3)])
    assert turns(replica) == []


def test_only_the_texts_of_the_last_turns_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = new_replica()
    between: list[Spoken] = [(APP, "assistant", f"Step {number} of the long way.") for number in range(200)]
    spoken(replica, (APP, "user", "How tall is the mast?"), *between, (APP, "assistant", "Nine metres."))
    read: list[int] = []
    words = latest._words  # pyright: ignore[reportPrivateUsage]  what it reads is counted

    def counted(database: Database, pieces: Sequence[Any]) -> latest.Words:
        read.append(len(pieces))
        return words(database, pieces)

    monkeypatch.setattr(latest, "_words", counted)
    assert turns(replica) == [("How tall is the mast?", "Nine metres.")]
    assert read == [1, 1]
