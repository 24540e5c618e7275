"""The table of settings: each is declared once, here, with its name, variable, default, check, purpose and type.

A setting is text wherever it comes from. Its check returns the canonical form of that text, or raises BadConfig with a message
that names the origin. The classes below are the table of the options, which ``crystal config set`` changes: each of their
fields is an option, and an instance holds them as typed values. ``DEVICE_SETTINGS`` are the others, which commands write or
only the environment sets.
"""

# ruff: noqa: RUF009 - what _option returns is a dataclass field

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from datetime import tzinfo
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from crystal_node.base.agent_names import CLAUDE_CODE
from crystal_node.base.clock import LocalZone
from crystal_node.base.settings.checks import (
    checked_agent,
    checked_bandwidth,
    checked_key_store,
    checked_switch,
    checked_timeout,
    checked_url,
    clean_name,
)
from crystal_node.base.settings.kinds import (
    ADDRESS,
    DENIALS,
    FOLDER,
    NAMES,
    PARTS,
    SWITCH,
    TEXT,
    ZONE,
    Roots,
    ValueKind,
    choice,
    enumeration,
    folder_or,
    number,
)

T = TypeVar("T")

LLM_PROVIDERS = ("auto", "none", "openai", "anthropic", "ollama", "mlx", "openai-compatible", "claude-cli")
EMBEDDING_PROVIDERS = (
    "builtin",
    "multilingual",
    "ollama",
    "openai",
    "google",
    "sentence-transformers",
    "none",
)
LOG_LEVELS = ("debug", "info", "warning", "error")


class ActionDetail(StrEnum):
    """How much is recorded of what agents do with their tools."""

    OFF = "off"
    BRIEF = "brief"
    FULL = "full"


DROP_FOLDER_NAME = "drop"
DEFAULT_HOME = "~/.ldm"
DEFAULT_AGENT = CLAUDE_CODE
DEFAULT_TIMEOUT = "15"

_OPTION = "option"
_TYPED = "typed"


class Option(Struct, frozen=True):
    """One setting. ``variable`` overrides ``config.json``; ``check`` takes the text and its origin; ``what`` is for people."""

    name: str
    variable: str
    default: str
    check: Callable[[str, str], str]
    what: str


def _option(name: str, kind: ValueKind, variable: str, default: str, what: str) -> Any:
    option = Option(name, variable, default, partial(kind.check, name), what)
    return field(metadata={_OPTION: option, _TYPED: kind.typed})


