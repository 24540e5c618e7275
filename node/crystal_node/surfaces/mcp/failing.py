"""Errors as sentences for models: what went wrong and what to do, and nothing of our insides."""

import logging

from crystal_node.base.errors import ExitCode, describe

_log = logging.getLogger(__name__)


def error_sentence(what: str, error: Exception) -> str:
    """What a client is told. Of what is a bug, only its kind: the text of such an error may hold anything."""
    failure = describe(error)
    if failure.exit_code == ExitCode.UNEXPECTED:
        _log.error("%s failed by a bug: %s", what, type(error).__name__)
        return f"{what} failed by a bug in Crystal ({type(error).__name__}). Go on without it, and tell the person."
    message = failure.message[:1].upper() + failure.message[1:]
    return f"{message.rstrip('.')}. {failure.hint}"
