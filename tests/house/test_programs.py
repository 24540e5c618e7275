"""A forked program is a process like any other: its output, its end, its environment, its signals."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import programs


def ended(
    *arguments: str, fresh: bool, typed: str = "", **variables: str
) -> "subprocess.CompletedProcess[str]":
    return programs.run(
        "crystal_node", arguments, env=os.environ | variables, fresh=fresh, typed=typed, timeout=60
    )


@pytest.mark.parametrize(
    "arguments",
    [("--version",), ("config", "--json"), ("no-such-command",), ("status",), ("pair", "--code", "-")],
)
def test_it_says_and_ends_as_a_fresh_interpreter_does(arguments: tuple[str, ...], tmp_path: Path) -> None:
    variables = {"HOME": str(tmp_path), "CRYSTAL_KEY_STORE": "file"}
    forked, fresh = (ended(*arguments, fresh=fresh, typed="MC1:\n", **variables) for fresh in (False, True))
    assert (forked.returncode, forked.stdout, forked.stderr) == (fresh.returncode, fresh.stdout, fresh.stderr)


def test_what_acts_on_an_interpreter_gets_a_fresh_one(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[type] = []

    class Seen:
        def __init__(self, *_: object, **__: object) -> None:
            started.append(type(self))

    class Fresh(Seen):
        pass

    class Forked(Seen):
        pass

    monkeypatch.setattr(subprocess, "Popen", Fresh)
    monkeypatch.setattr(programs, "_Forked", Forked)
    plain = dict(os.environ)
    starts: list[Callable[[], Any]] = [
        lambda: programs.started("crystal_node", (), env=plain),
        lambda: programs.started("crystal_node", (), env=plain, fresh=True),
        lambda: programs.started("crystal_node", (), env=plain, prefix=("nsenter",)),
        lambda: programs.started("crystal_node", (), env=plain | {"LD_PRELOAD": "/a/library"}),
        lambda: programs.started("crystal_node", (), env=plain | {"PYTHONPATH": "/a/folder"}),
    ]
    for start in starts:
        start()
    assert started == [Forked, Fresh, Fresh, Fresh, Fresh]


def test_it_is_killed_waited_for_and_stopped_like_any_process(tmp_path: Path) -> None:
    environment = os.environ | {"CRYSTAL_RELAY_ENROLL_TOKEN": "0" * 64}
    address = (tmp_path / "store").as_uri()
    for number, codes in ((signal.SIGKILL, {-9}), (signal.SIGTERM, {0})):
        ready = tmp_path / f"ready-{number}"
        process = programs.started(
            "crystal_relay",
            ("serve", "--port", "0", "--store", address, "--ready-file", str(ready)),
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while not ready.exists():
            assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.05)
        process.send_signal(number)
        assert process.wait(30) in codes
        assert process.poll() == process.returncode
        assert not Path(f"/proc/{process.pid}").exists()


def test_its_server_has_one_thread_and_keeps_no_descriptor_of_a_program_that_ended() -> None:
    ended("--version", fresh=False)
    pid = programs._server()._process.pid  # pyright: ignore[reportPrivateUsage]
    folder = Path(f"/proc/{pid}")
    if not folder.exists():
        pytest.skip("descriptors and threads are read from /proc")
    before = len(list((folder / "fd").iterdir()))
    for _ in range(5):
        ended("--version", fresh=False)
    assert len(list((folder / "fd").iterdir())) <= before
    assert len(list((folder / "task").iterdir())) == 1
