"""The drawing of staging's states is what the code does: every event is tried in every state."""

import re

from crystal_node.derive.catalog import agents
from crystal_node.derive.catalog.agents import (
    WAITING,
    CannotStage,
    StagingEvent,
    StagingState,
    has_files,
    has_staged_files,
    next_state,
)

_EDGE = re.compile(r"^    (?P<before>\S.*?)\s+--(?P<event>[^-].*?[^-])-+>\s+(?P<after>[a-z]+)(?:\s{2,}.*)?$")


def test_every_event_in_every_state_does_what_is_drawn_and_nothing_else() -> None:
    drawn: set[tuple[StagingState, StagingEvent, StagingState]] = set()
    for line in (agents.__doc__ or "").splitlines():
        edge = _EDGE.match(line)
        if edge is not None:
            before = WAITING if edge["before"] == "any of them" else {StagingState(edge["before"])}
            drawn |= {(one, StagingEvent(edge["event"]), StagingState(edge["after"])) for one in before}
    found: set[tuple[StagingState, StagingEvent, StagingState]] = set()
    for state in StagingState:
        for event in StagingEvent:
            try:
                found.add((state, event, next_state(state, event)))
            except CannotStage:
                continue
    assert found == drawn
    assert len(found) > 15


def test_files_stand_in_staging_until_the_agent_is_live_and_below_agents_from_the_backfill_on() -> None:
    assert {state for state in StagingState if has_staged_files(state)} == WAITING
    assert {state for state in StagingState if has_files(state)} == {
        StagingState.BACKFILL,
        StagingState.ASKING,
        StagingState.WEAVING,
        StagingState.LIVE,
    }
    assert not has_files(StagingState.REJECTED)
