"""Log of the background service: JSON lines in ``logs/agent.log``, at most five files of 2 MiB, for their owner only.

A line is ``{"at", "level", "event", "text"}``, with ``trace`` after an unknown error. It says what was done and how much, never
what was said in a conversation, and holds no key: traces are code lines without values. A full disk costs lines only.
"""

import json
import logging
import logging.handlers
import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

import msgspec

from crystal_node.base.clock import now_ms
from crystal_node.base.decoding import from_json
from crystal_node.base.events import Report, WatchEvent
from crystal_node.base.home import DIRECTORY_MODE, FILE_MODE
from crystal_node.base.wording import iso

LOG_BYTES_MAX = 2 * 1024 * 1024
LOG_FILES = 5
TEXT_CHARS_MAX = 2000
TRACE_CHARS_MAX = 8000
FOLLOW_SECONDS = 0.25
"""Between two looks of `crystal agent logs --follow`."""
_READ_BYTES_MAX = LOG_FILES * (LOG_BYTES_MAX + 64 * 1024)

_log = logging.getLogger("crystal_node.agent.daemon")


class _Handler(logging.handlers.RotatingFileHandler):
    """Makes its files for the owner only, and survives a full disk."""

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
        file = os.fdopen(os.open(self.baseFilename, flags, FILE_MODE), "ab")
        return TextIOWrapper(file, encoding="utf-8", errors="backslashreplace")

    def emit(self, record: logging.LogRecord) -> None:
        """Opens the file again if it was deleted."""
        if self.stream is not None and not self._stands(self.stream):
            self._drop()
        super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  logging's name
        """Drops the line. The next one opens the file again."""
        self._drop()

    def close(self) -> None:
        self._drop()
        super().close()

    def _stands(self, stream: TextIO) -> bool:
        try:
            return os.path.samestat(Path(self.baseFilename).stat(), os.fstat(stream.fileno()))
        except OSError:
            return False

    def _drop(self) -> None:
        stream, self.stream = self.stream, None
        if stream is not None:
            with suppress(OSError):  # what is not written yet cannot be written now either
                stream.close()


class _Lines(logging.Formatter):
    """One JSON document a line."""

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, Any] = {
            "at": iso(round(record.created * 1000)),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", record.name.rpartition(".")[2]),
            "text": record.getMessage()[:TEXT_CHARS_MAX],
        }
        if record.exc_info:
            document["trace"] = self.formatException(record.exc_info)[-TRACE_CHARS_MAX:]
        # A file name that is not UTF-8 costs its odd bytes, not the line.
        document["text"] = document["text"].encode("utf-8", "backslashreplace").decode("utf-8")
        return json.dumps(document, ensure_ascii=False)


@contextmanager
def logging_to(path: Path, level: str) -> Generator[None]:
    """Logs this process to the file until exit; of libraries only warnings."""
    path.parent.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
    handler = _Handler(path, maxBytes=LOG_BYTES_MAX, backupCount=LOG_FILES - 1, delay=True, encoding="utf-8")
    handler.setFormatter(_Lines())
    root, ours = logging.getLogger(), logging.getLogger("crystal_node")
    before = root.level, ours.level
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    ours.setLevel(level.upper())
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before[0])
        ours.setLevel(before[1])
        handler.close()


def logged(report: Report) -> Report:
    """A report that writes to the log, then calls ``report``."""

    def tell(event: WatchEvent, text: str) -> None:
        _log.log(
            logging.WARNING if event is WatchEvent.FAILED else logging.INFO,
            "%s",
            text,
            extra={"event": event.value},
        )
        report(event, text)

    return tell


def quiet(_event: WatchEvent, _text: str) -> None:
    """Discards events."""


def last_lines(path: Path, count: int) -> list[dict[str, Any]]:
    """The last lines of the log and its older files, oldest first. A line that is not JSON is shown as text."""
    found: list[dict[str, Any]] = []
    for number in range(LOG_FILES):
        file = path if not number else path.with_name(f"{path.name}.{number}")
        try:
            with file.open("rb") as log:
                lines = log.read(_READ_BYTES_MAX).splitlines()
        except FileNotFoundError:
            continue
        found = [parsed(line) for line in lines[-(count - len(found)) :]] + found
        if len(found) >= count:
            break
    return found


def follow(path: Path, *, sleep: Callable[[float], None] = time.sleep) -> Generator[dict[str, Any]]:
    """New lines as they are written, across rotations, for ever. Begins at the end of the file."""
    log, rest = _opened(path), b""
    if log is not None:
        log.seek(0, os.SEEK_END)
    try:
        while True:
            sleep(FOLLOW_SECONDS)
            turned = _turned(path, log)
            data = b"" if log is None else log.read()
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                yield parsed(line)
            if turned:  # the old file has been read to its end
                if log is not None:
                    log.close()
                log, rest = _opened(path), b""
    finally:
        if log is not None:
            log.close()


def parsed(line: bytes) -> dict[str, Any]:
    """A line of the log as a dictionary."""
    with suppress(msgspec.MsgspecError, UnicodeDecodeError):
        return from_json(line, dict[str, Any])
    return {"at": iso(now_ms()), "level": "unknown", "event": "", "text": line.decode("utf-8", "replace")}


def _opened(path: Path) -> BufferedReader | None:
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None


def _turned(path: Path, log: BufferedReader | None) -> bool:
    """Whether the log was rotated."""
    try:
        info = path.stat()
    except FileNotFoundError:
        return False
    return log is None or os.fstat(log.fileno()).st_ino != info.st_ino
