"""What a process pays for the embedder: nothing before it is used, no network ever, and memory only while in use."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from crystal_core.embed.session import PROCESS_ENVIRONMENT

RESIDENT_MEGABYTES_MAX = 150

HEAVY = ("numpy", "onnxruntime")


def run_python(code: str, home: Path) -> Any:
    """Run `code` in a fresh interpreter and return the JSON that it prints."""
    # onnxruntime reports nothing when it sees CI, so that must not hide that it would report.
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    environment.update(PROCESS_ENVIRONMENT, HOME=str(home), PYTHONPATH=os.pathsep.join(sys.path))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
        env=environment,
        cwd=home,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_importing_and_making_an_embedder_loads_nothing_heavy(tmp_path: Path) -> None:
    code = f"""
import json, sys
from crystal_core.embed.builtin import BuiltinEmbedder
from crystal_core.embed.port import Embedder
embedder = BuiltinEmbedder()
embedder.identity, embedder.dimensions, embedder.check(), embedder.release(), embedder.close()
print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))
"""
    assert run_python(code, tmp_path) == []


def test_it_needs_no_network_and_leaves_nothing_behind(tmp_path: Path) -> None:
    code = """
import json, sys
forbidden = ("socket.connect", "socket.getaddrinfo", "socket.bind", "subprocess.Popen")
def refuse(event, arguments):
    if event in forbidden or (event == "open" and set(arguments[1] or "") & set("wax+")):
        raise RuntimeError(f"{event} {arguments}")
sys.dont_write_bytecode = True
import numpy, onnxruntime, ctypes, concurrent.futures
sys.addaudithook(refuse)
from crystal_core.embed.builtin import BuiltinEmbedder
with BuiltinEmbedder(threads=2) as embedder:
    stored = embedder.embed_windows(["one", "two"])
    print(json.dumps([len(stored), len(embedder.embed_query("one"))]))
"""
    assert run_python(code, tmp_path) == [2, 384]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the resident set from /proc")
def test_memory_stays_within_the_limit_and_comes_back(tmp_path: Path) -> None:
    code = """
import json, pathlib
from crystal_core.embed.builtin import BuiltinEmbedder
def resident():
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024
embedder = BuiltinEmbedder(threads=2)
text = "A sentence that is neither short nor long. "
embedder.embed_windows([text * n for n in range(25)] * 3)
used = resident()
embedder.release()
print(json.dumps([used, resident(), embedder.loaded]))
"""
    used, released, loaded = run_python(code, tmp_path)
    assert used < RESIDENT_MEGABYTES_MAX
    assert released < used - 10
    assert loaded is False