def _ollama_host() -> Any:
    """Declared once, used by two sections."""
    return _option(
        "ollama_host", ADDRESS, "CRYSTAL_OLLAMA_HOST", "http://127.0.0.1:11434", "Ollama's address."
    )


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """What is recorded, and from where."""

    on: bool = _option("capture", SWITCH, "CRYSTAL_CAPTURE", "yes", "Whether conversations are recorded.")
    without: frozenset[str] = _option(
        "capture_without", NAMES, "CRYSTAL_CAPTURE_WITHOUT", "", "Tools whose conversations are not recorded."
    )
    native_memory: frozenset[str] = _option(
        "native_memory",
        NAMES,
        "CRYSTAL_NATIVE_MEMORY",
        "",
        "Tools whose own memory files are kept in step between devices; none if empty.",
    )
    actions: ActionDetail = _option(
        "capture_actions",
        enumeration(ActionDetail),
        "CRYSTAL_CAPTURE_ACTIONS",
        ActionDetail.BRIEF.value,
        "Whether tool calls are recorded: commands, changed files and errors; full adds reading and output.",
    )
    drop_folder: Path = _option(
        "drop_folder",
        folder_or(lambda roots: roots.home / DROP_FOLDER_NAME),
        "CRYSTAL_DROP_DIR",
        "",
        "Folder for conversations of other tools; drop/ in the home if empty.",
    )
    time_zone: str = _option(
        "time_zone",
        ZONE,
        "CRYSTAL_TIME_ZONE",
        "",
        "The zone in which days begin, such as Europe/Berlin; the system's if empty.",
    )
    openclaw_folder: Path = _option(
        "openclaw_dir",
        folder_or(lambda roots: roots.person / ".openclaw"),
        "OPENCLAW_STATE_DIR",
        "",
        "OpenClaw's folder; ~/.openclaw if empty.",
    )
    codex_folder: Path = _option(
        "codex_dir",
        folder_or(lambda roots: roots.person / ".codex"),
        "CODEX_HOME",
        "",
        "Codex's folder; ~/.codex if empty.",
    )
    gemini_folder: Path = _option(
        "gemini_dir",
        folder_or(lambda roots: roots.person / ".gemini"),
        "CRYSTAL_GEMINI_DIR",
        "",
        "Gemini CLI's folder; ~/.gemini if empty.",
    )
    qwen_folder: Path = _option(
        "qwen_dir",
        folder_or(lambda roots: roots.person / ".qwen"),
        "QWEN_HOME",
        "",
        "Qwen Code's folder; ~/.qwen if empty.",
    )
    copilot_folder: Path = _option(
        "copilot_dir",
        folder_or(lambda roots: roots.person / ".copilot"),
        "COPILOT_HOME",
        "",
        "Copilot CLI's folder; ~/.copilot if empty.",
    )
    cline_folder: Path = _option(
        "cline_dir",
        folder_or(lambda roots: roots.person / ".cline"),
        "CLINE_DIR",
        "",
        "Cline's folder; ~/.cline if empty.",
    )
    opencode_folder: Path = _option(
        "opencode_dir",
        folder_or(lambda roots: roots.data / "opencode"),
        "CRYSTAL_OPENCODE_DIR",
        "",
        "opencode's data folder; ~/.local/share/opencode if empty.",
    )
    continue_folder: Path = _option(
        "continue_dir",
        folder_or(lambda roots: roots.person / ".continue"),
        "CONTINUE_GLOBAL_DIR",
        "",
        "Continue's folder; ~/.continue if empty.",
    )
    goose_folder: Path = _option(
        "goose_dir",
        folder_or(lambda roots: roots.data / "goose"),
        "CRYSTAL_GOOSE_DIR",
        "",
        "goose's data folder; ~/.local/share/goose if empty.",
    )
    crush_folder: Path = _option(
        "crush_dir",
        folder_or(lambda roots: roots.data / "crush"),
        "CRUSH_GLOBAL_DATA",
        "",
        "Crush's data folder; ~/.local/share/crush if empty.",
    )

    def zone(self) -> tzinfo:
        """The zone in which days begin and end for this person."""
        # Lazy: hooks and most commands need no zone.
        from zoneinfo import ZoneInfo

        from tzlocal import get_localzone

        return ZoneInfo(self.time_zone) if self.time_zone else get_localzone()

    def nameless_zone(self) -> tzinfo:
        """`zone`, to reckon with and not to be named: found in no time where none is set."""
        return self.zone() if self.time_zone else LocalZone()


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """How the background service behaves."""

    pause_on_battery: bool = _option(
        "pause_on_battery",
        SWITCH,
        "CRYSTAL_PAUSE_ON_BATTERY",
        "no",
        "Whether heavy work waits for mains power.",
    )
    pause_on_metered: bool = _option(
        "pause_on_metered",
        SWITCH,
        "CRYSTAL_PAUSE_ON_METERED",
        "no",
        "Whether heavy work waits for an unmetered network.",
    )
    desktop_notices: bool = _option(
        "desktop_notices",
        SWITCH,
        "CRYSTAL_DESKTOP_NOTICES",
        "yes",
        "Whether the desktop shows what needs a person, once a day at most.",
    )
    log_level: str = _option(
        "log_level", choice(*LOG_LEVELS), "CRYSTAL_LOG_LEVEL", "info", "What the background service logs."
    )


@dataclass(frozen=True, slots=True)
class DreamSettings:
    """Which language model is asked, for what, and how much it may cost."""

    summary_mode: str = _option(
        "summary_mode",
        choice("simple", "llm"),
        "CRYSTAL_SUMMARY_MODE",
        "simple",
        "Whether a language model writes the summaries of conversations.",
    )
    provider: str = _option(
        "llm_provider",
        choice(*LLM_PROVIDERS),
        "CRYSTAL_SUMMARY_PROVIDER",
        "auto",
        "Which language model is asked; auto takes the first that answers.",
    )
    model: str = _option(
        "llm_model", TEXT, "CRYSTAL_SUMMARY_MODEL", "", "Its model; the provider's own if empty."
    )
    url: str = _option(
        "llm_url", ADDRESS, "CRYSTAL_LLM_URL", "", "The address of an OpenAI-compatible server."
    )
    ollama_host: str = _ollama_host()
    ollama_model: str = _option(
        "ollama_model", TEXT, "CRYSTAL_OLLAMA_MODEL", "", "Ollama's model; the first one if empty."
    )
    tokens_max: int = _option(
        "weave_tokens_max",
        number(1000, 10**9),
        "CRYSTAL_WEAVE_TOKENS_MAX",
        "2000000",
        "How many tokens one run of the Dream Weaver may use, both ways together.",
    )
    every_hours: int = _option(
        "weave_every_hours",
        number(0, 24 * 365),
        "CRYSTAL_WEAVE_EVERY_HOURS",
        "0",
        "How often it runs by itself on the Core; 0: never.",
    )
    staging: str = _option(
        "staging",
        choice("ask", "extractive", "llm", "never"),
        "CRYSTAL_STAGING",
        "ask",
        "How the past of an agent that is new to the Core is woven.",
    )


