"""A moment of each target of `make fuzz`, and that the fuzzer finds faults that were planted for it."""

import pytest

from tests.fuzz.run import Fuzzed, fuzz
from tests.fuzz.target import FOLDERS, all_targets, targets_of

pytest.importorskip("atheris", reason="atheris is made for Linux on x86-64 and CPython up to 3.13")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

INPUTS, SECONDS = 5_000, 1
"""For each target, whichever comes first."""
PLANTED_SECONDS = 60


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_input_of_a_moment_is_a_fault(folder: str) -> None:
    targets = targets_of(folder)
    found = list(fuzz(targets, inputs=INPUTS, seconds=SECONDS, seed=1))
    assert [(one.name, one.fault) for one in found if one.fault] == []
    assert [one.name for one in found] == [target.name for target in targets]
    assert all(one.inputs > 0 for one in found)


@pytest.fixture(scope="module")
def planted() -> dict[str, Fuzzed]:
    return {
        one.name: one for one in fuzz(targets_of("planted"), seconds=PLANTED_SECONDS, inputs=100_000, seed=1)
    }


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("crash", "IndexError: a fault behind a parser"),
        ("slow", "Slow"),
        ("greedy", "out-of-memory"),
        ("not_canonical", "another form of the same number"),
    ],
)
def test_a_planted_fault_is_found_with_its_input(name: str, said: str, planted: dict[str, Fuzzed]) -> None:
    found = planted[f"planted.{name}"]
    assert said in found.fault
    assert "input: b" in found.fault
    assert str(found).endswith("FAULT")


def test_where_nothing_is_planted_nothing_is_found(planted: dict[str, Fuzzed]) -> None:
    found = planted["planted.sound"]
    assert (found.fault, found.inputs) == ("", 100_000)


def test_every_target_has_inputs_to_begin_with_of_which_one_is_taken() -> None:
    """A target whose inputs are all refused would fuzz its first check alone. Where a key or signature is checked first, that
    is all that a stranger reaches."""
    refused = {"crypto.bundle", "crypto.letter", "crypto.blob", "crypto.public_key", "prototype.names"}
    for target in all_targets():
        taken = [target.check(data) for data in target.seeds()]
        assert len(taken) > 0, target.name
        assert any(taken) or target.name in refused, target.name
