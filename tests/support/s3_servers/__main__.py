"""The keeper of one server: `python -m tests.support.s3_servers NAME PID` keeps it until process PID ends or SIGTERM comes.

It prints the server as one line of JSON when it serves, or `{"error": …}`. It is a process of its own so that a test run
which is killed still leaves nothing behind: this one sees it, stops the server and removes the directory. If this one is
killed too, the kernel ends the server's processes.
"""

import dataclasses
import json
import os
import select
import signal
import sys
import time

from tests.support.s3_servers.kinds import KINDS
from tests.support.s3_servers.server import ServerMissing

LOOK_SECONDS = 0.2


def main() -> None:
    name, process = sys.argv[1], int(sys.argv[2])
    signal.signal(signal.SIGTERM, _leave)
    try:
        with KINDS[name]() as server:
            _tell(dataclasses.asdict(server))
            _wait_for_the_end_of(process)
    except ServerMissing as missing:
        _tell({"missing": str(missing)})
    except RuntimeError as failed:
        _tell({"error": str(failed)})


def _tell(document: dict[str, str]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def _leave(number: int, _frame: object) -> None:
    sys.exit(128 + number)


def _wait_for_the_end_of(process: int) -> None:
    if hasattr(os, "pidfd_open"):
        try:
            descriptor = os.pidfd_open(process)
        except ProcessLookupError:
            return
        select.select([descriptor], [], [])
        return
    while True:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return
        time.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    main()