@dataclass(frozen=True, slots=True)
class BackupSettings:
    """Where backups go, and how often. ``folder`` None: none by themselves."""

    folder: Path | None = _option(
        "backup_folder", FOLDER, "CRYSTAL_BACKUP_DIR", "", "Where backups go; none if empty."
    )
    keep: int = _option(
        "backup_keep", number(1, 10_000), "CRYSTAL_BACKUP_KEEP", "7", "How many backups of this device stay."
    )
    every_hours: int = _option(
        "backup_every_hours",
        number(1, 24 * 365),
        "CRYSTAL_BACKUP_EVERY_HOURS",
        "24",
        "How often one is made by itself.",
    )


@dataclass(frozen=True, slots=True)
class EmbeddingSettings:
    """What turns text into vectors."""

    provider: str = _option(
        "embedding_provider",
        choice(*EMBEDDING_PROVIDERS),
        "CRYSTAL_EMBEDDING_PROVIDER",
        "builtin",
        "What turns text into vectors; the Core's makes those of the whole vault.",
    )
    model: str = _option(
        "embedding_model", TEXT, "CRYSTAL_EMBEDDING_MODEL", "", "Its model; the provider's own if empty."
    )
    url: str = _option(
        "embedding_url",
        ADDRESS,
        "CRYSTAL_EMBEDDING_URL",
        "",
        "The address of its server, if not the provider's own.",
    )
    ollama_host: str = _ollama_host()


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How searches go."""

    depth: str = _option(
        "search_depth",
        choice("auto", "fast", "deep"),
        "CRYSTAL_SEARCH_DEPTH",
        "auto",
        "Whether a language model helps to search; auto: one on this machine does.",
    )
    seconds_max: int = _option(
        "search_seconds_max",
        number(1, 600),
        "CRYSTAL_SEARCH_SECONDS_MAX",
        "20",
        "How long the language model may take for one search.",
    )
    judge: str = _option(
        "search_judge",
        choice("off", "auto"),
        "CRYSTAL_SEARCH_JUDGE",
        "off",
        "Whether a cross-encoder on this machine orders the first hits; auto: when it is loaded.",
    )
    judge_model: str = _option(
        "search_judge_model",
        TEXT,
        "CRYSTAL_SEARCH_JUDGE_MODEL",
        "cross-encoder/ms-marco-MiniLM-L6-v2",
        "The cross-encoder: its folder, or its name if sentence-transformers has fetched it.",
    )
    recall: bool = _option(
        "recall", SWITCH, "CRYSTAL_RECALL", "yes", "Whether hooks put memories before an agent."
    )


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Which raw sessions of AI tools are copied to the other machines, and for how long."""

    on: bool = _option(
        "sessions",
        SWITCH,
        "CRYSTAL_SESSIONS",
        "yes",
        "Whether raw sessions of AI tools are copied to your other machines.",
    )
    exact: tuple[str, ...] = _option(
        "sessions_exact",
        PARTS,
        "CRYSTAL_SESSIONS_EXACT",
        "",
        "Projects whose sessions are copied with the credentials in them: folders or repositories.",
    )
    keep_days: int = _option(
        "sessions_keep_days",
        number(0, 36_500),
        "CRYSTAL_SESSIONS_KEEP_DAYS",
        "0",
        "On the Core: after how many days without growth a session's copies are removed; 0: never.",
    )
    max_gb: int = _option(
        "sessions_max_gb",
        number(0, 100_000),
        "CRYSTAL_SESSIONS_MAX_GB",
        "0",
        "On the Core: how many GB all copies of sessions may take; 0: any.",
    )


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """What other programs and devices reach here."""

    serve_port: int = _option(
        "serve_port",
        number(1, 65535),
        "CRYSTAL_SERVE_PORT",
        "18790",
        "The port of `crystal serve` on this machine.",
    )
    own_relay_port: int = _option(
        "own_relay_port",
        number(0, 65535),
        "CRYSTAL_OWN_RELAY_PORT",
        "0",
        "The port at which other machines reach the relay in this home; 0: none.",
    )
    own_relay_host: str = _option(
        "own_relay_host",
        TEXT,
        "CRYSTAL_OWN_RELAY_HOST",
        "",
        "This machine's name or address for them; if empty, the address of its default route.",
    )
    commands_denied: tuple[str, ...] = _option(
        "commands_denied",
        DENIALS,
        "CRYSTAL_COMMANDS_DENIED",
        "",
        "What other devices may not have done here: DEVICE:ACTION, either of which may be *.",
    )


