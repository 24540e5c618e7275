"""The server that forks programs: `python -m tests.support.programs.server`, with a socket as standard input.

It imports what the programs import, and from then on only forks and waits. It has one thread, no connection and no model.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
from typing import Any, NoReturn

from tests.support.programs.wire import DESCRIPTORS, HEADER, PID, STATUS

_ERRORS = ("surrogateescape", "surrogateescape", "backslashreplace")
"""Of the three standard streams, as a fresh interpreter has them in the C locale."""


def main() -> None:
    """Serve until the socket is closed; become a program in each child."""
    line = socket.socket(fileno=os.dup(0))
    importlib.import_module("tests.support.programs.loaded")
    gc.freeze()
    woken, wake = os.pipe()
    for fd in (woken, wake):
        os.set_blocking(fd, False)
    signal.signal(signal.SIGCHLD, _woken)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, which close the socket then
    signal.set_wakeup_fd(wake)
    told: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([line.fileno(), woken], [], [])
        with contextlib.suppress(BlockingIOError):
            os.read(woken, 4096)
        _reap(told)
        if line.fileno() not in ready:
            continue
        header, descriptors, _, _ = socket.recv_fds(line, HEADER.size, DESCRIPTORS)
        if not header:
            return
        program: dict[str, Any] = json.loads(_exactly(line, HEADER.unpack(header)[0]))
        if (pid := os.fork()) == 0:
            signal.set_wakeup_fd(-1)
            for fd in (line.detach(), woken, wake, descriptors[3], *told.values()):
                os.close(fd)
            _become(program, descriptors[:3])
        told[pid] = descriptors.pop()
        for fd in descriptors:
            os.close(fd)
        line.sendall(PID.pack(pid))


def _become(program: dict[str, Any], descriptors: list[int]) -> NoReturn:
    """This child is the program from here on."""
    for number, fd in enumerate(descriptors):
        os.dup2(fd, number)
        os.close(fd)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(program["env"])
    os.chdir(program["cwd"])
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = open(  # noqa: SIM115  for as long as the process lives
            number, "w" if number else "r", encoding="utf-8", errors=_ERRORS[number], closefd=False
        )
        if number:
            stream.reconfigure(line_buffering=number == 2 or stream.isatty())
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    option, module, *arguments = program["arguments"]
    assert option == "-m"
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        _end(ended)
    _end(SystemExit())


def _end(ended: SystemExit) -> NoReturn:
    """As an interpreter ends, but for taking apart hundreds of modules one by one."""
    code = ended.code
    if code is not None and not isinstance(code, int):
        sys.stderr.write(f"{code}\n")
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit((code or 0) & 0xFF)


def _woken(_number: int, _frame: object) -> None:
    """A child has ended. That is told by the wakeup descriptor; a signal without a handler writes nothing there."""


def _reap(told: dict[int, int]) -> None:
    """Tell how those ended that did."""
    while told:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with contextlib.suppress(BrokenPipeError):
            os.write(told[pid], STATUS.pack(status))
        os.close(told.pop(pid))


def _exactly(line: socket.socket, count: int) -> bytes:
    received = line.recv(count, socket.MSG_WAITALL)
    if len(received) != count:
        raise EOFError
    return received


if __name__ == "__main__":
    main()
