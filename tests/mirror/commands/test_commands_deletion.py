"""What the relay need not keep of the commands, and that a claim outlives its request there."""

from pathlib import Path

import pytest

from crystal_mirror.commands.deletion import CLAIMS_MS, ENTRIES_MS, LOOK_MS, expire
from tests.mirror.commands.office import CLAIM_STREAM, NOW, Office


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def test_the_core_has_old_commands_deleted_and_the_claims_long_after_them(office: Office) -> None:
    office.asker.ask(office.desk)
    office.whole()

    def look_at(later: int) -> tuple[int, int]:
        office.store.run(expire(office.core, NOW + later))
        keys = office.stored()
        kept = sum(CLAIM_STREAM in key for key in keys)
        return len(keys) - kept, kept

    assert look_at(0) == (2, 1)
    assert look_at(LOOK_MS - 1) == (2, 1)
    assert look_at(ENTRIES_MS - 1) == (2, 1)
    assert look_at(ENTRIES_MS + LOOK_MS) == (0, 1)
    assert look_at(CLAIMS_MS - LOOK_MS) == (0, 1)
    assert look_at(CLAIMS_MS + LOOK_MS) == (0, 0)


def test_no_claim_goes_while_a_request_that_should_be_gone_is_still_there(office: Office) -> None:
    office.asker.ask(office.desk)
    office.whole()
    kept = {key: office.store[key] for key in office.stored()}
    for day in range(0, 200, 10):
        office.store.run(expire(office.core, NOW + day * LOOK_MS))
        requests = {key: data for key, data in kept.items() if CLAIM_STREAM not in key}
        office.store.update(requests)
    assert sum(CLAIM_STREAM in key for key in office.stored()) == 1


def test_who_does_not_lead_deletes_no_commands_and_a_clock_that_goes_back_deletes_nothing_early(
    office: Office,
) -> None:
    office.asker.ask(office.desk)
    office.whole()
    before = office.stored()
    assert not office.store.run(expire(office.laptop_member, NOW))
    for moment in (NOW + ENTRIES_MS, NOW, NOW + ENTRIES_MS - 1):
        office.store.run(expire(office.core, moment))
    assert office.stored() == before


def test_a_clock_that_was_far_ahead_keeps_nothing_for_ever(office: Office) -> None:
    office.asker.ask(office.desk)
    office.whole()
    for moment in (NOW + 3650 * LOOK_MS, NOW, NOW + ENTRIES_MS + LOOK_MS, NOW + CLAIMS_MS + 2 * LOOK_MS):
        office.store.run(expire(office.core, moment))
    assert office.stored() == []
