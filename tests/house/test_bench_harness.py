"""The benchmark table tells the truth about what was met and what was missed."""

import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench import bench_transcripts
from bench.harness import (
    Row,
    interleaved,
    percentile,
    ratio_at_least,
    ratio_at_most,
    timed,
    value_at_least,
    value_at_most,
)
from bench.results import Part, recorded, table, worse_than_before
from bench.run import parts, run_part


@pytest.mark.parametrize(
    ("row", "met"),
    [
        (Row(name="a", value=5, unit="ms"), None),
        (Row(name="a", value=5, unit="ms", target=value_at_most(5)), True),
        (Row(name="a", value=5.1, unit="ms", target=value_at_most(5)), False),
        (Row(name="a", value=5, unit="/s", target=value_at_least(5)), True),
        (Row(name="a", value=4.9, unit="/s", target=value_at_least(5)), False),
        (
            Row(name="a", value=8, unit="/s", baseline="b", baseline_value=10, target=ratio_at_least(0.8)),
            True,
        ),
        (
            Row(name="a", value=7, unit="/s", baseline="b", baseline_value=10, target=ratio_at_least(0.8)),
            False,
        ),
        (
            Row(name="a", value=11, unit="B", baseline="b", baseline_value=10, target=ratio_at_most(1.05)),
            False,
        ),
    ],
)
def test_a_target_is_met_or_missed(row: Row, met: bool | None) -> None:
    assert row.met is met
    assert ("**no**" in table([row])) is (met is False)


def test_a_ratio_needs_a_baseline() -> None:
    with pytest.raises(ValueError, match="needs a baseline"):
        Row(name="a", value=1, unit="s", target=ratio_at_least(1))
    with pytest.raises(ValueError, match="a name and a value"):
        Row(name="a", value=1, unit="s", baseline="b")


def test_percentiles_are_nearest_rank() -> None:
    samples = [float(n) for n in range(1, 101)]
    assert [percentile(samples, p) for p in (1, 50, 95, 99, 100)] == [1, 50, 95, 99, 100]
    assert percentile([3.0], 50) == 3.0
    with pytest.raises(ValueError, match="percentile"):
        percentile([], 50)


def test_works_are_timed_in_turns_after_a_warm_up() -> None:
    order: list[str] = []
    timings = interleaved(
        {"a": lambda: order.append("a"), "b": lambda: order.append("b")}, repeat=2, warm_up=1
    )
    assert order == ["a", "b"] * 3
    assert {name: len(timing.samples) for name, timing in timings.items()} == {"a": 2, "b": 2}
    assert timed(lambda: None, repeat=3).median >= 0


def test_every_benchmark_can_be_found() -> None:
    assert all(name.isidentifier() for name in parts())
    with pytest.raises(ModuleNotFoundError):
        run_part("that_does_not_exist", quick=True)


def test_a_part_is_recorded_beside_the_others_and_another_machines_figures_are_left_out() -> None:
    def part(name: str, value: float) -> Part:
        row = Row(name=f"the {name}'s row", value=value, unit="ms", target=value_at_most(5))
        return Part(name, (row,), datetime(2026, 1, 2, tzinfo=UTC), 3.4, 0.5, (1.25, 1.5))

    page = recorded("", part("wire", 9), "One machine")
    page = recorded(page, part("core", 1), "One machine")
    assert page.index("## core") < page.index("## wire")
    assert "1 of 2 targets are met. Missed:\n\n- the wire's row\n" in page
    assert (
        "2026-01-02; took 3 s, load before it 0.5; a fixed work took 1.25 ms before it and 1.50 ms after it."
        in page
    )
    again = recorded(page, part("wire", 4), "One machine")
    assert again.count("## wire") == 1
    assert "2 of 2 targets are met.\n" in again
    assert recorded(again, part("core", 1), "One machine") == again
    assert "## core" not in recorded(again, part("wire", 4), "Another machine")


def _part(*rows: Row, pace: float = 2.0) -> Part:
    return Part("relay", rows, datetime(2026, 1, 2, tzinfo=UTC), 1.0, 0.1, (pace, pace))


@pytest.mark.parametrize(
    ("before", "now", "factor"),
    [
        (Row(name="put", value=10, unit="ms"), Row(name="put", value=12, unit="ms", note="busy"), 1.2),
        (Row(name="put", value=10, unit="ms", note="quiet"), Row(name="put", value=10.9, unit="ms"), None),
        (Row(name="put", value=1_200, unit="puts/s"), Row(name="put", value=1_000, unit="puts/s"), 1.2),
        (Row(name="put", value=1_000, unit="puts/s"), Row(name="put", value=1_200, unit="puts/s"), None),
        (
            Row(name="put", value=10, unit="ms", baseline="nginx", baseline_value=5),
            Row(name="put", value=20, unit="ms", baseline="nginx", baseline_value=10),
            None,
        ),
        (
            Row(name="put", value=10, unit="ms", baseline="nginx", baseline_value=5),
            Row(name="put", value=10, unit="ms", baseline="nginx", baseline_value=4),
            1.25,
        ),
        (Row(name="put", value=10, unit="ms"), Row(name="put", value=12, unit="s"), None),
        (Row(name="put", value=10, unit="ms"), Row(name="put and get", value=12, unit="ms"), None),
        (Row(name="put", value=0, unit="bytes"), Row(name="put", value=9, unit="bytes"), None),
    ],
)
def test_what_became_worse_by_more_than_a_tenth_is_named(before: Row, now: Row, factor: float | None) -> None:
    found = worse_than_before(recorded("", _part(before), "two cores"), _part(now))
    assert len(found) == (factor is not None)
    assert all(f"({factor:.2f} times as bad)" in line for line in found)


def test_a_slow_hour_of_the_machine_makes_nothing_worse() -> None:
    page = recorded("", _part(Row(name="put", value=10, unit="ms")), "two cores")
    assert not worse_than_before(page, _part(Row(name="put", value=14, unit="ms"), pace=3.0))
    assert worse_than_before(page, _part(Row(name="put", value=14, unit="ms"), pace=2.0))


@pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="memory is measured as Linux tells it"
)
def test_memory_that_cannot_be_measured_is_not_taken_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resident = bench_transcripts._resident  # pyright: ignore[reportPrivateUsage]  no other way is quick
    with resident() as peak:
        subprocess.run([sys.executable, "-c", "import time; time.sleep(1)"], check=True)
    assert peak.bytes > 1_000_000
    monkeypatch.setattr(bench_transcripts, "_MEMORY", f"{tmp_path}/{{}}")
    with pytest.raises(FileNotFoundError), resident():
        pass
    (tmp_path / str(os.getpid())).touch()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        (tmp_path / str(child.pid)).mkdir()
        with pytest.raises(IsADirectoryError), resident():
            time.sleep(1)
        child.kill()
