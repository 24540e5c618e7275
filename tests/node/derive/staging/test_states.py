"""The drawing of staging's states is what the code does: every event is tried in every state."""

import re

from crystal_node.derive.catalog import agents
from crystal_node.derive.catalog.agents import (
    WAITING,
    CannotStage,
    Event,
    State,
    has_files,
    has_staged_files,
    moved,
)

_EDGE = re.compile(r"^    (?P<before>\S.*?)\s+--(?P<event>[^-].*?[^-])-+>\s+(?P<after>[a-z]+)(?:\s{2,}.*)?$")


def test_every_event_in_every_state_does_what_is_drawn_and_nothing_else() -> None:
    drawn: set[tuple[State, Event, State]] = set()
    for line in (agents.__doc__ or "").splitlines():
        edge = _EDGE.match(line)
        if edge is not None:
            before = WAITING if edge["before"] == "any of them" else {State(edge["before"])}
            drawn |= {(one, Event(edge["event"]), State(edge["after"])) for one in before}
    found: set[tuple[State, Event, State]] = set()
    for state in State:
        for event in Event:
            try:
                found.add((state, event, moved(state, event)))
            except CannotStage:
                continue
    assert found == drawn
    assert len(found) > 15


def test_files_stand_in_staging_until_the_agent_is_live_and_below_agents_from_the_backfill_on() -> None:
    assert {state for state in State if has_staged_files(state)} == WAITING
    assert {state for state in State if has_files(state)} == {
        State.BACKFILL,
        State.ASKING,
        State.WEAVING,
        State.LIVE,
    }
    assert not has_files(State.REJECTED)
