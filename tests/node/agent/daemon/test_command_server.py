"""The desk in the agent: what another device sent may break its handling, and never ends the agent."""

import asyncio
from pathlib import Path

import pytest

from crystal_node.agent.commands.database import SqliteCommandDatabase
from crystal_node.agent.daemon import command_server
from crystal_node.agent.daemon.command_server import open_when_possible, serve
from crystal_node.base.events import WatchEvent


class _Desk:
    def __init__(self) -> None:
        self.runs = 0
        self.closed = False
        self.works = asyncio.Event()

    async def run(self) -> None:
        self.runs += 1
        if self.runs < 3:
            raise ExceptionGroup("of tasks", [ZeroDivisionError("a poisoned message")])
        self.works.set()
        await asyncio.Event().wait()

    def close(self) -> None:
        self.closed = True


async def test_a_message_that_breaks_the_desk_is_told_and_the_desk_begun_anew(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(command_server, "AGAIN_SECONDS", 0.01)
    desk, told = _Desk(), list[tuple[WatchEvent, str]]()

    def report(event: WatchEvent, text: str) -> None:
        told.append((event, text))

    task = asyncio.create_task(serve(desk, report, lambda low, high: low))
    async with asyncio.timeout(10):
        await desk.works.wait()
    assert [event for event, _ in told] == [WatchEvent.FAILED] * 2
    assert all(record.exc_info for record in caplog.records)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert desk.closed


async def test_a_desk_whose_file_is_damaged_opens_when_that_was_moved_away(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(command_server, "AGAIN_SECONDS", 0.01)
    path, told = tmp_path / "commands.db", asyncio.Event()
    path.write_bytes(b"this is no database, and never was one" * 100)
    words: list[str] = []

    def report(_event: WatchEvent, text: str) -> None:
        words.append(text)
        told.set()

    def open_desk() -> _Desk:
        SqliteCommandDatabase.open(path).close()
        return _Desk()

    opening = asyncio.create_task(open_when_possible(open_desk, report))
    async with asyncio.timeout(10):
        await told.wait()
        await asyncio.sleep(0.05)
        path.unlink()
        await opening
    assert len(words) == 1
    assert "move it away" in words[0]
