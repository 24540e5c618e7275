"""Options as typed values, by subject. They were checked when they were resolved; nothing here fails."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path

from crystal_node.base.settings.checks import yes

Lookup = Callable[[str], str]
DROP_FOLDER_NAME = "drop"


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """``without``: names of tools whose conversations are not recorded. ``time_zone`` "" is the system's."""

    on: bool
    without: frozenset[str]
    drop_folder: Path
    openclaw_folder: Path
    codex_folder: Path
    gemini_folder: Path
    time_zone: str

    def zone(self) -> tzinfo:
        """The zone in which days begin and end for this person."""
        from zoneinfo import ZoneInfo

        from tzlocal import get_localzone

        return ZoneInfo(self.time_zone) if self.time_zone else get_localzone()


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """``pause_on_…``: what is heavy waits then. ``desktop_notices``: what needs a person is shown on the desktop."""

    pause_on_battery: bool
    pause_on_metered: bool
    desktop_notices: bool
    log_level: str


@dataclass(frozen=True, slots=True)
class DreamSettings:
    """``tokens_max``: of one run of the Dream Weaver, both ways together. ``every_hours`` 0: it never runs by itself.

    ``staging``: what becomes of a new agent's past: ask, extractive, llm or never.
    """

    summary_mode: str
    provider: str
    model: str
    url: str
    ollama_host: str
    ollama_model: str
    tokens_max: int
    every_hours: int
    staging: str


@dataclass(frozen=True, slots=True)
class BackupSettings:
    """``folder`` None: no backups by themselves. ``keep``: so many of this device stay."""

    folder: Path | None
    keep: int
    every_hours: int


@dataclass(frozen=True, slots=True)
class EmbeddingSettings:
    """``model`` and ``url`` are "" for the provider's own."""

    provider: str
    model: str
    url: str
    ollama_host: str


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """``seconds_max``: what a language model may take for one search. ``recall``: hooks put memories before an agent."""

    depth: str
    seconds_max: int
    recall: bool


def capture_section(option: Lookup, home: Path, person: Path) -> CaptureSettings:
    """``home``: the memory home; ``person``: the person's own."""
    return CaptureSettings(
        yes(option("capture")),
        frozenset(name.strip() for name in option("capture_without").split(",") if name.strip()),
        _folder(option("drop_folder"), person) or home / DROP_FOLDER_NAME,
        _folder(option("openclaw_dir"), person) or person / ".openclaw",
        _folder(option("codex_dir"), person) or person / ".codex",
        _folder(option("gemini_dir"), person) or person / ".gemini",
        option("time_zone"),
    )


def dream_section(option: Lookup) -> DreamSettings:
    """What ``option`` says of language models."""
    return DreamSettings(
        option("summary_mode"),
        option("llm_provider"),
        option("llm_model"),
        option("llm_url"),
        option("ollama_host"),
        option("ollama_model"),
        int(option("weave_tokens_max")),
        int(option("weave_every_hours")),
        option("staging"),
    )


def embedding_section(option: Lookup) -> EmbeddingSettings:
    """What ``option`` says of vectors."""
    return EmbeddingSettings(
        option("embedding_provider"),
        option("embedding_model"),
        option("embedding_url"),
        option("ollama_host"),
    )


def search_section(option: Lookup) -> SearchSettings:
    """What ``option`` says of searching."""
    return SearchSettings(option("search_depth"), int(option("search_seconds_max")), yes(option("recall")))


def backup_section(option: Lookup, person: Path) -> BackupSettings:
    """What ``option`` says of backups."""
    return BackupSettings(
        _folder(option("backup_folder"), person),
        int(option("backup_keep")),
        int(option("backup_every_hours")),
    )


def _folder(text: str, person: Path) -> Path | None:
    if not text:
        return None
    if text == "~" or text.startswith("~/"):
        return person / text[2:]
    return Path(text).absolute()
