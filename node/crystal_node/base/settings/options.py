"""The table of options: what `crystal config set` changes, what each may be, and the variable that overrides it.

An option is a text wherever it comes from; its check makes the one form of it that the rest of the program reads, or raises
BadConfig with the origin in its message.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

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
)

Check = Callable[[str, str], str]
"""Of a text and its origin."""


@dataclass(frozen=True, slots=True)
class Option:
    """``what`` is a sentence for people."""

    name: str
    variable: str
    default: str
    check: Check
    what: str


def _option(
    name: str, variable: str, default: str, check: Callable[[str, str, str], str], what: str
) -> Option:
    return Option(name, variable, default, partial(check, name), what)


def _one_of(*choices: str) -> Callable[[str, str, str], str]:
    return partial(checked_choice, choices)


def _between(least: int, most: int) -> Callable[[str, str, str], str]:
    return partial(checked_number, (least, most))


LLM_PROVIDERS = ("auto", "none", "openai", "anthropic", "ollama", "mlx", "openai-compatible", "claude-cli")
EMBEDDING_PROVIDERS = ("builtin", "ollama", "openai", "google", "sentence-transformers", "none")
LOG_LEVELS = ("debug", "info", "warning", "error")

OPTIONS = (
    _option("capture", "CRYSTAL_CAPTURE", "yes", checked_switch, "Whether conversations are recorded."),
    _option(
        "capture_without",
        "CRYSTAL_CAPTURE_WITHOUT",
        "",
        checked_names,
        "Tools whose conversations are not recorded.",
    ),
    _option(
        "drop_folder",
        "CRYSTAL_DROP_DIR",
        "",
        checked_folder,
        "Where conversations of other tools may be put; drop/ in the home if empty.",
    ),
    _option(
        "time_zone",
        "CRYSTAL_TIME_ZONE",
        "",
        checked_zone,
        "The zone in which days begin, such as Europe/Berlin; the system's if empty.",
    ),
    _option("openclaw_dir", "OPENCLAW_STATE_DIR", "", checked_folder, "OpenClaw's folder; ~/.openclaw."),
    _option("codex_dir", "CODEX_HOME", "", checked_folder, "Codex's folder; ~/.codex."),
    _option("gemini_dir", "CRYSTAL_GEMINI_DIR", "", checked_folder, "Gemini CLI's folder; ~/.gemini."),
    _option(
        "pause_on_battery",
        "CRYSTAL_PAUSE_ON_BATTERY",
        "no",
        checked_switch,
        "Whether what is heavy waits for mains power.",
    ),
    _option(
        "pause_on_metered",
        "CRYSTAL_PAUSE_ON_METERED",
        "no",
        checked_switch,
        "Whether what is heavy waits for a network that costs nothing.",
    ),
    _option(
        "desktop_notices",
        "CRYSTAL_DESKTOP_NOTICES",
        "yes",
        checked_switch,
        "Whether what needs a person is shown on the desktop, once a day at most.",
    ),
    _option("log_level", "CRYSTAL_LOG_LEVEL", "info", _one_of(*LOG_LEVELS), "What the agent's log holds."),
    _option(
        "summary_mode",
        "CRYSTAL_SUMMARY_MODE",
        "simple",
        _one_of("simple", "llm"),
        "Whether a language model writes the summaries of conversations.",
    ),
    _option(
        "llm_provider",
        "CRYSTAL_SUMMARY_PROVIDER",
        "auto",
        _one_of(*LLM_PROVIDERS),
        "Which language model is asked; auto takes the first that answers.",
    ),
    _option(
        "llm_model", "CRYSTAL_SUMMARY_MODEL", "", checked_text, "Its model; the provider's own if empty."
    ),
    _option("llm_url", "CRYSTAL_LLM_URL", "", checked_address, "The address of an OpenAI-compatible server."),
    _option(
        "ollama_host", "CRYSTAL_OLLAMA_HOST", "http://127.0.0.1:11434", checked_address, "Ollama's address."
    ),
    _option("ollama_model", "CRYSTAL_OLLAMA_MODEL", "", checked_text, "Its model; the first one if empty."),
    _option(
        "weave_tokens_max",
        "CRYSTAL_WEAVE_TOKENS_MAX",
        "2000000",
        _between(1000, 10**9),
        "How many tokens one run of the Dream Weaver may use.",
    ),
    _option(
        "weave_every_hours",
        "CRYSTAL_WEAVE_EVERY_HOURS",
        "0",
        _between(0, 24 * 365),
        "How often it runs by itself on the Core; 0: never.",
    ),
    _option(
        "staging",
        "CRYSTAL_STAGING",
        "ask",
        _one_of("ask", "extractive", "llm", "never"),
        "How the past of an agent that is new to the Core is woven.",
    ),
    _option("backup_folder", "CRYSTAL_BACKUP_DIR", "", checked_folder, "Where backups go; none if empty."),
    _option("backup_keep", "CRYSTAL_BACKUP_KEEP", "7", _between(1, 10_000), "How many backups stay."),
    _option(
        "backup_every_hours",
        "CRYSTAL_BACKUP_EVERY_HOURS",
        "24",
        _between(1, 24 * 365),
        "How often one is made by itself.",
    ),
    _option(
        "embedding_provider",
        "CRYSTAL_EMBEDDING_PROVIDER",
        "builtin",
        _one_of(*EMBEDDING_PROVIDERS),
        "What turns text into vectors; the Core's makes those of the whole vault.",
    ),
    _option(
        "embedding_model",
        "CRYSTAL_EMBEDDING_MODEL",
        "",
        checked_text,
        "Its model; the provider's own if empty.",
    ),
    _option(
        "embedding_url",
        "CRYSTAL_EMBEDDING_URL",
        "",
        checked_address,
        "The address of its server, where it is another than the provider's own.",
    ),
    _option(
        "search_depth",
        "CRYSTAL_SEARCH_DEPTH",
        "auto",
        _one_of("auto", "fast", "deep"),
        "Whether a language model helps to search; auto: one on this machine does.",
    ),
    _option(
        "search_seconds_max",
        "CRYSTAL_SEARCH_SECONDS_MAX",
        "20",
        _between(1, 600),
        "How long it may take for that, before the search goes on without it.",
    ),
    _option(
        "recall",
        "CRYSTAL_RECALL",
        "yes",
        checked_switch,
        "Whether hooks put what is remembered before an agent.",
    ),
    _option(
        "serve_port",
        "CRYSTAL_SERVE_PORT",
        "18790",
        _between(1, 65535),
        "The port of `crystal serve` on this machine.",
    ),
    _option(
        "commands_denied",
        "CRYSTAL_COMMANDS_DENIED",
        "",
        checked_denials,
        "What other devices may not have done here: DEVICE:ACTION, either of which may be *.",
    ),
)

BY_NAME = {option.name: option for option in OPTIONS}


def as_text(value: object) -> str:
    """A value of ``config.json`` as a text; "" if there is none."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case _:
            return str(value)
