"""Settings of a device: what was said on the command line, in the environment or in ``config.json``, and what holds else.

| module | holds |
|---|---|
| `resolving` | `resolve`: from their sources to `Settings`; what a child's environment is |
| `resolved` | `Settings`, `Setting`: each value with its origin; writing ``config.json`` |
| `config` | ``config.json`` as it is read |
| `options` | the table of options, which `crystal config set` changes |
| `sections` | options as typed values, by subject |
| `values` | checks |
"""

from crystal_node.base.settings.config import CONFIG_BYTES_MAX, CONFIG_VERSION, Config, read_config
from crystal_node.base.settings.resolved import KeyStoreKind, Setting, Settings, SettingSource
from crystal_node.base.settings.resolving import (
    DEFAULT_AGENT,
    DEFAULT_HOME,
    DEFAULT_TIMEOUT,
    TOKEN_CHARS_MAX,
    Flags,
    child_environment,
    debug_wanted,
    enrolment_token,
    resolve,
    serve_token,
)

__all__ = [
    "CONFIG_BYTES_MAX",
    "CONFIG_VERSION",
    "DEFAULT_AGENT",
    "DEFAULT_HOME",
    "DEFAULT_TIMEOUT",
    "TOKEN_CHARS_MAX",
    "Config",
    "Flags",
    "KeyStoreKind",
    "Setting",
    "Settings",
    "SettingSource",
    "child_environment",
    "debug_wanted",
    "enrolment_token",
    "read_config",
    "resolve",
    "serve_token",
]
