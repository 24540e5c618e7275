"""Settings, resolved once per process: flag, then environment, then ``config.json``, then default.

This is the only module of the device that reads the environment. Each value keeps where it came from, so that
``crystal config`` can say so. Secrets are not settings: keys live in the key store, and the enrolment token
is read here once, on demand, and never shown. ``config.json`` holds what a person may edit; fields that this
version does not know are kept when it is rewritten.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec

from crystal_node.errors import BadConfig
from crystal_node.files.rules import PATTERN_CHARS_MAX, RULES_MAX
from crystal_node.home import Home, locked_directory, write_private
from crystal_node.settingvalues import (
    BANDWIDTH_KIB_MAX,
    KIB,
    URL_CHARS_MAX,
    checked_bandwidth,
    checked_timeout,
    checked_url,
    clean_name,
)

CONFIG_BYTES_MAX = 64 * 1024
TOKEN_CHARS_MAX = 512
DEFAULT_HOME = "~/.ldm"
DEFAULT_AGENT = "cc-mini"
DEFAULT_TIMEOUT = "15"

_YES = frozenset({"1", "yes", "true", "on"})
_NO = frozenset({"0", "no", "false", "off"})
FileRule = Annotated[str, msgspec.Meta(pattern=r"^[+-]", max_length=PATTERN_CHARS_MAX + 1)]
_AGENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Source(StrEnum):
    """Where a setting's value came from."""

    FLAG = "flag"
    ENVIRONMENT = "environment"
    CONFIG = "config.json"
    INVITE = "invite"
    DEFAULT = "default"


class KeyStoreKind(StrEnum):
    """Where this device keeps its keys. ``auto`` takes the keyring when one truly works, else files."""

    AUTO = "auto"
    KEYRING = "keyring"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class Setting:
    """One resolved setting: its value as text ("" when there is none) and its origin."""

    name: str
    value: str
    source: Source
    variable: str = ""

    @property
    def origin(self) -> str:
        """For people: "environment (CRYSTAL_HOME)"."""
        return f"{self.source} ({self.variable})" if self.source is Source.ENVIRONMENT else str(self.source)


