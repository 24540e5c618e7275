"""How this program was installed, and which commands upgrade it.

Each installer leaves a mark: uv a ``uv-receipt.toml`` in the tool's environment, pipx a ``pipx_metadata.json``, Homebrew its
``Cellar`` in the path, and every installer the ``direct_url.json`` of PEP 610 where the package came from a folder or a file.
"""

import json
import site
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import invalidate_caches
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import cast
from urllib.parse import unquote, urlsplit

NAME = "memory-crystal"
"""The distribution's name."""
Command = tuple[str, ...]


class Installer(StrEnum):
    """What installed this program. The value is for people."""

    UV_TOOL = "uv tool"
    PIPX = "pipx"
    HOMEBREW = "Homebrew"
    CHECKOUT = "a source checkout"
    FOLDER = "pip, from a folder"
    PIP = "pip"
    UV_PIP = "uv pip"


@dataclass(frozen=True, slots=True)
class Installation:
    """``commands``: what upgrades it, one after the other. ``folder``: the sources, where it was installed from them."""

    installer: Installer
    version: str
    commands: tuple[Command, ...]
    folder: Path | None = None


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The Python that runs this program, its environment (``prefix``), and the Python behind that (``base_prefix``).

    ``user_site``: where its ``pip install --user`` puts packages of this person.
    """

    executable: str
    prefix: Path
    base_prefix: Path
    has_pip: bool
    user_site: Path

    @classmethod
    def current(cls) -> "Interpreter":
        """That of this process."""
        return cls(
            executable=sys.executable,
            prefix=Path(sys.prefix),
            base_prefix=Path(sys.base_prefix),
            has_pip=find_spec("pip") is not None,
            user_site=Path(site.getusersitepackages()),
        )


def find_installation(
    interpreter: Interpreter | None = None, package: Distribution | None = None
) -> Installation:
    """Looks at the marks of this process's own environment. Raises PackageNotFoundError: it was never installed."""
    python = interpreter or Interpreter.current()
    found = package or distribution(NAME)
    origin, editable = _origin(found)
    if editable and origin is not None:
        setup = (("git", "-C", str(origin), "pull", "--ff-only"), _pip(python, "--editable", str(origin)))
        return Installation(Installer.CHECKOUT, found.version, setup, origin)
    if (python.prefix / "uv-receipt.toml").is_file():
        return Installation(Installer.UV_TOOL, found.version, (("uv", "tool", "upgrade", NAME),))
    if (python.prefix / "pipx_metadata.json").is_file():
        return Installation(Installer.PIPX, found.version, (("pipx", "upgrade", _pipx_name(python.prefix)),))
    if "Cellar" in python.prefix.parts:
        return Installation(Installer.HOMEBREW, found.version, (("brew", "upgrade", NAME),))
    if origin is not None and origin.is_dir():
        steps = (("git", "-C", str(origin), "pull", "--ff-only"), _pip(python, "--upgrade", str(origin)))
        return Installation(Installer.FOLDER, found.version, steps, origin)
    installer = Installer.PIP if python.has_pip else Installer.UV_PIP
    more = ("--user",) if python.has_pip and _is_of_person(python, found) else ()
    return Installation(installer, found.version, (_pip(python, "--upgrade", *more, NAME),))


def version_now() -> str:
    """The installed version, which may have changed since this process began; "" if Crystal is no longer here."""
    invalidate_caches()
    try:
        return distribution(NAME).version
    except PackageNotFoundError:
        return ""


def _is_of_person(python: Interpreter, package: Distribution) -> bool:
    """Whether it was installed with ``--user``. Elsewhere that would make a second copy beside the first."""
    if python.prefix != python.base_prefix:
        return False
    return Path(str(package.locate_file(""))).resolve() == python.user_site.resolve()


def _pip(python: Interpreter, *arguments: str) -> Command:
    if python.has_pip:
        return (python.executable, "-P", "-m", "pip", "install", *arguments)
    # uv reads the uv.toml and pyproject.toml of the working directory and of those above it, which could name another index.
    return ("uv", "pip", "install", "--no-config", "--python", python.executable, *arguments)


def _pipx_name(prefix: Path) -> str:
    """The environment's name, which ``pipx install --suffix`` makes different from the package's."""
    return prefix.name or NAME


def _origin(package: Distribution) -> tuple[Path | None, bool]:
    """The folder or file that it was installed from, None for an index; and whether it runs from there (editable)."""
    try:
        document = json.loads(package.read_text("direct_url.json") or "{}")
    except ValueError:
        return None, False
    if not isinstance(document, Mapping):
        return None, False
    fields = cast("Mapping[str, object]", document)
    address, folder = fields.get("url"), fields.get("dir_info")
    parts = urlsplit(address if isinstance(address, str) else "")
    if parts.scheme != "file":
        return None, False
    return Path(unquote(parts.path)), isinstance(folder, Mapping) and folder.get("editable") is True
