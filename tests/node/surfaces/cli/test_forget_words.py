"""`crystal forget` with words: it lists what contains them, asks, and forgets all of that."""

import pytest

from tests.support.machine import Machine, transcript
from tests.support.terminal import terminal


@pytest.fixture
def told(machine: Machine) -> Machine:
    transcript(
        machine,
        "The code of the shed is 4711.",
        "Say nobody the  CODE of\nthe shed.",
        "The lighthouse was painted.",
    )
    machine.run("up", "--no-service", "--no-hooks", "--no-mcp", "--yes")
    machine.run("remember", "The code of the shed changes in May.", "--scope", "everywhere")
    return machine


def test_it_lists_asks_and_forgets_all_of_them(told: Machine) -> None:
    with terminal(told, "forget", "the", "code of the shed", TERM="dumb") as shown:
        shown.until("Forget 3 messages on every device, for good?")
        shown.type("no\n")
        assert shown.end() == 2
    assert len(told.found("shed", "--by", "message")) == 3
    with terminal(told, "forget", "the code of the shed", TERM="dumb") as shown:
        shown.until("Forget 3 messages")
        shown.type("yes\n")
        assert shown.end() == 0
    assert shown.shown.count("Forgotten: ") == 3
    assert told.found("shed", "--by", "message") == []
    assert told.found("lighthouse") == ["The lighthouse was painted."]


def test_programs_see_what_it_would_forget_and_forget_it_with_yes(told: Machine) -> None:
    would = told.call("forget", "shed is 4711", "--json").json["would_forget"]
    assert [each["text"] for each in would] == ["The code of the shed is 4711."]
    assert told.call("forget", "-", "--yes", "--json", typed="shed is 4711\n").json["forgotten"] == [
        would[0]["id"]
    ]
    assert len(told.found("shed", "--by", "message")) == 2


@pytest.mark.parametrize(("words", "code"), [(("zebra",), 10), ((" ",), 2), (("the shed",), 2)])
def test_without_a_yes_or_a_match_nothing_is_forgotten(
    told: Machine, words: tuple[str, ...], code: int
) -> None:
    assert told.call("forget", *words, check=False).code == code
    assert len(told.found("shed", "--by", "message")) == 3