class Config(msgspec.Struct, frozen=True, omit_defaults=True):
    """``config.json``: what ``crystal init`` and ``crystal pair`` wrote, and what a person may edit.

    ``key_store_left`` is the place that an interrupted `crystal keys move` may have left copies in, ``keyring_backend`` the
    keyring's class, ``kit_verified`` a mark of the root whose recovery kit was typed back (``kitstate``).
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
    files_rules: Annotated[tuple[FileRule, ...], msgspec.Meta(max_length=RULES_MAX)] = ()


CONFIG_VERSION = 1


@dataclass(frozen=True, slots=True)
class Flags:
    """What the command line said; None where it said nothing."""

    relay_url: str | None = None
    agent: str | None = None
    name: str | None = None
    key_store: str | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a command may need to know about its surroundings."""

    home: Home
    config: Config
    relay: Setting
    agent: Setting
    name: Setting
    key_store_setting: Setting
    allow_http_setting: Setting
    timeout_setting: Setting
    up_setting: Setting
    down_setting: Setting
    home_setting: Setting
    data_setting: Setting
    claude_setting: Setting
    passphrase_setting: Setting
    person_home: Path

    @property
    def relay_url(self) -> str:
        return self.relay.value

    @property
    def agent_id(self) -> str:
        return self.agent.value

    @property
    def vault(self) -> bytes | None:
        return bytes.fromhex(self.config.vault) if self.config.vault else None

    @property
    def key_store(self) -> KeyStoreKind:
        return KeyStoreKind(self.key_store_setting.value)

    @property
    def allow_http(self) -> bool:
        """Whether the relay may be another machine without TLS: its token is then readable on the way."""
        return self.allow_http_setting.value == "yes"

    @property
    def relay_timeout(self) -> float:
        """Seconds of silence after which the relay counts as gone."""
        return float(self.timeout_setting.value)

    @property
    def bandwidth_up(self) -> int:
        """Bytes a second that this device sends at most; 0: no limit."""
        return int(self.up_setting.value) * KIB

    @property
    def bandwidth_down(self) -> int:
        """Bytes a second that it fetches at most; 0: no limit."""
        return int(self.down_setting.value) * KIB

    @property
    def claude_folder(self) -> Path:
        """Claude Code's own folder: ``projects/`` is below it."""
        return Path(self.claude_setting.value)

    def shown(self) -> list[Setting]:
        """All settings with their origins, in the order in which people look for them."""
        vault = Setting("vault", self.config.vault, Source.CONFIG if self.config.vault else Source.DEFAULT)
        return [
            self.home_setting,
            self.data_setting,
            vault,
            self.relay,
            self.allow_http_setting,
            self.timeout_setting,
            self.up_setting,
            self.down_setting,
            self.agent,
            self.name,
            self.key_store_setting,
            self.passphrase_setting,
            self.claude_setting,
        ]

    def at_relay(self, url: str) -> "Settings":
        """These settings with the relay that an invite names. What was said outright for this call comes before it.

        Raises:
            BadConfig: the invite's address cannot be used.
        """
        if self.relay.value and self.relay.source in (Source.FLAG, Source.ENVIRONMENT):
            return self
        named = Setting("relay_url", url, Source.INVITE)
        return replace(self, relay=replace(named, value=checked_url(named.value, named.origin)))

    def save(self, config: Config) -> "Settings":
        """Writes what ``config`` changes of these settings into ``config.json``, durably.

        All else stays as it stands in the file: fields that this version does not know, and what another process has written
        since this one read it. A person may have typed for minutes; where the keys are must not be told wrongly by that.
        """
        with locked_directory(self.home.root):
            kept: dict[str, object] = {}
            if self.home.config_file.exists():
                kept = msgspec.json.decode(self.home.config_file.read_bytes(), type=dict[str, object])
            for field in Config.__struct_fields__:
                kept.pop(field, None)
            changes = {
                field: getattr(config, field)
                for field in Config.__struct_fields__
                if getattr(config, field) != getattr(self.config, field)
            }
            config = msgspec.structs.replace(read_config(self.home.config_file), **changes)
            known = msgspec.to_builtins(config)
            merged = {"version": config.version, **known, **kept}
            write_private(
                self.home.config_file, msgspec.json.format(msgspec.json.encode(merged), indent=2) + b"\n"
            )
        return replace(self, config=config)

    def read_again(self) -> "Settings":
        """These settings with ``config.json`` as it is now: another process may have changed it since. Raises BadConfig."""
        return replace(self, config=read_config(self.home.config_file))


