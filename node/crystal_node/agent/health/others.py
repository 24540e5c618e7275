"""What other parts keep in databases of their own, as status shows it: commands, and agents that wait in staging.

Nothing is loaded or opened where there is no such database. One that cannot be read is a fault, and hides nothing else.
"""

from dataclasses import dataclass

import apsw

from crystal_crypto.errors import CrystalError
from crystal_node.agent.health.channels import CommandsOpen
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import describe
from crystal_node.base.home import Home
from crystal_node.base.wording import one_line

STAGED_MAX = 3
"""More agents that wait for the same answer are told in one sentence."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """An agent in staging that moves no further by itself, why, and whether something failed. ``folder`` names it in commands:
    the agent's own text is somebody else's, and may hold anything."""

    agent: str
    folder: str
    words: str
    failed: bool
    since: int


@dataclass(frozen=True, slots=True)
class Others:
    """``faults``: a database by its name, and why it cannot be read."""

    commands: CommandsOpen | None = None
    noticed: tuple[tuple[str, int], ...] = ()
    staging: tuple[Waiting, ...] = ()
    faults: tuple[tuple[str, str], ...] = ()

    @property
    def asking(self) -> tuple[Waiting, ...]:
        """Of those in staging who wait for the same answer."""
        return tuple(each for each in self.staging if not each.failed)


def others(home: Home) -> Others:
    """Gathers it."""
    faults: list[tuple[str, str]] = []
    commands: CommandsOpen | None = None
    noticed: tuple[tuple[str, int], ...] = ()
    staging: tuple[Waiting, ...] = ()
    try:
        commands, noticed = _commands(home)
    except (CrystalError, apsw.Error, OSError) as error:
        faults.append((home.commands_database.name, describe(error).message))
    try:
        staging = _staging(home)
    except (CrystalError, apsw.Error, OSError) as error:
        faults.append((home.works_database.name, describe(error).message))
    return Others(commands, noticed, staging, tuple(faults))


def _commands(home: Home) -> tuple[CommandsOpen | None, tuple[tuple[str, int], ...]]:
    if not home.commands_database.exists():
        return None, ()
    from crystal_node.agent.commands.standing import commands_standing

    found = commands_standing(home)
    if found is None:
        return None, ()
    oldest = None if found.oldest_ms is None else max(now_ms() - found.oldest_ms, 0) / 1000
    return CommandsOpen(found.asked, found.running, found.waiting, oldest), tuple(
        sorted(found.noticed.items())
    )


def _staging(home: Home) -> tuple[Waiting, ...]:
    if not home.works_database.exists():
        return ()
    from crystal_node.derive.staging.listing import staged

    return tuple(
        Waiting(one_line(each.agent, 60), each.folder, each.words, bool(each.failure), each.since)
        for each in staged(home)
        if each.waits_for_a_person
    )
