"""``crystal uninstall``: remove Crystal from this system and other programs; the home only with --purge."""

from typing import Annotated

import typer

from crystal_node.base.errors import UsageError
from crystal_node.base.settings import Settings, resolve
from crystal_node.base.wording import counted, one_line
from crystal_node.surfaces.cli.console.options import Json, Yes
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.surfaces.cli.console.prompts import confirm
from crystal_node.surfaces.setup.down import uninstall_plan
from crystal_node.surfaces.setup.removal import (
    HomeLoss,
    alone,
    check_is_home,
    left_over,
    loss_of,
    mark_of,
    purge,
)
from crystal_node.surfaces.setup.steps import StepOutcome, carry_out, exit_code

Purge = Annotated[
    bool,
    typer.Option("--purge", help="Remove the home, too: the memory on this machine, its keys, its settings."),
]
LoseIt = Annotated[
    bool,
    typer.Option("--yes-lose-it", help="With --purge: even what no other device has. It is lost for good."),
]


def run(
    purge: Purge = False,
    yes_lose_it: LoseIt = False,
    yes: Yes = False,
    as_json: Json = False,
) -> int:
    """Remove the background service, the hooks and the MCP server.

    The memory stays where it is, unless --purge removes the home, too. --purge names what goes with the home and asks
    first. If something would be lost that no other device has, it refuses: run `crystal sync` first. Other devices keep the
    vault, and list this one until it is revoked there.

    Example:

        crystal uninstall
        crystal uninstall --purge
    """
    if yes_lose_it and not purge:
        raise UsageError("--yes-lose-it goes with --purge")
    settings = resolve()
    if purge:
        _check(settings, lose=yes_lose_it, yes=yes, as_json=as_json)
    outcomes: list[StepOutcome] = []
    for outcome in carry_out(uninstall_plan(settings)):
        outcomes.append(outcome)
        if not as_json:
            for line in outcome.lines():
                say(line)
    code = exit_code(outcomes)
    lost = _purge(settings, lose=yes_lose_it) if purge and not code else None
    if as_json:
        emit(
            {
                "home": str(settings.home.root),
                "steps": [outcome.document() for outcome in outcomes],
                "purged": lost is not None,
                "device": (lost.device.hex() or None) if lost else None,
                "exit_code": int(code),
            }
        )
    elif code:
        say(
            "Not everything is removed. Fix that, and run this again."
            + (" The home was not touched." if purge else "")
        )
    else:
        _tell_end(settings, lost)
    return code


def _check(settings: Settings, *, lose: bool, yes: bool, as_json: bool) -> None:
    """Say what would be lost and confirm it, before anything is done."""
    if not settings.home.root.exists():
        if not mark_of(left_over(settings.home)).exists():
            note(f"There is no home {settings.home.root}.")
        return
    check_is_home(settings)
    loss = loss_of(settings)
    _refuse(loss, lose=lose)
    if not yes:
        confirm("Type remove to go on: ", expect="remove", about=_about(loss), as_json=as_json)


def _refuse(loss: HomeLoss, *, lose: bool) -> None:
    if loss.for_good and not lose:
        raise UsageError(
            f"this would be lost for good: {'; '.join(loss.for_good)}",
            hint="`crystal sync` shares what waits, `crystal recovery verify` proves that the kit works. "
            "To lose it all the same: --yes-lose-it",
        )


def _about(loss: HomeLoss) -> str:
    lines = [
        f"This removes {loss.root} ({one_line(loss.name, 60)}): the memory on this machine, its keys, its settings."
    ]
    lines += [f"  LOST FOR GOOD: {text}" for text in loss.for_good]
    if loss.holds_root and not loss.only_root:
        lines.append("  The vault's root goes from here: the recovery kit, or another device, has it still.")
    if loss.is_core:
        lines.append(
            "  This machine is the vault's Core. "
            + (
                f"{counted(loss.others, 'other device')} will get nothing new until one of them is promoted."
                if loss.others
                else "There is no other device: only the relay and the recovery kit bring the vault back."
            )
        )
    return "\n".join(lines) + "\n"


def _purge(settings: Settings, *, lose: bool) -> HomeLoss:
    """Check once more while no other process works in the home, and remove it."""
    if not settings.home.root.exists():
        purge(settings)
        return HomeLoss(settings.home.root)
    with alone(settings):
        loss = loss_of(settings)
        _refuse(loss, lose=lose)
        purge(settings)
    return loss


def _tell_end(settings: Settings, lost: HomeLoss | None) -> None:
    if settings.capture.native_memory:
        say("Memory files of AI tools stay as they are, with the lines of your other devices.")
    if lost is None:
        home = settings.home.root
        say(
            f"Nothing of Crystal is left in this system but the program and {home}, with all of its memory."
            if home.exists()
            else f"Nothing of Crystal is in this system but the program: there is no home {home}."
        )
        return
    say(f"{settings.home.root} is gone, and nothing of Crystal is left here but the program.")
    if lost.device and lost.others:
        say(f"Your other devices list this one still. There: crystal devices revoke {lost.device.hex()[:8]}")
