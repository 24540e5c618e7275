"""How an error reaches the person or the program that ran the command."""

import sys
import traceback

from crystal_node.errors import ExitCode, Failure, describe
from crystal_node.settings import debug_wanted


def report(error: BaseException, *, as_json: bool, debug: bool) -> int:
    """Writes an error to standard error and returns its exit code."""
    failure = _usage(error) or describe(error)
    if debug or debug_wanted():
        traceback.print_exception(error, file=sys.stderr)
    if as_json:
        from crystal_node.cli.output import json_line

        document = {"error": failure.message, "hint": failure.hint, "exit_code": failure.exit_code}
        sys.stderr.write(json_line(document))
    else:
        sys.stderr.write(f"crystal: {failure.message}\n")
        if failure.hint:
            sys.stderr.write(f"  {failure.hint}\n")
    return failure.exit_code


def _usage(error: BaseException) -> Failure | None:
    """What the argument parser says, with the hint that every command has."""
    import typer

    if isinstance(error, typer.Abort):
        return Failure("stopped, nothing was done", "", ExitCode.INTERRUPTED)
    if isinstance(error, typer.TyperException):
        command = getattr(getattr(error, "ctx", None), "command_path", "crystal")
        return Failure(error.format_message(), f"`{command} --help` shows how it is used.", ExitCode.USAGE)
    return None
