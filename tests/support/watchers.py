"""Watchers of several machines, under faults: started together, asked about what they have done, stopped at the end."""

import json
import signal
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from tests.support.machine import Machine

ARRIVES_SECONDS_MAX = 45.0
_STOP_SECONDS_MAX = 30.0


def until(condition: Callable[[], bool], what: str, seconds: float = ARRIVES_SECONDS_MAX) -> None:
    """Returns once it holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.1)


@contextmanager
def watchers(*machines: Machine, quiet: bool = False) -> Generator[list["subprocess.Popen[str]"]]:
    """`crystal sync --watch` on each. They end when asked to, and without a trace. They may say that something failed, unless
    ``quiet``: then all that they say is events."""
    running = [machine.start("sync", "--watch", "--json") for machine in machines]
    try:
        for machine in machines:
            until(lambda machine=machine: machine.call("status", "--json").json["watching"], "a watcher")  # type: ignore[misc]
        yield running
        for process in running:
            process.send_signal(signal.SIGTERM)
        for process in running:
            out, err = process.communicate(timeout=_STOP_SECONDS_MAX)
            assert process.returncode == 0, out + err
            assert "Traceback" not in err, err
            if quiet:
                assert err == "", err
                assert all(json.loads(line).keys() == {"at", "event", "text"} for line in out.splitlines())
    except BaseException as error:
        for machine, process in zip(machines, running, strict=True):
            ended = process.poll()
            process.kill()
            process.send_signal(signal.SIGCONT)
            said = "".join(process.communicate())
            error.add_note(f"The watcher on {machine.root.name} (exit code {ended}) said: {said[-2000:]}")
        raise
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
                process.communicate()
