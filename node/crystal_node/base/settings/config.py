"""``config.json``: what commands have written and what a person may edit.

Fields that this version does not know are kept when the file is rewritten (``Settings.save``).
"""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from crystal_node.base.decoding import from_json
from crystal_node.base.errors import BadConfig
from crystal_node.base.settings.checks import (
    BANDWIDTH_KIB_MAX,
    FILE_PATTERN_CHARS_MAX,
    FILE_RULES_MAX,
    OPTION_CHARS_MAX,
    URL_CHARS_MAX,
)
from crystal_node.base.settings.options import BY_NAME, as_text

CONFIG_BYTES_MAX = 64 * 1024
CONFIG_VERSION = 1
FileName = Annotated[str, msgspec.Meta(min_length=1, max_length=FILE_PATTERN_CHARS_MAX)]
FileRule = Annotated[str, msgspec.Meta(pattern=r"^[+-]", max_length=FILE_PATTERN_CHARS_MAX + 1)]
OptionValue = Annotated[str, msgspec.Meta(max_length=OPTION_CHARS_MAX)] | int | bool | None
"""An option as JSON has it; None where the file does not name it. Its meaning is checked when it is resolved."""


class DeviceConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """What ``crystal init``, ``crystal pair`` and other commands write.

    ``key_store_left`` is the place that an interrupted `crystal keys move` may have left copies in, ``keyring_backend`` the
    keyring's class, ``kit_verified`` a mark of the root whose recovery kit was typed back (``device.recovery_kit``).
    """

    version: Annotated[int, msgspec.Meta(ge=1)] = 1
    vault: Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{32})?$")] = ""
    relay_url: Annotated[str, msgspec.Meta(max_length=URL_CHARS_MAX)] = ""
    agent: Annotated[str, msgspec.Meta(max_length=64)] = ""
    name: Annotated[str, msgspec.Meta(max_length=100)] = ""
    key_store: Annotated[str, msgspec.Meta(max_length=20)] = ""
    key_store_left: Annotated[str, msgspec.Meta(max_length=20)] = ""
    keyring_backend: Annotated[str, msgspec.Meta(max_length=100)] = ""
    kit_verified: Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{16})?$")] = ""
    relay_allow_http: bool = False
    relay_timeout: Annotated[float, msgspec.Meta(ge=0, le=600)] = 0.0
    bandwidth_up: Annotated[int, msgspec.Meta(ge=0, le=BANDWIDTH_KIB_MAX)] = 0
    bandwidth_down: Annotated[int, msgspec.Meta(ge=0, le=BANDWIDTH_KIB_MAX)] = 0
    files_rules: Annotated[tuple[FileRule, ...], msgspec.Meta(max_length=FILE_RULES_MAX)] = ()
    files_allowed: Annotated[tuple[FileName, ...], msgspec.Meta(max_length=FILE_RULES_MAX)] = ()


if TYPE_CHECKING:
    Config = DeviceConfig
else:
    # The options follow from their table: one field each.
    Config = msgspec.defstruct(
        "Config",
        [(name, OptionValue, None) for name in BY_NAME],
        bases=(DeviceConfig,),
        frozen=True,
        omit_defaults=True,
        module=__name__,
    )

_EMPTY = Config()
_SETTLED_NS = 2_000_000_000
"""A file that changed longer ago gets another stamp if it changes again, however coarse its file system's times are."""


def text_in(config: Config, name: str) -> str:
    """A setting's text; "" where the file does not name it."""
    value = getattr(config, name, None)
    return "" if value == getattr(_EMPTY, name, None) else as_text(value)


class CurrentConfig:
    """``config.json`` as it is now, read again only after it was written: a background service asks every two seconds."""

    def __init__(self) -> None:
        self._read: tuple[Path, tuple[int, ...], Config] | None = None

    def read(self, path: Path) -> Config:
        """As ``read_config``."""
        try:
            info = os.stat(path)  # noqa: PTH116  every two seconds
        except OSError:
            self._read = None
            return read_config(path)
        stamp = (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
        if self._read is not None and self._read[:2] == (path, stamp):
            return self._read[2]
        config = read_config(path)
        settled = time.time_ns() - max(info.st_mtime_ns, info.st_ctime_ns) > _SETTLED_NS
        self._read = (path, stamp, config) if settled else None
        return config


def read_config(path: Path) -> Config:
    """Reads ``config.json``; an absent file is the empty configuration.

    Raises:
        BadConfig: too large, no JSON, a wrong type, or written by a later version.
    """
    try:
        with path.open("rb") as file:
            data = file.read(CONFIG_BYTES_MAX + 1)
    except FileNotFoundError:
        return Config()
    if len(data) > CONFIG_BYTES_MAX:
        raise BadConfig(
            f"{path} is over {CONFIG_BYTES_MAX} bytes", hint="Restore it from a backup or remove it."
        )
    try:
        config = from_json(data, Config)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        if _is_prototypes(data):
            raise BadConfig(
                f"{path} is of the published prototype: its home is not set up for Crystal yet",
                hint="`crystal takeover` copies all of it beside, and makes room; then `crystal up`.",
            ) from error
        raise BadConfig(
            f"{path} is damaged: {error}", hint="Mend that line; `crystal config` checks it."
        ) from error
    if config.version > CONFIG_VERSION:
        raise BadConfig(
            f"{path} was written by a later version of Crystal", hint="Update Crystal on this machine."
        )
    return config


class _PrototypeConfig(msgspec.Struct, frozen=True):
    version: str
    agents: list[str]


def _is_prototypes(data: bytes) -> bool:
    try:
        from_json(data, _PrototypeConfig)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True