_SECTIONS: tuple[type[Any], ...] = (
    CaptureSettings,
    AgentSettings,
    DreamSettings,
    BackupSettings,
    EmbeddingSettings,
    SearchSettings,
    SessionSettings,
    ServiceSettings,
)
BY_NAME: dict[str, Option] = {}
"""The options, which `crystal config set` changes, in the order in which people see them."""
for _section in _SECTIONS:
    for _field in fields(_section):
        BY_NAME.setdefault(_field.metadata[_OPTION].name, _field.metadata[_OPTION])


def section(kind: type[T], text_of: Callable[[str], str], roots: Roots) -> T:
    """The typed values of one section. ``text_of`` gives the checked text of an option."""
    declared = fields(kind)  # type: ignore[arg-type]
    return kind(
        **{one.name: one.metadata[_TYPED](text_of(one.metadata[_OPTION].name), roots) for one in declared}
    )


def _base(text: str, _: str) -> str:
    """A base directory of the XDG specification, which has one that is not absolute ignored; "" then."""
    return text if text.startswith(("/", "~/")) else ""


def _as_it_is(text: str, _origin: str) -> str:
    return text


DEVICE_SETTINGS = (
    Option("home", "CRYSTAL_HOME", DEFAULT_HOME, _as_it_is, "The memory home."),
    Option(
        "data_dir",
        "CRYSTAL_DATA_DIR",
        "",
        _as_it_is,
        "The folder of crystal.db; memory/ in the home if empty.",
    ),
    Option("relay_url", "CRYSTAL_RELAY_URL", "", checked_url, "The relay's address."),
    Option(
        "relay_allow_http",
        "CRYSTAL_RELAY_ALLOW_HTTP",
        "no",
        partial(checked_switch, "relay_allow_http"),
        "Whether the relay may be another machine without TLS.",
    ),
    Option(
        "relay_timeout",
        "CRYSTAL_RELAY_TIMEOUT",
        DEFAULT_TIMEOUT,
        checked_timeout,
        "Seconds of silence after which the relay counts as gone.",
    ),
    Option(
        "bandwidth_up",
        "CRYSTAL_BANDWIDTH_UP",
        "0",
        partial(checked_bandwidth, "bandwidth_up"),
        "KiB a second that this device sends at most; 0: no limit.",
    ),
    Option(
        "bandwidth_down",
        "CRYSTAL_BANDWIDTH_DOWN",
        "0",
        partial(checked_bandwidth, "bandwidth_down"),
        "KiB a second that this device fetches at most; 0: no limit.",
    ),
    Option("agent", "CRYSTAL_AGENT_ID", DEFAULT_AGENT, checked_agent, "The agent that is recorded here."),
    Option("name", "CRYSTAL_DEVICE_NAME", "", lambda text, _: clean_name(text), "This device's name."),
    Option(
        "key_store",
        "CRYSTAL_KEY_STORE",
        "auto",
        checked_key_store,
        "Where keys are kept: auto, keyring or file.",
    ),
    Option(
        "passphrase_file", "CRYSTAL_PASSPHRASE_FILE", "", _as_it_is, "A file with the key store's passphrase."
    ),
    Option("claude_config_dir", "CLAUDE_CONFIG_DIR", "~/.claude", _as_it_is, "Claude Code's folder."),
    Option("data_home", "XDG_DATA_HOME", "~/.local/share", _base, "Where programs keep their data."),
    Option("config_home", "XDG_CONFIG_HOME", "~/.config", _base, "Where programs keep their settings."),
)
"""Settings that commands write or only the environment sets, in the order in which people see them."""


def as_text(value: object) -> str:
    """A value of ``config.json`` as text; "" if there is none."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case _:
            return str(value)
