"""Machines that append, fork, rewrite, rename and are killed lose no byte and are told of no false conflict."""

from pathlib import Path

import pytest

from crystal_node.derive.sessions import streams
from crystal_node.derive.sessions.database import Cursor
from crystal_node.derive.sessions.writer import SessionWriter
from tests.node.derive.sessions.simulator import simulate
from tests.support.constant import always

RUNS = 30
FOUND = (18162, 106147)
"""Seeds that once lost bytes, or told some that never were: a file that was written again after a copy of it was killed before
its cursor; a last line whose newline came after its copy had lost its cursor."""


def test_nothing_is_lost_and_no_conflict_is_false() -> None:
    for seed in (*range(RUNS), *FOUND):
        assert simulate(seed) == [], f"seed {seed}"


def test_a_beginning_that_is_told_as_a_fork_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_begins", always(False))
    assert any("told as a fork" in line for seed in range(RUNS) for line in simulate(seed))


def test_a_file_that_is_copied_into_the_stream_of_another_one_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def begin(_: SessionWriter, path: Path, session: str, *more: object) -> Cursor:
        return Cursor(session=session, number=1)

    monkeypatch.setattr(SessionWriter, "_begin", begin)
    assert any("never was" in line for seed in range(RUNS) for line in simulate(seed))
