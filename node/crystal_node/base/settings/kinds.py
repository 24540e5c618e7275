"""What a setting's text may be, and the typed value that it stands for."""

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import NamedTuple

from crystal_node.base.settings.checks import (
    checked_address,
    checked_choice,
    checked_denials,
    checked_folder,
    checked_names,
    checked_number,
    checked_switch,
    checked_text,
    checked_zone,
    yes,
)


class Roots(NamedTuple):
    """What relative folders begin at: the memory home, the person's home folder, and the folder of programs' data."""

    home: Path
    person: Path
    data: Path


class ValueKind(NamedTuple):
    """How a setting's text is checked (name, text, origin) and what typed value it stands for."""

    check: Callable[[str, str, str], str]
    typed: Callable[[str, Roots], object]


def _plain(text: str, _: Roots) -> str:
    return text


def _folder(text: str, roots: Roots) -> Path | None:
    if not text:
        return None
    if text == "~" or text.startswith("~/"):
        return roots.person / text[2:]
    return Path(text).absolute()


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _switch(text: str, _: Roots) -> bool:
    return yes(text)


def _names(text: str, _: Roots) -> frozenset[str]:
    return frozenset(_parts(text))


def _denials(text: str, _: Roots) -> tuple[str, ...]:
    return _parts(text)


def _whole_number(text: str, _: Roots) -> int:
    return int(text)


TEXT = ValueKind(checked_text, _plain)
SWITCH = ValueKind(checked_switch, _switch)
ADDRESS = ValueKind(checked_address, _plain)
ZONE = ValueKind(checked_zone, _plain)
FOLDER = ValueKind(checked_folder, _folder)
NAMES = ValueKind(checked_names, _names)
DENIALS = ValueKind(checked_denials, _denials)
PARTS = ValueKind(checked_text, _denials)


def choice(*choices: str) -> ValueKind:
    """One of several words."""
    return ValueKind(partial(checked_choice, choices), _plain)


def enumeration(kind: type[StrEnum]) -> ValueKind:
    """One of an enumeration's words."""

    def typed(text: str, _: Roots) -> StrEnum:
        return kind(text)

    return ValueKind(partial(checked_choice, tuple(kind)), typed)


def number(least: int, most: int) -> ValueKind:
    """A whole number within bounds."""
    return ValueKind(partial(checked_number, (least, most)), _whole_number)


def folder_or(otherwise: Callable[[Roots], Path]) -> ValueKind:
    """A folder, or another one where none is set."""

    def typed(text: str, roots: Roots) -> Path:
        return _folder(text, roots) or otherwise(roots)

    return ValueKind(checked_folder, typed)
