"""Which tools are recorded: the options ``capture`` and ``capture_without``, changed for a person.

What a tool says while it is off is not lost: its transcripts wait where they are, and are recorded when it is on again. What
is not to be recorded even later is private mode's (``privacy.py``).
"""

from collections.abc import Sequence

from msgspec import structs

from crystal_node.base.errors import NotSetUp, Usage
from crystal_node.base.settings import Settings, Source


def switch(settings: Settings, known: Sequence[str], names: Sequence[str], *, on: bool) -> Settings:
    """Turns recording on or off, of these tools or (without names) as a whole. Idempotent; returns the settings as written.

    Raises:
        Usage: a name that is no tool's, or a variable says otherwise.
        NotSetUp: there is no home.
    """
    check_names(known, names)
    if not names:
        return _write(settings, capture=on)
    without = set(settings.capture.without)
    without = without - set(names) if on else without | set(names)
    return _write(settings, capture_without=_joined(known, without))


def choose(settings: Settings, known: Sequence[str], wanted: Sequence[str]) -> Settings:
    """Records exactly these tools; of none, capture is off as a whole. Raises as ``switch``."""
    check_names(known, wanted)
    if not wanted:
        return _write(settings, capture=False)
    return _write(settings, capture=True, capture_without=_joined(known, set(known) - set(wanted)))


def is_chosen(settings: Settings, known: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether ``choose`` would change nothing, and somebody has chosen before."""
    if not wanted:
        return not settings.capture.on
    decided = settings.config.capture is not None or settings.options["capture"].source is not Source.DEFAULT
    return decided and settings.capture.on and set(known) - settings.capture.without == set(wanted)


def check_names(known: Sequence[str], names: Sequence[str]) -> None:
    """Raises Usage for a name that is no tool's."""
    for name in names:
        if name not in known:
            raise Usage(f"there is no tool {name[:60]!r}", hint=f"There are: {', '.join(known)}.")


def _joined(known: Sequence[str], without: set[str]) -> str:
    # A name of a later version stays: who turned that tool off there did so for good.
    return ",".join([*(name for name in known if name in without), *sorted(without - set(known))])


def _write(settings: Settings, **changes: bool | str) -> Settings:
    for name in changes:
        if settings.options[name].source is Source.ENVIRONMENT:
            raise Usage(
                f"{settings.options[name].variable} is set, and comes before what could be written down",
                hint="Unset that variable first.",
            )
    if not settings.home.root.is_dir():
        raise NotSetUp(f"there is no home {settings.home.root}", hint="`crystal up` makes one.")
    return settings.save(structs.replace(settings.config, **changes))
