"""The size of a file's parts: what it follows from, and when a file keeps the one that it has."""

import pytest

from crystal_mirror.operations import FILE_PARTS_MAX, FilePart
from crystal_node.sync.files.parts import PARTS_KEPT_MAX, part_bytes_mean

KIB, MIB, GIB = 1024, 1024 * 1024, 1024 * 1024 * 1024


@pytest.mark.parametrize(
    ("size", "mean"),
    [(300 * KIB, 64 * KIB), (128 * MIB, 64 * KIB), (129 * MIB, 128 * KIB), (GIB, 512 * KIB), (5 * GIB, MIB)],
)
def test_larger_files_have_larger_parts(size: int, mean: int) -> None:
    assert part_bytes_mean(size) == mean
    assert size / mean < FILE_PARTS_MAX


def _parts(count: int, length: int) -> list[FilePart]:
    return [FilePart(bytes(32), length)] * count


def test_a_file_that_grows_is_cut_as_before_for_as_long_as_it_can_be() -> None:
    before = _parts(2000, 65 * KIB)
    assert part_bytes_mean(130 * MIB, before) == 64 * KIB
    assert part_bytes_mean(PARTS_KEPT_MAX * 64 * KIB + 1, before) == 256 * KIB
    assert part_bytes_mean(20 * MIB, _parts(20, 900 * KIB)) == MIB
    assert part_bytes_mean(20 * MIB, _parts(1, 200 * KIB)) == 64 * KIB, "a small file was never cut"
