"""Settings of a process, resolved once: flag, then environment, then ``config.json``, then default.

This package and the commands are the only places of the device that read the environment. Secrets are not settings: keys live
in the key store, and tokens are read here on demand and never shown.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import msgspec

from crystal_node.base.decoding import from_json
from crystal_node.base.errors import BadConfig
from crystal_node.base.home import Home, locked_directory, write_private
from crystal_node.base.settings.checks import KIB, LOCAL_RELAY, checked_url
from crystal_node.base.settings.config import Config, CurrentConfig, read_config, text_in
from crystal_node.base.settings.kinds import Roots
from crystal_node.base.settings.options import (
    BY_NAME,
    DEVICE_SETTINGS,
    AgentSettings,
    BackupSettings,
    CaptureSettings,
    DreamSettings,
    EmbeddingSettings,
    Option,
    SearchSettings,
    ServiceSettings,
    SessionSettings,
    section,
)

TOKEN_CHARS_MAX = 512
SERVE_VARIABLE = "CRYSTAL_SERVE_TOKEN"

_OF_DEVICE = {option.name: option for option in DEVICE_SETTINGS}


class SettingSource(StrEnum):
    """Where a setting's value came from."""

    FLAG = "flag"
    ENVIRONMENT = "environment"
    CONFIG = "config.json"
    INVITE = "invite"
    DEFAULT = "default"


class KeyStoreKind(StrEnum):
    """Where this device keeps its keys. ``auto`` takes the keyring if it works, else files."""

    AUTO = "auto"
    KEYRING = "keyring"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class Flags:
    """What the command line said; None where it said nothing."""

    relay_url: str | None = None
    agent: str | None = None
    name: str | None = None
    key_store: str | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """One resolved setting: its value as text ("" when there is none) and its origin."""

    name: str
    value: str
    source: SettingSource
    variable: str = ""

    @property
    def origin(self) -> str:
        """For people: "environment (CRYSTAL_HOME)"."""
        return (
            f"{self.source} ({self.variable})"
            if self.source is SettingSource.ENVIRONMENT
            else str(self.source)
        )


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a process. ``options`` holds each one by name, checked, in the order in which people see them."""

    home: Home
    config: Config
    person_home: Path
    options: Mapping[str, Setting]

    def option(self, name: str) -> str:
        """The text of a setting."""
        return self.options[name].value

    @property
    def relay(self) -> Setting:
        return self.options["relay_url"]

    @property
    def relay_url(self) -> str:
        return self.relay.value

    @property
    def relay_is_local(self) -> bool:
        """Whether the relay is in this home, so that no other machine reaches it."""
        return self.relay_url == LOCAL_RELAY

    @property
    def relay_words(self) -> str:
        """Which relay this device has, for people."""
        return "in this home" if self.relay_is_local else self.relay_url or "none"

    @property
    def agent_id(self) -> str:
        return self.option("agent")

    @property
    def agent(self) -> Setting:
        return self.options["agent"]

    @property
    def name(self) -> Setting:
        return self.options["name"]

    @property
    def vault(self) -> bytes | None:
        return bytes.fromhex(self.config.vault) if self.config.vault else None

    @property
    def key_store(self) -> KeyStoreKind:
        return KeyStoreKind(self.option("key_store"))

    @property
    def allow_http(self) -> bool:
        """Whether the relay may be another machine without TLS: its token is then readable on the way."""
        return self.option("relay_allow_http") == "yes"

    @property
    def relay_timeout(self) -> float:
        """Seconds of silence after which the relay counts as gone."""
        return float(self.option("relay_timeout"))

    @property
    def bandwidth_up(self) -> int:
        """Bytes a second that this device sends at most; 0: no limit."""
        return int(self.option("bandwidth_up")) * KIB

    @property
    def bandwidth_down(self) -> int:
        """Bytes a second that this device fetches at most; 0: no limit."""
        return int(self.option("bandwidth_down")) * KIB

    @property
    def claude_folder(self) -> Path:
        """Claude Code's own folder: ``projects/`` is below it."""
        return Path(self.option("claude_config_dir"))

    @property
    def config_home(self) -> Path:
        """Where programs keep settings: ``~/.config``, or what XDG_CONFIG_HOME names."""
        return Path(self.option("config_home"))

    @property
    def capture(self) -> CaptureSettings:
        return section(CaptureSettings, self.option, self._roots)

    @property
    def agent_process(self) -> AgentSettings:
        return section(AgentSettings, self.option, self._roots)

    @property
    def dreams(self) -> DreamSettings:
        return section(DreamSettings, self.option, self._roots)

    @property
    def embedding(self) -> EmbeddingSettings:
        return section(EmbeddingSettings, self.option, self._roots)

    @property
    def sessions(self) -> SessionSettings:
        return section(SessionSettings, self.option, self._roots)

    @property
    def searching(self) -> SearchSettings:
        return section(SearchSettings, self.option, self._roots)

    @property
    def backup(self) -> BackupSettings:
        return section(BackupSettings, self.option, self._roots)

    @property
    def service(self) -> ServiceSettings:
        return section(ServiceSettings, self.option, self._roots)

    @property
    def _roots(self) -> Roots:
        return Roots(self.home.root, self.person_home, Path(self.option("data_home")))

    def shown(self) -> list[Setting]:
        """All settings with their origins, in the order in which people look for them."""
        source = SettingSource.CONFIG if self.config.vault else SettingSource.DEFAULT
        settings = list(self.options.values())
        return [*settings[:2], Setting("vault", self.config.vault, source), *settings[2:]]

    def at_relay(self, url: str) -> "Settings":
        """These settings with the relay that an invite names, unless a flag or the environment names one.

        Raises:
            BadConfig: the invite's address cannot be used.
        """
        if self.relay.value and self.relay.source in (SettingSource.FLAG, SettingSource.ENVIRONMENT):
            return self
        named = Setting("relay_url", checked_url(url, SettingSource.INVITE), SettingSource.INVITE)
        return replace(self, options={**self.options, named.name: named})

    def at_own_relay(self) -> "Settings":
        """These settings with the relay in the home."""
        named = Setting("relay_url", LOCAL_RELAY, SettingSource.DEFAULT)
        return replace(self, options={**self.options, named.name: named})

    def save(self, config: Config) -> "Settings":
        """Writes what ``config`` changes of these settings into ``config.json``, durably.

        Everything else stays as it is in the file: fields that this version does not know, and what another process has written
        since this one read it. A person may have typed for minutes; the place of the keys must not be overwritten by that.
        """
        with locked_directory(self.home.root):
            kept: dict[str, object] = {}
            if self.home.config_file.exists():
                kept = from_json(self.home.config_file.read_bytes(), dict[str, object])
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

    def reread(self) -> "Settings":
        """These settings with ``config.json`` as another process may have written it since. ``options`` stay as they were
        resolved (see ``with_current_options``). Raises BadConfig."""
        return replace(self, config=read_config(self.home.config_file))


