"""The agent's log: bounded, for its owner only, readable while it grows, and free of what was said."""

import json
import logging
import stat
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path

import pytest

from crystal_node.agent.daemon import logs
from crystal_node.agent.daemon.logs import LOG_FILES, follow, last_lines, logged, logging_to
from crystal_node.base.events import WatchEvent


def test_the_log_turns_over_keeps_five_files_and_none_is_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "LOG_BYTES_MAX", 2000)
    path = tmp_path / "logs" / "agent.log"
    with logging_to(path, "info"):
        tell = logged(logs.quiet)
        for number in range(200):
            tell(WatchEvent.SYNCED, f"line {number} " + "x" * 80)
    files = sorted(path.parent.iterdir())
    assert len(files) == LOG_FILES
    assert all(file.stat().st_size <= 2200 for file in files)
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    last = last_lines(path, 20)
    assert [line["text"].split()[1] for line in last] == [str(number) for number in range(180, 200)]


def test_an_unknown_error_is_logged_with_its_trace_and_without_any_value(tmp_path: Path) -> None:
    path = tmp_path / "agent.log"
    secret = "hunter2-" + "7" * 20
    with logging_to(path, "info"):
        try:
            {"key": secret}["other"]
        except KeyError:
            logging.getLogger("crystal_node.agent.daemon").exception("a mistake")
    (line,) = last_lines(path, 10)
    assert "KeyError" in line["trace"]
    assert secret not in path.read_text()


def test_libraries_say_only_warnings_and_the_level_is_the_persons(tmp_path: Path) -> None:
    path = tmp_path / "agent.log"
    with logging_to(path, "warning"):
        logging.getLogger("httpx").info("GET https://relay.example.org")
        logging.getLogger("httpx").warning("odd")
        logged(logs.quiet)(WatchEvent.SYNCED, "sent")
        logged(logs.quiet)(WatchEvent.FAILED, "away")
    assert [line["text"] for line in last_lines(path, 10)] == ["odd", "away"]


def test_a_full_disk_costs_lines_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_handler: object) -> TextIOWrapper:
        return Path("/dev/full").open("a", encoding="utf-8", buffering=1)

    monkeypatch.setattr("crystal_node.agent.daemon.logs._Handler._open", full)
    with logging_to(tmp_path / "agent.log", "info"):
        logged(logs.quiet)(WatchEvent.SYNCED, "sent")


def test_a_log_that_somebody_made_a_link_is_not_written_through(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("theirs")
    (tmp_path / "agent.log").symlink_to(other)
    with logging_to(tmp_path / "agent.log", "info"):
        logged(logs.quiet)(WatchEvent.SYNCED, "sent")
    assert other.read_text() == "theirs"


def test_what_comes_is_followed_through_a_turn_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "agent.log"
    path.write_text(json.dumps({"text": "old"}) + "\n")

    def add(text: str) -> None:
        with path.open("a") as file:
            file.write(text)

    def turn() -> None:
        add('{"text": "last"}\n')
        path.rename(tmp_path / "agent.log.1")
        add('{"text": "after the turn"}\n')

    steps: list[Callable[[], None]] = [
        lambda: add('{"text": "new"}\n{'),
        lambda: add('"text": "in two"}\n'),
        turn,
        lambda: None,
    ]
    lines = follow(path, sleep=lambda _: steps.pop(0)())
    assert [next(lines)["text"] for _ in range(4)] == ["new", "in two", "last", "after the turn"]
    lines.close()


def test_a_line_that_is_no_document_is_shown_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "agent.log"
    path.write_bytes(b"half a li\xff\n")
    (line,) = last_lines(path, 5)
    assert line["text"].startswith("half a li")


def test_a_name_that_is_no_text_costs_no_line(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "agent.log"
    with logging_to(path, "info"):
        logging.getLogger("crystal_node.agent.daemon").info("cannot read %s", "caf\udce9.md")
    assert [line["text"] for line in last_lines(path, 5)] == ["cannot read caf\\udce9.md"]


def test_a_log_that_somebody_took_away_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "agent.log"
    with logging_to(path, "info"):
        log = logging.getLogger("crystal_node.agent.daemon")
        log.info("one")
        path.unlink()
        log.info("two")
    assert [line["text"] for line in last_lines(path, 5)] == ["two"]
