"""Turns errors into exit codes and messages."""

import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from enum import IntEnum
from typing import NoReturn

from crystal_relay.errors import RelayError


class RelayExitCode(IntEnum):
    """Exit codes of `crystal-relay`. Each class in `errors` has its own."""

    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    CANNOT_LISTEN = 3
    STORE_UNREACHABLE = 4
    REFUSED = 5
    STORAGE = 8
    IN_USE = 9
    NOT_FOUND = 10
    INTERRUPTED = 130


@contextmanager
def told(*, as_json: bool) -> Generator[None]:
    """Print an error with its hint, and exit with its code."""
    try:
        yield
    except RelayError as error:
        _fail(error, as_json=as_json)
    except KeyboardInterrupt:
        raise SystemExit(RelayExitCode.INTERRUPTED) from None


def _fail(error: RelayError, *, as_json: bool) -> NoReturn:
    if as_json:
        said = {"error": str(error), "hint": error.hint, "exit_code": error.exit_code}
        print(json.dumps(said), file=sys.stderr, flush=True)
    else:
        print(f"crystal-relay: {error}", file=sys.stderr)
        if error.hint:
            print(f"  {error.hint}", file=sys.stderr, flush=True)
    raise SystemExit(error.exit_code)
