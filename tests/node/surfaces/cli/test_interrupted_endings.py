"""Ctrl-C while a command is shutting down: its outcome is decided by then, and so is its exit code."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.machine import Machine

LATE = """
import os, signal, sys

class Late:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGINT):
        kill(pid, number)

sys.modules["late"] = Late()
"""
"""Sends SIGINT when the interpreter takes its modules apart, after it has given up its own signal handlers."""


def test_ctrl_c_during_shutdown_does_not_replace_the_exit_code(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(LATE)
    environment = os.environ | {
        "PYTHONPATH": str(tmp_path),
        "CRYSTAL_HOME": str(tmp_path / "home"),
        "HOME": str(tmp_path),
    }
    codes = {
        verb: subprocess.run(
            [sys.executable, "-m", "crystal_node", *verb.split()],
            env=environment,
            capture_output=True,
            check=False,
        ).returncode
        for verb in ("config", "status", "no-such-verb")
    }
    assert codes == {"config": 0, "status": 3, "no-such-verb": 2}


def test_a_program_that_calls_a_command_keeps_its_ctrl_c(machine: Machine) -> None:
    """Its children would inherit that they ignore it."""
    before = signal.getsignal(signal.SIGINT)
    assert machine.call("config").code == 0
    assert machine.call("status", check=False).code == 3
    assert signal.getsignal(signal.SIGINT) == before
    assert before != signal.SIG_IGN
