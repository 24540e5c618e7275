"""The AI tools on this machine: where their conversations are, how much there is, how much is recorded, and which are chosen.

Only names and sizes are read, never a conversation. The choice is the options ``capture`` and ``capture_without``.
Conversations of a tool that is off stay in its transcripts, and are recorded when it is on again; private mode leaves them
out for good.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from crystal_node.base.errors import NotSetUp, UsageError
from crystal_node.base.settings import Settings, SettingSource
from crystal_node.base.settings.config import text_in
from crystal_node.base.wording import iso
from crystal_node.capture.adapter import Adapter, decode_state
from crystal_node.capture.tools import all_adapters
from crystal_node.device.journal import SqliteJournal
from crystal_node.device.privacy import read_privacy


@dataclass(frozen=True, slots=True)
class AiTool:
    """One tool. ``there``: it has a folder here. ``wanted``: it is to be recorded, when capture is on at all.

    ``waiting``: bytes not read yet. ``recorded_at``: modification time of the newest transcript read, in milliseconds; 0 if
    none was. ``problems``: transcripts or folders that cannot be read.
    """

    name: str
    title: str
    folders: tuple[Path, ...]
    there: bool
    wanted: bool
    transcripts: int = 0
    size: int = 0
    waiting: int = 0
    recorded_at: int = 0
    problems: tuple[tuple[str, str], ...] = ()

    def document(self) -> dict[str, object]:
        """The tool as JSON."""
        return {
            "name": self.name,
            "title": self.title,
            "folders": [str(folder) for folder in self.folders],
            "there": self.there,
            "on": self.wanted,
            "transcripts": self.transcripts,
            "bytes": self.size,
            "waiting_bytes": self.waiting,
            "last_recorded": iso(self.recorded_at),
            "problems": [{"path": path, "problem": problem} for path, problem in self.problems],
        }


def find_tools(settings: Settings, states: Mapping[str, bytes]) -> list[AiTool]:
    """All known tools. ``states``: the capture state of each transcript, by its path."""
    return [
        _look(adapter, adapter.root.is_dir(), adapter.name not in settings.capture.without, states)
        for adapter in all_adapters(
            settings, settings.person_home, lambda: {Path(each).parent for each in states}
        )
    ]


def read_states(settings: Settings) -> tuple[bool, dict[str, bytes]]:
    """Whether private mode is on, and the capture state of each transcript. Opens no keys; nothing if there is no journal.

    Raises JournalDamaged.
    """
    if not settings.home.state_database.exists():
        return False, {}
    journal = SqliteJournal.open(settings.home.state_file())
    try:
        return read_privacy(journal).on, journal.file_states()
    finally:
        journal.close()


def _look(adapter: Adapter, there: bool, wanted: bool, states: Mapping[str, bytes]) -> AiTool:
    transcripts = size = waiting = recorded_at = 0
    problems: list[tuple[str, str]] = []
    for found in adapter.discover():
        if found.problem is not None:
            problems.append((str(found.path), found.problem))
            continue
        try:
            length = found.path.stat().st_size
        except FileNotFoundError:
            continue
        except OSError as error:
            problems.append((str(found.path), f"cannot be looked at: {error.strerror}"))
            continue
        transcripts += 1
        size += length
        kept = states.get(str(found.path.absolute()))
        state = None if kept is None else decode_state(kept)
        # A replaced file is shorter than what was read of it: all of it waits.
        waiting += length if state is None or state.offset > length else length - state.offset
        if state is not None and not state.stepped_over:
            recorded_at = max(recorded_at, state.modified // 1_000_000)
    return AiTool(
        adapter.name,
        adapter.title,
        tuple(adapter.folders),
        there,
        wanted,
        transcripts,
        size,
        waiting,
        max(recorded_at, 0),
        tuple(problems),
    )


def switch(settings: Settings, known: Sequence[str], names: Sequence[str], *, on: bool) -> Settings:
    """Turn recording on or off, of these tools or (without names) of all. Idempotent; returns the settings as written.

    Raises:
        UsageError: an unknown tool, or an environment variable overrides it.
        NotSetUp: there is no home.
    """
    check_names(known, names)
    if not names:
        return _write(settings, capture=on)
    without = set(settings.capture.without)
    without = without - set(names) if on else without | set(names)
    return _write(settings, capture_without=_joined(known, without))


def choose(settings: Settings, known: Sequence[str], wanted: Sequence[str]) -> Settings:
    """Record exactly these tools; with none, turn capture off. Raises as ``switch``."""
    check_names(known, wanted)
    if not wanted:
        return _write(settings, capture=False)
    return _write(settings, capture=True, capture_without=_joined(known, set(known) - set(wanted)))


def is_chosen(settings: Settings, known: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether ``choose`` would change nothing, and a choice was made before."""
    if not wanted:
        return not settings.capture.on
    decided = (
        bool(text_in(settings.config, "capture"))
        or settings.options["capture"].source is not SettingSource.DEFAULT
    )
    return decided and settings.capture.on and set(known) - settings.capture.without == set(wanted)


def check_names(known: Sequence[str], names: Sequence[str]) -> None:
    """Raise UsageError for an unknown tool."""
    for name in names:
        if name not in known:
            raise UsageError(f"there is no tool {name[:60]!r}", hint=f"There are: {', '.join(known)}.")


def _joined(known: Sequence[str], without: set[str]) -> str:
    # A name of a later version stays: who turned that tool off there did so for good.
    return ",".join([*(name for name in known if name in without), *sorted(without - set(known))])


def _write(settings: Settings, **changes: bool | str) -> Settings:
    for name in changes:
        if settings.options[name].source is SettingSource.ENVIRONMENT:
            raise UsageError(
                f"{settings.options[name].variable} is set, and comes before what could be written down",
                hint="Unset that variable first.",
            )
    if not settings.home.root.is_dir():
        raise NotSetUp(f"there is no home {settings.home.root}", hint="`crystal up` makes one.")
    return settings.save(structs.replace(settings.config, **changes))
