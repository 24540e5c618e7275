"""How an error reaches the person or the program that ran the command.

Messages may quote a relay or another device, so that control characters are removed from them.
"""

import sys
import traceback

import typer

from crystal_node.base.errors import ExitCode, Failure, describe
from crystal_node.base.settings import debug_wanted
from crystal_node.base.wording import printable
from crystal_node.surfaces.cli.console.output import json_line


def report(error: BaseException, *, as_json: bool, debug: bool) -> int:
    """Write an error to standard error and return its exit code."""
    failure = _usage(error) or describe(error)
    if debug or debug_wanted():
        for line in "".join(traceback.format_exception(error)).splitlines():
            sys.stderr.write(printable(line) + "\n")
    if as_json:
        document = {"error": failure.message, "hint": failure.hint, "exit_code": failure.exit_code}
        sys.stderr.write(json_line(document))
    else:
        sys.stderr.write(f"crystal: {_lines(failure.message)}\n")
        if failure.hint:
            sys.stderr.write(f"  {_lines(failure.hint)}\n")
    return failure.exit_code


def _lines(text: str) -> str:
    """The text made printable, with its line breaks."""
    return "\n".join(printable(line) for line in text.split("\n"))


def _usage(error: BaseException) -> Failure | None:
    """The error of the argument parser, with a hint; None for any other error."""
    if isinstance(error, typer.Abort):
        return Failure("stopped, nothing was done", "", ExitCode.INTERRUPTED)
    if isinstance(error, typer.TyperException):
        command = getattr(getattr(error, "ctx", None), "command_path", "crystal")
        message = error.format_message() or "say which of its commands"
        return Failure(message, f"`{command} --help` shows how it is used.", ExitCode.USAGE)
    return None
