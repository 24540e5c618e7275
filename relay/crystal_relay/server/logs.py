"""The relay's log: one line for each request, and errors, as text or as JSON.

Two rules keep secrets out. Requests are logged by fields that no client chooses: the route's name, never the path, a header
or a body. And the formatters redact in every line, also of libraries, what looks like a token, a hash, a vault's id or a
key, and the secrets that this process knows.
"""

import enum
import itertools
import json
import logging
import re
import secrets
import time
from collections.abc import Iterable
from functools import cache

from crystal_relay.errors import RelayError

LINE_CHARS_MAX = 16 * 1024
"""Length of a line with its traceback."""
CALM_SECONDS = 10.0
"""Failures of one kind get one line in this time, and one with the number of the others: a relay under overload refuses
thousands of requests a second, and one whose disk is full each upload."""

_FIELDS = ("request_id", "method", "route", "status", "code", "ms", "received", "sent")
_REDACTED = "[redacted]"
_SECRETS = re.compile(
    r"""(?: (?i:Bearer|Crystal-Recovery|Crystal-Invite|Basic|AWS4-HMAC-SHA256)\ + [^\r\n"']+
        | \b[vrw]/ [A-Za-z0-9._-]+ (?: / [A-Za-z0-9._-]+ )*
        | (?<![0-9A-Za-z]) [0-9A-Fa-f]{32,} (?: \. [A-Za-z0-9_-]+ )?
        | (?<![0-9A-Za-z]) (?:AKIA|ASIA) [A-Z0-9]{16}
        | (?i: X-Amz-[a-z-]+ | token | secret | password ) ["']? [=:] \s* ["']? [^\s&"',}]+
        | (?<![0-9A-Za-z]) (?=[a-z0-9+_-]*[A-Z]) (?=[A-Za-z+_-]*[0-9]) [A-Za-z0-9+_-]{36,} ={0,2}
        )""",
    re.VERBOSE,
)
"""Credentials; keys of the store; ids, hashes and tokens; values of names such as `password`; long random strings."""
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")

_log = logging.getLogger("crystal_relay.server")
_numbers = itertools.count(1)


class LogForm(enum.StrEnum):
    """How lines are written."""

    TEXT = "text"
    JSON = "json"


def start_log(form: LogForm, *, verbose: bool, known_secrets: Iterable[str] = ()) -> None:
    """Log to stderr: warnings and errors, with `verbose` each request too. `known_secrets` are never written."""
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(form, known_secrets))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("crystal_relay").setLevel(logging.DEBUG if verbose else logging.WARNING)
    # The root stays at warnings, because libraries would log whole requests. uvicorn stays at errors without `verbose`,
    # because every port scan would be a line.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING if verbose else logging.ERROR)


def formatter(form: LogForm, known_secrets: Iterable[str] = ()) -> logging.Formatter:
    """The formatter of that form."""
    kind = _JsonFormatter if form is LogForm.JSON else _TextFormatter
    return kind(known_secrets)


def new_request_id() -> str:
    """An id for one request: unique in this process, and by 32 random bits among processes."""
    return f"{_process_name()}-{next(_numbers):06x}"


def request_log(
    request_id: str,
    method: str,
    route: str,
    status: int,
    seconds: float,
    received: int,
    sent: int,
    code: str = "",
) -> None:
    """Log one request.

    `status`: the answer's, or 0 if there was none. `received`, `sent`: bytes of the bodies. `code`: that of the error. What
    failed here is a warning, of which each kind (status and code) has one line in `CALM_SECONDS`.
    """
    _calm.flush(time.monotonic())
    failed = status >= 500 or not status
    level = logging.WARNING if failed else logging.INFO if status >= 400 else logging.DEBUG
    if not _log.isEnabledFor(level):
        return
    if failed and not _calm.may_write(f"{status} {code}".rstrip(), time.monotonic()):
        return
    ms = round(seconds * 1000, 1)
    # Passed as separate arguments, so that a client's value would be escaped and redacted like any other text.
    _log.log(
        level,
        "%s %s %d%s %.1f ms",
        method,
        route,
        status,
        f" {code}" if code else "",
        ms,
        extra={
            "request_id": request_id,
            "method": method,
            "route": route,
            "status": status,
            "code": code or None,
            "ms": ms,
            "received": received,
            "sent": sent,
        },
    )


