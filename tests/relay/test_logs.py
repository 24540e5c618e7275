"""What a line of the relay's log holds, and what none may hold."""

import json
import logging
import sys

import pytest

from crystal_relay.errors import StoreDamaged, StoreFull
from crystal_relay.server import logs
from crystal_relay.server.logs import LogForm, formatter, new_request_id, redacted, request_log
from crystal_relay.tokens import new_token

DEVICE = "0123456789abcdef0123456789abcdef"
SECRETS = [
    new_token(DEVICE),
    new_token(DEVICE).partition(".")[2],
    DEVICE,
    "ab" * 32,
    f"{DEVICE}.{'ab' * 32}",
    f"v/{DEVICE}/conversations/{DEVICE}.0123456789abcdef/0000000000000000",
    "r/enrollment/" + "cd" * 32,
    "AKIAIOSFODNN7EXAMPLE",
]


def record(message: str, *arguments: object, **extra: object) -> logging.LogRecord:
    return logging.getLogger("crystal_relay.server").makeRecord(
        "crystal_relay.server", logging.ERROR, __file__, 1, message, arguments, None, extra=extra
    )


@pytest.mark.parametrize("form", list(LogForm))
@pytest.mark.parametrize("secret", SECRETS, ids=range(len(SECRETS)))
def test_no_line_holds_what_looks_like_a_secret_an_id_or_a_key(form: LogForm, secret: str) -> None:
    for text in (
        secret,
        f"cannot read {secret}: gone",
        f'{{"Authorization": "Bearer {secret}"}}',
        f"a\n{secret}",
    ):
        assert secret not in formatter(form).format(record("%s", text))
        assert secret not in formatter(form).format(record(text, request_id=secret, route=secret))


@pytest.mark.parametrize("form", list(LogForm))
def test_a_traceback_is_written_without_secrets(form: LogForm) -> None:
    token = new_token(DEVICE)
    try:
        raise ValueError(f"no such thing: {token}")
    except ValueError:
        broken = logging.LogRecord("uvicorn.error", logging.ERROR, "", 1, "oh", (), sys.exc_info())
    line = formatter(form).format(broken)
    assert "ValueError" in line
    assert "in test_a_traceback_is_written_without_secrets" in line
    assert token not in line
    assert token.partition(".")[2] not in line


@pytest.mark.parametrize("form", list(LogForm))
def test_a_secret_that_the_process_knows_is_taken_out_whatever_it_looks_like(form: LogForm) -> None:
    line = formatter(form, ("hunter2 and more",)).format(record("it was hunter2 and more"))
    assert "hunter2" not in line


def test_what_is_no_secret_stays() -> None:
    text = (
        "crystal_relay.server: unavailable: the bucket cannot be reached (EndpointConnectionError, "
        'File "relay/crystal_relay/server/app.py", line 12, in test_a_second_relay_on_a_store_refuses_to_start)'
    )
    assert redacted(text) == text


def test_a_client_cannot_add_a_line() -> None:
    text = formatter(LogForm.TEXT).format(record("a\nERROR crystal_relay: forged\r\x1b[2J\u2028b"))
    assert len(text.splitlines()) == 1
    assert "\x1b" not in text
    as_json = formatter(LogForm.JSON).format(record("a\nb"))
    assert len(as_json.splitlines()) == 1
    assert json.loads(as_json)["message"] == "a\nb"


def test_a_line_is_bounded() -> None:
    for form in LogForm:
        assert len(formatter(form).format(record("x" * 1_000_000))) < 2 * logs.LINE_CHARS_MAX


