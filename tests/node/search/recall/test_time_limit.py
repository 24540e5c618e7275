"""A hook's answer is printed whole, or not at all, and its process ends when its time is over, whatever hangs."""

import io
import json
import os
import socket
import subprocess
import sys
import threading

import pytest

from crystal_node.base.local_api import short_name, socket_path
from crystal_node.search.recall.time_limit import SECONDS_MAX, TimeLimit
from tests.support.machine import Machine

PROMPT = json.dumps(
    {"hook_event_name": "UserPromptSubmit", "prompt": "Why did we raise the retry budget?"}
).encode()


class SlowOutput(io.BytesIO):
    """Takes the first half, and the rest only when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.half = threading.Event()
        self.go_on = threading.Event()

    def write(self, data: object) -> int:
        assert isinstance(data, bytes)
        super().write(data[: len(data) // 2])
        self.half.set()
        assert self.go_on.wait(20)
        super().write(data[len(data) // 2 :])
        return len(data)


def test_the_process_ends_behind_a_whole_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    out = SlowOutput()
    ended: list[bytes] = []

    def exits(_code: int) -> None:
        ended.append(out.getvalue())

    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out))
    monkeypatch.setattr(os, "_exit", exits)
    limit = TimeLimit()
    first = threading.Thread(target=limit.tell, args=(b"an answer, whole",))
    first.start()
    assert out.half.wait(20)
    others = [threading.Thread(target=limit.end), threading.Thread(target=limit.tell, args=(b"another",))]
    for other in others:
        other.start()
        other.join(0.2)
        assert other.is_alive(), "it waits for what is being printed"
    assert ended == []
    out.go_on.set()
    for thread in (first, *others):
        thread.join(20)
    assert ended == [b"an answer, whole"]


def test_a_prolonged_limit_ends_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    over = threading.Event()

    def end(code: int) -> None:
        ended.append(code)
        over.set()

    monkeypatch.setattr(os, "_exit", end)
    TimeLimit().prolong()
    assert not over.wait(2 * SECONDS_MAX), "what has no limit gets none"
    limit = TimeLimit()
    limit.start(60)
    limit.prolong()
    assert over.wait(60)
    assert ended == [0]


def test_behind_its_end_nothing_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    limit = TimeLimit()
    limit.end()
    late = threading.Thread(target=limit.tell, args=(b"too late",), daemon=True)
    late.start()
    late.join(0.2)
    assert ended == [0]
    assert late.is_alive(), "in a process, it has ended by then"


def test_a_program_that_never_ends_what_it_tells_is_not_waited_for(machine: Machine) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "crystal_node", "recall", "--hook", "--home", str(machine.home)],
        env=machine.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    with process.stdin, process.stdout, process.stderr:
        process.stdin.write(PROMPT)
        process.stdin.flush()
        ended = process.wait(60)
        assert (ended, process.stdout.read(), process.stderr.read()) == (0, b"", b"")


def test_a_service_that_hangs_is_not_waited_for_and_nothing_is_said(machine: Machine) -> None:
    (machine.home / "state" / "agent").mkdir(parents=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as frozen:
        with short_name(socket_path(str(machine.home))) as name:
            assert name is not None
            frozen.bind(name)
        frozen.listen()
        result = subprocess.run(
            [sys.executable, "-m", "crystal_node", "recall", "--hook", "--home", str(machine.home)],
            env=machine.environment,
            input=PROMPT,
            capture_output=True,
            timeout=60,
            check=False,
        )
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")
