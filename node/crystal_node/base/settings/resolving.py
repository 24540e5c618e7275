"""Resolves settings, once per process: flag, then environment, then ``config.json``, then default.

The package ``settings`` is the only place of the device that reads the environment, beside the commands. Secrets are not
settings: keys live in the key store, and the enrolment token is read here once, on demand, and never shown.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from crystal_node.base.errors import BadConfig
from crystal_node.base.home import Home
from crystal_node.base.settings.checks import (
    checked_bandwidth,
    checked_timeout,
    checked_url,
    clean_name,
    is_switch,
    yes,
)
from crystal_node.base.settings.config import read_config
from crystal_node.base.settings.options import OPTIONS, Option, as_text
from crystal_node.base.settings.resolved import KeyStoreKind, Setting, Settings, SettingSource

TOKEN_CHARS_MAX = 512
SERVE_VARIABLE = "CRYSTAL_SERVE_TOKEN"
DEFAULT_HOME = "~/.ldm"
DEFAULT_AGENT = "cc-mini"
DEFAULT_TIMEOUT = "15"

_AGENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Flags:
    """What the command line said; None where it said nothing."""

    relay_url: str | None = None
    agent: str | None = None
    name: str | None = None
    key_store: str | None = None


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
    if not is_switch(allow_http.value):
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
        allow_http_setting=replace(allow_http, value="yes" if yes(allow_http.value) else "no"),
        home_setting=replace(home_setting, value=str(root)),
        data_setting=replace(data_setting, value=str(home.database.parent)),
        claude_setting=replace(claude, value=str(_absolute(claude))),
        passphrase_setting=replace(passphrase, value=str(home.passphrase_file or "")),
        person_home=_absolute(Setting("the home folder", "~", SettingSource.DEFAULT)),
        options={option.name: _option(option, env, getattr(config, option.name)) for option in OPTIONS},
    )


def places(environment: Mapping[str, str] | None = None) -> tuple[Path, Path]:
    """The home and Claude Code's folder, without reading ``config.json``: for a home that is not ours yet."""
    env = os.environ if environment is None else environment
    home = _pick("home", None, env, "CRYSTAL_HOME", "", DEFAULT_HOME)
    claude = _pick("claude_config_dir", None, env, "CLAUDE_CONFIG_DIR", "", "~/.claude")
    return _absolute(home), _absolute(claude)


def enrolment_token(environment: Mapping[str, str] | None = None) -> str:
    """The relay's enrolment token from the environment, or "". A secret: never shown, never stored."""
    env = os.environ if environment is None else environment
    return env.get("CRYSTAL_RELAY_ENROLL_TOKEN", "").strip()[:TOKEN_CHARS_MAX]


def serve_token(environment: Mapping[str, str] | None = None) -> str:
    """The gateway's token from the environment, or "". A secret: never shown, never stored."""
    env = os.environ if environment is None else environment
    return env.get(SERVE_VARIABLE, "").strip()[:TOKEN_CHARS_MAX]


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
        return Setting(name, flag, SettingSource.FLAG)
    value = env.get(variable, "")
    if value:
        return Setting(name, value, SettingSource.ENVIRONMENT, variable)
    if config:
        return Setting(name, config, SettingSource.CONFIG)
    return Setting(name, default, SettingSource.DEFAULT)


def _option(option: Option, env: Mapping[str, str], config: object) -> Setting:
    found = _pick(option.name, None, env, option.variable, as_text(config), option.default)
    return replace(found, value=option.check(found.value, found.origin))


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