def failure_log(request_id: str, error: RelayError) -> None:
    """Log what the operator has to mend: a full or damaged store, a bug. One line of each code in `CALM_SECONDS`."""
    if _calm.may_write(error.code, time.monotonic()):
        _log.error("%s: %s. %s", error.code, error, error.hint, extra={"request_id": request_id})


def redacted(text: str, known_secrets: Iterable[str] = ()) -> str:
    """The text without `known_secrets` and without what looks like a secret, an id or a key."""
    for secret in known_secrets:
        text = text.replace(secret, _REDACTED) if secret else text
    return _SECRETS.sub(_REDACTED, text)


# --- inside -----------------------------------------------------------------------------------------------------------


@cache
def _process_name() -> str:
    return secrets.token_hex(4)


class Calm:
    """Rate limit of log lines: of each kind one in `CALM_SECONDS`, and then the number of those that were left out."""

    def __init__(self) -> None:
        self._kinds: dict[str, tuple[float, int]] = {}
        """When the time of each kind ends, and the lines that were left out."""
        self._due = float("inf")

    def may_write(self, kind: str, now: float) -> bool:
        """Whether to write a line of this kind; counts it if not. Kinds come from a bounded set."""
        self.flush(now)
        known = self._kinds.get(kind)
        if known is not None:
            self._kinds[kind] = (known[0], known[1] + 1)
            return False
        self._kinds[kind] = (now + CALM_SECONDS, 0)
        self._due = min(self._due, now + CALM_SECONDS)
        return True

    def flush(self, now: float) -> None:
        """Write how many were left out, of the kinds whose time has ended."""
        if now < self._due:
            return
        for kind, (until, left_out) in tuple(self._kinds.items()):
            if until <= now:
                del self._kinds[kind]
                if left_out:
                    _log.warning("and %d more: %s", left_out, kind)
        self._due = min((until for until, _ in self._kinds.values()), default=float("inf"))


_calm = Calm()


class _Formatter(logging.Formatter):
    def __init__(self, known_secrets: Iterable[str]) -> None:
        super().__init__()
        self._known = known_secrets  # not copied: more may come

    def _message(self, record: logging.LogRecord) -> str:
        return redacted(record.getMessage(), self._known)[:LINE_CHARS_MAX]

    def _trace(self, record: logging.LogRecord) -> str:
        # Not `super().format`: it keeps the text with the record, where another handler would find it unredacted.
        parts = [self.formatException(record.exc_info)] if record.exc_info else []
        if record.stack_info:
            parts.append(record.stack_info)
        # The end of a traceback says what happened.
        return redacted("\n".join(parts), self._known)[-LINE_CHARS_MAX:]


class _TextFormatter(_Formatter):
    """`2026-01-31T12:00:00.123Z WARNING crystal_relay.server: …`, and the lines of a traceback below it."""

    def format(self, record: logging.LogRecord) -> str:
        name = getattr(record, "request_id", None)
        mark = f" [{redacted(str(name), self._known)}]" if name else ""
        line = f"{_timestamp(record)} {record.levelname} {record.name}{mark}: {self._message(record)}"
        line = _CONTROLS.sub(lambda found: repr(found.group())[1:-1], line)
        trace = self._trace(record)
        return f"{line}\n{trace}" if trace else line


class _JsonFormatter(_Formatter):
    """One object a line: ts, level, logger, message; of a request its fields; of an error its trace."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "ts": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._message(record),
        }
        for name in _FIELDS:
            value = getattr(record, name, None)
            if isinstance(value, int | float):
                line[name] = value
            elif isinstance(value, str):
                line[name] = redacted(value, self._known)
        trace = self._trace(record)
        if trace:
            line["trace"] = trace
        return json.dumps(line)


def _timestamp(record: logging.LogRecord) -> str:
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{moment}.{int(record.msecs):03d}Z"
