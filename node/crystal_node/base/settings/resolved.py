"""Settings as a process has them: each value with where it came from."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path

import msgspec

from crystal_node.base.home import Home, locked_directory, write_private
from crystal_node.base.settings.checks import KIB, checked_url, yes
from crystal_node.base.settings.config import Config, read_config
from crystal_node.base.settings.sections import (
    AgentSettings,
    BackupSettings,
    CaptureSettings,
    DreamSettings,
    EmbeddingSettings,
    SearchSettings,
    backup_section,
    capture_section,
    dream_section,
    embedding_section,
    search_section,
)


class SettingSource(StrEnum):
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
    options: Mapping[str, Setting]
    """Those of ``options.py``, by name; checked."""

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

    def option(self, name: str) -> str:
        """The text of an option of ``options.py``."""
        return self.options[name].value

    @property
    def capture(self) -> CaptureSettings:
        """What is recorded, and from where."""
        return capture_section(self.option, self.home.root, self.person_home)

    @property
    def agent_process(self) -> AgentSettings:
        """How the agent in the background behaves."""
        flag = partial(_flag, self)
        return AgentSettings(
            flag("pause_on_battery"),
            flag("pause_on_metered"),
            flag("desktop_notices"),
            self.option("log_level"),
        )

    @property
    def dreams(self) -> DreamSettings:
        """Which language model is asked, for what, and how much it may cost."""
        return dream_section(self.option)

    @property
    def embedding(self) -> EmbeddingSettings:
        """What turns text into vectors."""
        return embedding_section(self.option)

    @property
    def searching(self) -> SearchSettings:
        """How searches go."""
        return search_section(self.option)

    @property
    def serve_port(self) -> int:
        """Of the gateway."""
        return int(self.option("serve_port"))

    @property
    def backup(self) -> BackupSettings:
        """Where backups go, and how often."""
        return backup_section(self.option, self.person_home)

    @property
    def commands_denied(self) -> tuple[str, ...]:
        """What other devices may not have done here: ``DEVICE:ACTION``, either of which may be ``*``."""
        return tuple(part.strip() for part in self.option("commands_denied").split(",") if part.strip())

    def shown(self) -> list[Setting]:
        """All settings with their origins, in the order in which people look for them."""
        vault = Setting(
            "vault", self.config.vault, SettingSource.CONFIG if self.config.vault else SettingSource.DEFAULT
        )
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
            *self.options.values(),
        ]

    def at_relay(self, url: str) -> "Settings":
        """These settings with the relay that an invite names. What was said outright for this call comes before it.

        Raises:
            BadConfig: the invite's address cannot be used.
        """
        if self.relay.value and self.relay.source in (SettingSource.FLAG, SettingSource.ENVIRONMENT):
            return self
        named = Setting("relay_url", url, SettingSource.INVITE)
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
        """These settings with ``config.json`` as it is now: another process may have changed it since. ``options`` stay as they
        were resolved (``again.options_again`` reads them anew). Raises BadConfig."""
        return replace(self, config=read_config(self.home.config_file))


def _flag(settings: Settings, name: str) -> bool:
    return yes(settings.option(name))
