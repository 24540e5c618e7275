"""A transcript of more than a gibibyte, read in bounded memory by a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

from tests.node.capture.tools import TOOLS

MIB = 1024 * 1024
PEAK_MIB_MAX = 200
"""Resident, with the interpreter and the libraries (some 50); without bounds it would take over a gibibyte."""

READER = """
import json, resource, sys
from pathlib import Path
from tests.node.capture.tools import TOOLS

tool = next(tool for tool in TOOLS if tool.name == sys.argv[1])
path = Path(sys.argv[2])
adapter = tool.adapter(Path(sys.argv[3]))
texts, passes, state, skipped, more = [], 0, None, {}, True
while more:
    reading = adapter.read(path, state, agent="a", hides=lambda _: False)
    texts += [piece.text for operation in reading.operations for piece in operation.pieces]
    for reason, count in reading.counts.skipped.items():
        skipped[reason] = skipped.get(reason, 0) + count
    state, more, passes = reading.state, reading.more, passes + 1
status = Path("/proc/self/status")
if status.exists():  # what the resource module says there includes the process that this one was forked from
    peak = next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM"))
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
print(json.dumps({"texts": texts, "passes": passes, "skipped": skipped, "peak": peak // 1024}))
"""


def test_a_transcript_of_a_gibibyte_is_read_in_bounded_memory(tmp_path: Path) -> None:
    tool = TOOLS[0]
    path = tmp_path / tool.path
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.write(tool.begin())
        for number in range(60):
            file.write(tool.line(number, f"message {number}"))
            file.write(tool.line(1000 + number, "long " * (MIB // 10)))
            # A hole takes no room on the disk, and is read as zeros: a line of 12 MiB or one over the limit, in turn.
            file.seek((12 if number % 2 else 24) * MIB, 1)
            file.write(b"\n")
        file.write(tool.line(99, "the end"))
    assert path.stat().st_size > 1024 * MIB
    result = subprocess.run(
        [sys.executable, "-c", READER, tool.name, str(path), str(tmp_path)],
        capture_output=True,
        check=True,
        timeout=100,
        cwd=Path(__file__).parents[3],
    )
    found = json.loads(result.stdout)
    short = [text for text in found["texts"] if not text.startswith("long")]
    assert short == [*(f"message {number}" for number in range(60)), "the end"]
    assert found["skipped"]["line too long"] == 30
    assert found["skipped"]["line is not JSON"] == 30
    assert found["passes"] > 100
    assert found["peak"] < PEAK_MIB_MAX
