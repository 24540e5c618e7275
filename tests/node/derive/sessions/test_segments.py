"""Which segments are merged, and how often a byte is written for it."""

import pytest

from crystal_node.derive.sessions.layout import Segment
from crystal_node.derive.sessions.segments import (
    MERGE_COUNT,
    MERGED_BYTES_MAX,
    SETTLED_BYTES_MAX,
    growing_run,
    settled_runs,
)


def _segment(first: int, size: int) -> Segment:
    return Segment(first=first, end=first + size, sha256="0" * 64, digest="0" * 64)


def _segments(*sizes: int) -> list[Segment]:
    found: list[Segment] = []
    at = 0
    for size in sizes:
        found.append(_segment(at, size))
        at += size
    return found


@pytest.mark.parametrize("size", [200, 3_000, 50_000, 700_000])
def test_a_growing_session_has_few_files_and_writes_each_byte_a_few_times(size: int) -> None:
    segments: list[Segment] = []
    written = total = 0
    while total < min(size * 3000, 200_000_000):
        segments.append(_segment(total, size))
        total += size
        written += size
        if run := growing_run(segments):
            merged = _segment(segments[-run].first, segments[-1].end - segments[-run].first)
            assert merged.end - merged.first <= MERGED_BYTES_MAX
            segments = [*segments[:-run], merged]
            written += merged.end - merged.first
        small = [each for each in segments if each.end - each.first < MERGED_BYTES_MAX // MERGE_COUNT]
        assert len(small) <= 3 * MERGE_COUNT
    assert written / total <= 4.1


def test_a_quiet_session_becomes_few_large_segments() -> None:
    assert settled_runs(_segments(5)) == []
    assert settled_runs(_segments(5, 6, 7)) == [(0, 3)]
    many = _segments(*[4 * 1024 * 1024] * 20)
    runs = settled_runs(many)
    assert runs == [(0, 8), (8, 16), (16, 20)]
    assert all(many[end - 1].end - many[start].first <= SETTLED_BYTES_MAX for start, end in runs)


def test_a_large_settled_segment_is_not_sent_again_for_a_little_that_follows() -> None:
    assert settled_runs(_segments(30_000_000, 1000, 1000)) == [(1, 3)]
    assert settled_runs(_segments(30_000_000, 2000)) == []
    assert settled_runs(_segments(20_000_000, 4_000_000, 4_000_000)) == [(0, 3)]
