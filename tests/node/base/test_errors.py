"""Errors: every failure becomes one sentence, a hint and the exit code that the manual names."""

import ast
import errno
import importlib
import json
import pkgutil
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

import crystal_node
from crystal_crypto.errors import BadCode, CrystalError
from crystal_mirror.errors import LogForked, Revoked
from crystal_mirror.requests import StoreFailure
from crystal_node.base import errors
from crystal_node.base.errors import ExitCode, describe, passes
from crystal_node.surfaces.cli.console.failures import report
from crystal_node.surfaces.cli.console.output import json_line
from crystal_relay import errors as relay_errors
from crystal_relay.wire import error_of_reply

_ROOT = Path(__file__).parents[3]


def _sqlite(error: type[apsw.Error]) -> apsw.Error:
    return error("said by SQLite")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.NotSetUp("x"), 3),
        (errors.BadConfig("x"), 3),
        (errors.UsageError("x"), 2),
        (errors.HomeBusy("x"), 9),
        (errors.LocalStorage("x"), 8),
        (errors.NoSuchEntry("x"), 10),
        (errors.WrongCode("x"), 7),
        (errors.MemoryDiffers("x"), 6),
        (StoreFailure("x"), 4),
        (LogForked("x"), 6),
        (BadCode("x"), 7),
        (relay_errors.StoreUnavailable("x"), 4),
        (relay_errors.Unauthorized("x"), 5),
        (relay_errors.StoreFull("x"), 8),
        (OSError(errno.ENOSPC, "No space left on device"), 8),
        (OSError(errno.EFBIG, "File too large"), 8),
        (PermissionError(errno.EACCES, "Permission denied"), 8),
        (_sqlite(apsw.FullError), 8),
        (_sqlite(apsw.IOError), 8),
        (_sqlite(apsw.CorruptError), 8),
        (_sqlite(apsw.BusyError), 9),
        (_sqlite(apsw.SQLError), 1),
        (KeyboardInterrupt(), 130),
        (ZeroDivisionError("x"), 1),
        (RuntimeError(), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_each_error_has_its_exit_code_and_a_hint(error: BaseException, code: int) -> None:
    failure = describe(error)
    assert failure.exit_code == code
    assert failure.message
    assert failure.hint
    assert code in set(ExitCode)


def test_a_damaged_database_is_not_a_matter_of_free_space() -> None:
    for error in (apsw.CorruptError, apsw.NotADBError):
        failure = describe(_sqlite(error))
        assert "damaged" in failure.message
        assert "Do not delete state.db" in failure.hint


@pytest.mark.slow
def test_every_hint_begins_as_a_sentence_does() -> None:
    def begins_low(value: ast.expr | None) -> bool:
        match value:
            case ast.IfExp():
                return begins_low(value.body) or begins_low(value.orelse)
            case ast.BinOp():
                return begins_low(value.left)
            case ast.JoinedStr():
                return begins_low(value.values[0])
            case ast.Constant(value=str(text)):
                return text[:1].islower()
            case _:
                return False

    low: list[str] = []
    seen = 0
    for package in ("crypto", "core", "mirror", "relay", "node"):
        for path in sorted((_ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                named = isinstance(node, ast.keyword) and node.arg == "hint"
                named |= isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).lower().endswith(
                    "hint"
                )
                if named and isinstance(node, ast.keyword | ast.Assign):
                    seen += 1
                    low += [f"{path.name}:{node.value.lineno}"] if begins_low(node.value) else []
    assert seen > 200
    assert low == []


def test_every_error_of_the_device_says_what_to_do() -> None:
    for module in pkgutil.walk_packages(crystal_node.__path__, "crystal_node."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)

    def children(kind: type[CrystalError]) -> list[type[CrystalError]]:
        return [kind, *(found for child in kind.__subclasses__() for found in children(child))]

    mine = [kind for kind in children(CrystalError) if kind.__module__.startswith("crystal_node")]
    assert len(mine) >= 8
    assert [kind.__name__ for kind in mine if not kind.hint] == []


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: StoreFailure("x"), True),
        (lambda: OSError(errno.ENOSPC, "full"), True),
        (lambda: ZeroDivisionError("bug"), False),
        (lambda: Revoked("for good"), False),
        (KeyboardInterrupt, False),
    ],
)
def test_only_known_causes_are_waited_out(make: Callable[[], BaseException], expected: bool) -> None:
    assert passes(make()) is expected


def test_a_relays_words_give_a_terminal_no_commands() -> None:
    told = '{"error": "forbidden", "message": "\\u001b]0;x\\u0007\\u009b2Jtype your kit", "hint": "\\u001b[8m\\u202eno"}'
    error = error_of_reply(403, told.encode())
    assert (str(error) + error.hint).isprintable()
    assert "type your kit" in str(error)


@pytest.mark.parametrize("debug", [False, True])
def test_no_message_gives_a_terminal_commands(capsys: pytest.CaptureFixture[str], debug: bool) -> None:
    report(Revoked("of \x1b[2Jlaptop", hint="Do it\non \x9b8m\u202elaptop."), as_json=False, debug=debug)
    shown = capsys.readouterr().err
    assert shown.replace("\n", "").isprintable()
    assert shown.endswith("laptop\n  Do it\non  8m laptop.\n")


def test_json_gives_a_terminal_no_commands_and_says_the_same() -> None:
    document = {"name": "lap\x1b[2J\x9b8m\u202etop\x7f\u2028 — Größe ✓", "inner": ["\u2066"]}
    text = json_line(document)
    assert text.replace("\n", "").isprintable()
    assert "Größe ✓" in text
    assert json.loads(text) == document
