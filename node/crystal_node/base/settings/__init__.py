"""Settings of a device: the command line first, then the environment, then ``config.json``, then the default.

| module | holds |
|---|---|
| `options` | the table: each setting declared once, with its variable, default, check, purpose and type |
| `settings` | `Settings`: the resolved values with their origins; `resolve`; writing ``config.json`` |
| `config` | ``config.json`` as it is read |
| `checks` | the checks that the table names |
| `api_keys` | keys of providers of language models and embeddings; they are no settings |
| `user_session` | where a person's login session keeps things |
"""

from crystal_node.base.settings.checks import LOCAL_RELAY
from crystal_node.base.settings.config import CONFIG_BYTES_MAX, CONFIG_VERSION, Config, read_config
from crystal_node.base.settings.options import DEFAULT_AGENT, DEFAULT_HOME, DEFAULT_TIMEOUT
from crystal_node.base.settings.settings import (
    TOKEN_CHARS_MAX,
    Flags,
    KeyStoreKind,
    Setting,
    Settings,
    SettingSource,
    bare_environment,
    child_environment,
    debug_wanted,
    enrolment_token,
    resolve,
    serve_token,
    with_current_options,
)

__all__ = [
    "CONFIG_BYTES_MAX",
    "CONFIG_VERSION",
    "DEFAULT_AGENT",
    "DEFAULT_HOME",
    "DEFAULT_TIMEOUT",
    "LOCAL_RELAY",
    "TOKEN_CHARS_MAX",
    "Config",
    "Flags",
    "KeyStoreKind",
    "Setting",
    "SettingSource",
    "Settings",
    "bare_environment",
    "child_environment",
    "debug_wanted",
    "enrolment_token",
    "read_config",
    "resolve",
    "serve_token",
    "with_current_options",
]