def test_a_requests_line_has_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    name = new_request_id()
    with caplog.at_level(logging.DEBUG, "crystal_relay.server"):
        request_log(name, "PUT", "put_object", 201, 0.01234, 4096, 0)
    # A summary of refusals that other tests caused may come first.
    (line,) = [
        json.loads(formatter(LogForm.JSON).format(made))
        for made in caplog.records
        if made.levelno == logging.DEBUG
    ]
    assert line.pop("ts").endswith("Z")
    assert line == {
        "level": "debug",
        "logger": "crystal_relay.server",
        "message": "PUT put_object 201 12.3 ms",
        "request_id": name,
        "method": "PUT",
        "route": "put_object",
        "status": 201,
        "ms": 12.3,
        "received": 4096,
        "sent": 0,
    }


@pytest.mark.parametrize(
    ("status", "level"),
    [
        (200, "DEBUG"),
        (304, "DEBUG"),
        (404, "INFO"),
        (429, "INFO"),
        (500, "WARNING"),
        (507, "WARNING"),
        (0, "WARNING"),
    ],
)
def test_what_failed_here_is_a_warning(
    caplog: pytest.LogCaptureFixture, clock: list[float], status: int, level: str
) -> None:
    with caplog.at_level(logging.DEBUG, "crystal_relay.server"):
        request_log("x", "GET", "health", status, 0.0, 0, 0)
    assert [made.levelname for made in caplog.records] == [level]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time by which lines are limited, and none written before."""
    now = [1_000.0]
    monkeypatch.setattr(logs, "_calm", logs.Calm())
    monkeypatch.setattr("crystal_relay.server.logs.time.monotonic", lambda: now[0])
    return now


def test_an_overload_does_not_flood_the_log(caplog: pytest.LogCaptureFixture, clock: list[float]) -> None:
    with caplog.at_level(logging.WARNING, "crystal_relay.server"):
        for _ in range(1_000):
            request_log("x", "PUT", "put_object", 503, 0.0, 0, 0, "busy")
        clock[0] += logs.CALM_SECONDS
        request_log("x", "GET", "ready", 200, 0.0, 0, 0)
        request_log("x", "PUT", "put_object", 503, 0.0, 0, 0, "busy")
    assert [made.getMessage() for made in caplog.records] == [
        "PUT put_object 503 busy 0.0 ms",
        "and 999 more: 503 busy",
        "PUT put_object 503 busy 0.0 ms",
    ]


def test_a_quota_and_a_full_disk_are_told_apart_and_neither_hides_the_other(
    caplog: pytest.LogCaptureFixture, clock: list[float]
) -> None:
    with caplog.at_level(logging.WARNING, "crystal_relay.server"):
        for code in ("quota", "full", "quota", "full", "full"):
            request_log("x", "PUT", "put_object", 507, 0.0, 0, 0, code)
        clock[0] += logs.CALM_SECONDS
        request_log("x", "GET", "ready", 200, 0.0, 0, 0)
    lines = [json.loads(formatter(LogForm.JSON).format(made)) for made in caplog.records]
    assert [(line.get("code"), line["message"]) for line in lines] == [
        ("quota", "PUT put_object 507 quota 0.0 ms"),
        ("full", "PUT put_object 507 full 0.0 ms"),
        (None, "and 1 more: 507 quota"),
        (None, "and 2 more: 507 full"),
    ]


def test_what_the_operator_has_to_mend_says_how_and_once(
    caplog: pytest.LogCaptureFixture, clock: list[float]
) -> None:
    with caplog.at_level(logging.WARNING, "crystal_relay.server"):
        for _ in range(100):
            logs.failure_log("x", StoreFull("the relay's disk is full"))
        clock[0] += logs.CALM_SECONDS
        logs.failure_log("x", StoreDamaged("a row is damaged"))
    assert [(made.levelname, made.getMessage()) for made in caplog.records] == [
        ("ERROR", "full: the relay's disk is full. Free space on the relay's disk."),
        ("WARNING", "and 99 more: full"),
        ("ERROR", f"damaged: a row is damaged. {StoreDamaged.hint}"),
    ]


def test_request_ids_are_unique() -> None:
    names = {new_request_id() for _ in range(10_000)}
    assert len(names) == 10_000
    assert len({name.partition("-")[0] for name in names}) == 1
