"""The README's question, asked of the sample conversation by somebody new: the decision comes first, not the question."""

import pytest

from crystal_node.surfaces.demo.source import sample
from tests.support.machine import Machine, Vault
from tests.support.relay_process import RelayProcess

QUESTION = "what did we decide about the retry budget"
ECHO = "Jonas wants to know: what did we decide about the retry budget?"


@pytest.fixture(scope="module")
def stranger(relay: RelayProcess, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    machine = Vault(relay, tmp_path_factory.mktemp("stranger")).core
    machine.call("capture", *map(str, sample().paths))
    machine.call("sync")
    return machine


def test_the_decision_comes_first_and_its_echo_behind_what_answers(stranger: Machine) -> None:
    found = stranger.call("search", "--json", QUESTION).json
    assert found["weak"] is False
    results = found["results"]
    assert "retry budget is nine tries" in results[0]["text"]
    assert results[0]["turn"]["answered"]
    echoes = [number for number, hit in enumerate(results) if hit["text"] == ECHO]
    assert all(not any(hit["turn"]["answered"] for hit in results[number:]) for number in echoes)
    assert "thinking" not in {hit["role"] for hit in results}
    assert not any(hit["text"].startswith("Let me look") for hit in results), "filler stands for no turn"


def test_people_see_the_answer_and_open_its_turn(stranger: Machine) -> None:
    heading, head, passage, *_ = stranger.call("search", QUESTION).out.splitlines()
    device = stranger.call("status", "--json").json["name"]
    title = "The tide gauge at Port Ellery reads about 30 mm high this morning"
    assert heading.endswith(f"src/tidewatch · claude-code on {device} · {title}")
    assert "Nine tries it is." in head
    assert "Decided, then:" in passage
    shown = stranger.call("show", head.split()[2]).out
    assert "Nine tries it is." in shown
    assert "Decided, then:" in shown
    alone = stranger.call("show", head.split()[2], "--context", "0").out
    assert "Nine tries it is." not in alone


def test_messages_are_found_one_by_one_and_thinking_where_it_is_asked_for(stranger: Machine) -> None:
    texts = stranger.found(QUESTION, "--by", "message")
    assert ECHO in texts
    assert all(
        hit["turn"] is None
        for hit in stranger.call("search", "--json", "--by", "message", QUESTION).json["results"]
    )
    thought = "three tries one minute apart are over before pelican is back"
    assert not any("Three tries one minute apart" in text for text in stranger.found(thought))
    assert any("Three tries one minute apart" in text for text in stranger.found(thought, "--thinking"))
