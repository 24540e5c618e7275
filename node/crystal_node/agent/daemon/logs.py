"""The agent's log: JSON lines in ``logs/agent.log``, five files of 2 MiB at most, for their owner only.

A line is ``{"at", "level", "event", "text"}``, with ``trace`` where something unknown went wrong. It holds what the agent did
and how much of it, never what was said in a conversation, and no key: traces are code lines without values. A full disk costs
lines, never the agent.
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
    """Makes its files for the owner only, and takes a full disk in its stride."""

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
        file = os.fdopen(os.open(self.baseFilename, flags, FILE_MODE), "ab")
        return TextIOWrapper(file, encoding="utf-8", errors="backslashreplace")

    def emit(self, record: logging.LogRecord) -> None:
        """A file that somebody took away is made anew: nobody would read what goes on in it."""
        if self.stream is not None and not self._stands(self.stream):
            self._drop()
        super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  logging's name
        """There is nowhere left to say it. The next line opens the file anew."""
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
        # A name on the disk that is no text costs its odd bytes, not the line.
        document["text"] = document["text"].encode("utf-8", "backslashreplace").decode("utf-8")
        return json.dumps(document, ensure_ascii=False)


@contextmanager
def logging_to(path: Path, level: str) -> Generator[None]:
    """While this lasts, what the agent's process logs goes to that file; of libraries only warnings."""
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
    """Tells the log and then ``report``."""

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
    """A report that tells nobody."""


def last_lines(path: Path, count: int) -> list[dict[str, Any]]:
    """The last lines of the log, older files included, oldest first. A line that is none is shown as text."""
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
    """New lines as they come, through rotations, for ever. Begins at the end of what is there."""
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
            if turned:  # what was written to the old file until then has been read
                if log is not None:
                    log.close()
                log, rest = _opened(path), b""
    finally:
        if log is not None:
            log.close()


def parsed(line: bytes) -> dict[str, Any]:
    """A line as a document."""
    with suppress(msgspec.MsgspecError, UnicodeDecodeError):
        return msgspec.json.decode(line, type=dict[str, Any])
    return {"at": iso(now_ms()), "level": "unknown", "event": "", "text": line.decode("utf-8", "replace")}


def _opened(path: Path) -> BufferedReader | None:
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None


def _turned(path: Path, log: BufferedReader | None) -> bool:
    """Whether the name is another file's by now."""
    try:
        info = path.stat()
    except FileNotFoundError:
        return False
    return log is None or os.fstat(log.fileno()).st_ino != info.st_ino