def resolve(flags: Flags | None = None, environment: Mapping[str, str] | None = None) -> Settings:
    """Resolves all settings. ``environment`` is the process's own unless a test gives one.

    Raises:
        BadConfig: ``config.json`` is damaged or of a later version, or a value cannot be used. The message names the
            setting and its origin.
    """
    flags = flags or Flags()
    env = os.environ if environment is None else environment
    home_setting, data, passphrase, claude, data_home, config_home = (
        _resolved(_OF_DEVICE[name], env)
        for name in ("home", "data_dir", "passphrase_file", "claude_config_dir", "data_home", "config_home")
    )
    home = Home(
        _absolute(home_setting),
        _absolute(data) if data.value else None,
        _absolute(passphrase) if passphrase.value else None,
    )
    config = read_config(home.config_file)
    paths = {
        "home": replace(home_setting, value=str(home.root)),
        "data_dir": replace(data, value=str(home.database.parent)),
        "passphrase_file": replace(passphrase, value=str(home.passphrase_file or "")),
        "claude_config_dir": replace(claude, value=str(_absolute(claude))),
        "data_home": _base_folder(data_home),
        "config_home": _base_folder(config_home),
    }
    options = {
        option.name: paths.get(option.name)
        or _resolved(option, env, text_in(config, option.name), getattr(flags, option.name, None))
        for option in (*DEVICE_SETTINGS, *BY_NAME.values())
    }
    return Settings(home, config, _absolute(_person_home()), options)


