"""Paths as a person gives them: a ``~`` that no shell has expanded is expanded here."""

from pathlib import Path

from crystal_node.base.errors import UsageError


def given_path(path: Path) -> Path:
    """The path, absolute, with ``~`` and ``~name`` expanded; links are not followed.

    Raises:
        UsageError: nobody on this machine has that name, or this user has no home folder.
    """
    try:
        return path.expanduser().absolute()
    except RuntimeError as error:
        raise UsageError(
            f"{str(path)!r}: the home folder of {path.parts[0]} is not known on this machine",
            hint="Write the whole path, beginning with /. A file whose name begins with ~ is written ./~name.",
        ) from error
