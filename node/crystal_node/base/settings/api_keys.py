"""API keys of the providers of language models and embeddings. They are no settings: never shown, stored, or put in a message.

Each comes from its variable, else from ``.env`` beside the database, which only its owner may read: lines ``NAME=value``, with
or without ``export`` and quotes.
"""

import os
import stat
from collections.abc import Mapping
from enum import StrEnum

from crystal_core.llm.errors import Refused
from crystal_node.base.errors import LocalStorage
from crystal_node.base.home import Home, exposure

KEY_CHARS_MAX = 1024
ENV_BYTES_MAX = 64 * 1024
ENV_FILE = ".env"
_SUBSCRIPTION = "sk-ant-oat01-"
"""Prefix of a subscription's token, which is no API key."""


class KeyOwner(StrEnum):
    """The provider that a key belongs to."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    COMPATIBLE = "openai-compatible"
    GOOGLE = "google"
    EMBEDDING = "the embedding server"

    @property
    def variable(self) -> str:
        return {
            KeyOwner.OPENAI: "OPENAI_API_KEY",
            KeyOwner.ANTHROPIC: "ANTHROPIC_API_KEY",
            KeyOwner.COMPATIBLE: "CRYSTAL_LLM_API_KEY",
            KeyOwner.GOOGLE: "GOOGLE_API_KEY",
            KeyOwner.EMBEDDING: "CRYSTAL_EMBEDDING_API_KEY",
        }[self]


class ApiKey:
    """A key that appears in no repr: ``reveal`` returns it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "ApiKey(…)"


def api_key(owner: KeyOwner, home: Home, environment: Mapping[str, str] | None = None) -> ApiKey | None:
    """The provider's key; None if there is none.

    Raises:
        Refused: the value is no API key.
        LocalStorage: the file can be read by others.
    """
    env = os.environ if environment is None else environment
    value = env.get(owner.variable, "").strip() or _from_file(owner.variable, home)
    if not value:
        return None
    if value.startswith(_SUBSCRIPTION):
        raise Refused(
            f"{owner.variable} holds the token of a subscription, which is no API key",
            hint="Make an API key in the provider's console, or let Claude Code answer: --provider claude-cli.",
        )
    if len(value) > KEY_CHARS_MAX or not value.isascii() or not value.isprintable() or " " in value:
        raise Refused(f"{owner.variable} holds something that is no API key")
    return ApiKey(value)


def _from_file(variable: str, home: Home) -> str:
    path = home.database.parent / ENV_FILE
    problem = exposure(path)
    if problem is not None:
        raise LocalStorage(problem.text, hint=problem.fix)
    try:
        with open(path, "rb", opener=_open) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return ""
            text = file.read(ENV_BYTES_MAX).decode("utf-8", "replace")
    except (FileNotFoundError, IsADirectoryError):
        return ""
    for line in text.splitlines():
        name, found, value = line.strip().removeprefix("export ").partition("=")
        if found and name.strip() == variable:
            return value.strip().strip("\"'")
    return ""


def _open(path: str, flags: int) -> int:
    """Opens without waiting: a pipe of that name may have no writer."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