_CURRENT = CurrentConfig()


def with_current_options(settings: Settings) -> Settings:
    """These settings with the options as ``config.json`` has them now, for a process that runs while a person changes them.

    What a flag or the environment said stays. So does everything while ``config.json`` cannot be read, which the commands tell.
    """
    try:
        config = _CURRENT.read(settings.home.config_file)
        if config == settings.config:
            return settings
        options = dict(settings.options)
        for option in (
            *BY_NAME.values(),
            _OF_DEVICE["agent"],
        ):  # a newcomer's agent takes the vault's name for it
            if options[option.name].source in (SettingSource.CONFIG, SettingSource.DEFAULT):
                options[option.name] = _resolved(option, {}, text_in(config, option.name))
    except (BadConfig, OSError):
        return settings
    return replace(settings, config=config, options=options)


class Places(NamedTuple):
    """The home, the folders of Claude Code and OpenClaw, and the person's home folder."""

    home: Path
    claude: Path
    openclaw: Path
    person: Path


def places(environment: Mapping[str, str] | None = None) -> Places:
    """Where things are, without reading ``config.json``: for a home that is not ours yet."""
    env = os.environ if environment is None else environment
    person = _absolute(_person_home())
    openclaw = env.get(BY_NAME["openclaw_dir"].variable, "")
    return Places(
        _absolute(_resolved(_OF_DEVICE["home"], env)),
        _absolute(_resolved(_OF_DEVICE["claude_config_dir"], env)),
        Path(openclaw).expanduser().absolute() if openclaw else person / ".openclaw",
        person,
    )


def enrolment_token(environment: Mapping[str, str] | None = None) -> str:
    """The relay's enrolment token from the environment, or "". A secret: never shown, never stored."""
    env = os.environ if environment is None else environment
    return env.get("CRYSTAL_RELAY_ENROLL_TOKEN", "").strip()[:TOKEN_CHARS_MAX]


def serve_token(environment: Mapping[str, str] | None = None) -> str:
    """The gateway's token from the environment, or "". A secret: never shown, never stored."""
    env = os.environ if environment is None else environment
    return env.get(SERVE_VARIABLE, "").strip()[:TOKEN_CHARS_MAX]


def child_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """This process's environment for a child: of Crystal's own variables it holds only ``variables``."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CRYSTAL_")}
    return kept | dict(variables)


def bare_environment() -> dict[str, str]:
    """The environment of a child that needs none of this process's: the time zone, and the variable without which no process
    starts on Windows."""
    return {name: os.environ[name] for name in ("TZ", "TZDIR", "SYSTEMROOT") if name in os.environ}


def debug_wanted(environment: Mapping[str, str] | None = None) -> bool:
    """Whether ``CRYSTAL_DEBUG`` asks for traces."""
    env = os.environ if environment is None else environment
    return env.get("CRYSTAL_DEBUG", "") not in ("", "0")


def _resolved(option: Option, env: Mapping[str, str], config: str = "", flag: str | None = None) -> Setting:
    default = option.default or (_host_name() if option.name == "name" else "")
    if flag:
        found = Setting(option.name, flag, SettingSource.FLAG)
    elif value := env.get(option.variable, ""):
        found = Setting(option.name, value, SettingSource.ENVIRONMENT, option.variable)
    elif config:
        found = Setting(option.name, config, SettingSource.CONFIG)
    else:
        found = Setting(option.name, default, SettingSource.DEFAULT)
    return replace(found, value=option.check(found.value, found.origin))


def _person_home() -> Setting:
    return Setting("the home folder", "~", SettingSource.DEFAULT)


def _base_folder(setting: Setting) -> Setting:
    default = replace(setting, value=_OF_DEVICE[setting.name].default, source=SettingSource.DEFAULT)
    found = setting if setting.value else default
    return replace(found, value=str(_absolute(found)))


def _absolute(setting: Setting) -> Path:
    try:
        return Path(setting.value).expanduser().absolute()
    except RuntimeError as error:
        raise BadConfig(
            f"{setting.name} is {setting.value!r}, but this user has no home folder", hint="Set CRYSTAL_HOME."
        ) from error


def _host_name() -> str:
    return os.uname().nodename.split(".", 1)[0] or "device"