def resolve(flags: Flags | None = None, environment: Mapping[str, str] | None = None) -> Settings:
    """Resolves all settings. ``environment`` is the process's own unless a test gives one.

    Raises:
        BadConfig: ``config.json`` is damaged or of a later version, or a value cannot be used. The message names the
            setting and its origin.
    """
    flags = flags or Flags()
    env = os.environ if environment is None else environment
    home_setting = _pick("home", None, env, "CRYSTAL_HOME", "", DEFAULT_HOME)
    data_setting = _pick("data_dir", None, env, "CRYSTAL_DATA_DIR", "", "")
    root = _absolute(home_setting)
    passphrase = _pick("passphrase_file", None, env, "CRYSTAL_PASSPHRASE_FILE", "", "")
    home = Home(
        root,
        _absolute(data_setting) if data_setting.value else None,
        _absolute(passphrase) if passphrase.value else None,
    )
    config = read_config(home.config_file)
    relay = _pick("relay_url", flags.relay_url, env, "CRYSTAL_RELAY_URL", config.relay_url, "")
    if relay.value:
        relay = replace(relay, value=checked_url(relay.value, relay.origin))
    agent = _pick("agent", flags.agent, env, "CRYSTAL_AGENT_ID", config.agent, DEFAULT_AGENT)
    if not _AGENT.fullmatch(agent.value):
        raise BadConfig(
            f"the agent id from {agent.origin} cannot be used",
            hint="Use 1 to 64 letters, digits, dots, underscores and hyphens, a letter or digit first.",
        )
    key_store = _pick(
        "key_store", flags.key_store, env, "CRYSTAL_KEY_STORE", config.key_store, KeyStoreKind.AUTO
    )
    if key_store.value not in set(KeyStoreKind):
        raise BadConfig(
            f"there is no key store {key_store.value!r} (from {key_store.origin})",
            hint="Use auto, keyring or file.",
        )
    allow_http = _pick(
        "relay_allow_http",
        None,
        env,
        "CRYSTAL_RELAY_ALLOW_HTTP",
        "yes" if config.relay_allow_http else "",
        "no",
    )
    if allow_http.value.lower() not in _YES | _NO:
        raise BadConfig(f"relay_allow_http from {allow_http.origin} is neither yes nor no")
    timeout = _pick(
        "relay_timeout",
        None,
        env,
        "CRYSTAL_RELAY_TIMEOUT",
        f"{config.relay_timeout:g}" if config.relay_timeout else "",
        DEFAULT_TIMEOUT,
    )
    checked_timeout(timeout.value, timeout.origin)
    up = _bandwidth("up", env, config.bandwidth_up)
    down = _bandwidth("down", env, config.bandwidth_down)
    name = _pick("name", flags.name, env, "CRYSTAL_DEVICE_NAME", config.name, _host_name())
    claude = _pick("claude_config_dir", None, env, "CLAUDE_CONFIG_DIR", "", "~/.claude")
    return Settings(
        home=home,
        config=config,
        relay=relay,
        agent=agent,
        name=replace(name, value=clean_name(name.value)),
        key_store_setting=key_store,
        timeout_setting=timeout,
        up_setting=up,
        down_setting=down,
        allow_http_setting=replace(allow_http, value="yes" if allow_http.value.lower() in _YES else "no"),
        home_setting=replace(home_setting, value=str(root)),
        data_setting=replace(data_setting, value=str(home.database.parent)),
        claude_setting=replace(claude, value=str(_absolute(claude))),
        passphrase_setting=replace(passphrase, value=str(home.passphrase_file or "")),
        person_home=_absolute(Setting("the home folder", "~", Source.DEFAULT)),
    )


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
        config = msgspec.json.decode(data, type=Config)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadConfig(
            f"{path} is damaged: {error}", hint="Mend that line; `crystal config` checks it."
        ) from error
    if config.version > CONFIG_VERSION:
        raise BadConfig(
            f"{path} was written by a later version of Crystal", hint="Update Crystal on this machine."
        )
    return config


def enrolment_token(environment: Mapping[str, str] | None = None) -> str:
    """The relay's enrolment token from the environment, or "". A secret: never shown, never stored."""
    env = os.environ if environment is None else environment
    return env.get("CRYSTAL_RELAY_ENROLL_TOKEN", "").strip()[:TOKEN_CHARS_MAX]


def child_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """This process's environment for a child, without any of Crystal's own variables but these."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CRYSTAL_")}
    return kept | dict(variables)


def debug_wanted(environment: Mapping[str, str] | None = None) -> bool:
    """Whether ``CRYSTAL_DEBUG`` asks for traces."""
    env = os.environ if environment is None else environment
    return env.get("CRYSTAL_DEBUG", "") not in ("", "0")


def _pick(
    name: str, flag: str | None, env: Mapping[str, str], variable: str, config: str, default: str
) -> Setting:
    if flag:
        return Setting(name, flag, Source.FLAG)
    value = env.get(variable, "")
    if value:
        return Setting(name, value, Source.ENVIRONMENT, variable)
    if config:
        return Setting(name, config, Source.CONFIG)
    return Setting(name, default, Source.DEFAULT)


def _bandwidth(way: str, env: Mapping[str, str], config: int) -> Setting:
    name = f"bandwidth_{way}"
    found = _pick(name, None, env, f"CRYSTAL_{name.upper()}", str(config or ""), "0")
    return replace(found, value=checked_bandwidth(name, found.value, found.origin))


def _absolute(setting: Setting) -> Path:
    try:
        return Path(setting.value).expanduser().absolute()
    except RuntimeError as error:
        raise BadConfig(
            f"{setting.name} is {setting.value!r}, but this user has no home folder", hint="Set CRYSTAL_HOME."
        ) from error


def _host_name() -> str:
    return os.uname().nodename.split(".", 1)[0] or "device"
