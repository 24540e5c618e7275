"""``crystal pair`` by invite: puts both sides together from a home, a relay and whoever sits here."""

import asyncio
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from crystal_node.base.errors import Usage
from crystal_node.base.wording import one_line
from crystal_node.safekeeping.pairing.person import Confirmation, Invited, InviterPerson, NewcomerPerson
from crystal_node.surfaces.cli import pair_events, pair_people
from crystal_node.surfaces.cli.lines import InputLines
from crystal_node.surfaces.cli.output import emit_line, note, say

if TYPE_CHECKING:
    from crystal_crypto.invite_code import InviteCode
    from crystal_node.base.settings import Settings
    from crystal_node.device.enrol import Enrolled
    from crystal_node.safekeeping.pairing.newcomer import Joined

T = TypeVar("T")


def invite(settings: "Settings", qr: Path | None, *, grant: bool, as_json: bool) -> None:
    """Invites one machine, and stays until it is in or the invite is over."""
    from crystal_node.safekeeping.pairing.qr import check_file

    if qr is not None:
        check_file(qr)
    lines = InputLines()
    if lines.at_end():
        raise Usage(
            "nobody can type the newcomer's digits here: standard input is closed; no invite was made",
            hint="Run it in a terminal, or let a program write them: `crystal pair --json` says when.",
        )
    person: InviterPerson = (
        pair_events.JsonInviter(lines, qr) if as_json else pair_people.TerminalInviter(lines, qr)
    )
    try:
        invited = run_until_stopped(_invite(settings, person, grant=grant))
    finally:
        person.ended()
    if as_json:
        emit_line(
            {
                "event": "paired",
                **pair_events.described(invited.machine),
                "slot": invited.slot,
                "again": invited.again,
                "grant": invited.grant,
                "confirmed": invited.confirmation is Confirmation.CONFIRMED,
            }
        )
        return
    say(_paired(invited))
    if invited.confirmation is Confirmation.SILENT:
        note(
            "It has not said so itself yet. If it asks something, answer there; if it stopped, pair it again: "
            f"it is not added twice. To take it out: crystal devices revoke {invited.machine.device.hex()[:8]}"
        )


def enter(settings: "Settings", code: "InviteCode", *, as_json: bool, yes: bool, new_keys: bool) -> "Joined":
    """Joins by an invite, with whoever sits here."""
    from crystal_node.safekeeping.pairing.newcomer import join_by_invite

    before, wanted = settings.config.relay_url, settings.at_relay(code.url).relay_url
    if settings.vault is not None and before and before != wanted:
        # Whoever knows the vault's id can make such an invite: what the person is asked then is about more than a machine.
        note(
            f"This machine uses the relay {before}. The invite would move it to {one_line(wanted, 200)}: go on only if the "
            "vault has moved there."
        )
    lines = InputLines()
    person: NewcomerPerson = (
        pair_events.JsonNewcomer(lines, yes=yes, relay=wanted, relay_now=before)
        if as_json
        else pair_people.TerminalNewcomer(lines, yes=yes)
    )
    try:
        return run_until_stopped(join_by_invite(settings, code, person, new_keys=new_keys))
    finally:
        person.ended()


def join(settings: "Settings", code: "InviteCode", *, as_json: bool, yes: bool, new_keys: bool) -> None:
    """Joins by an invite, and syncs for the first time."""
    joined = enter(settings, code, as_json=as_json, yes=yes, new_keys=new_keys)
    synced = first_sync(joined.enrolled.settings)
    if as_json:
        emit_line(_joined_document(joined, synced=synced))
        return
    settings = joined.enrolled.settings
    vault = joined.enrolled.vault.hex()[:8]
    if joined.enrolled.fresh:
        say(f"This machine ({settings.name.value}) has joined vault {vault}.")
    elif joined.enrolled.anew:
        say_anew(joined.enrolled, new_keys=new_keys)
    else:
        say(f"This machine was in vault {vault} already; the relay {settings.relay_url} knows it again.")
    if not synced:
        note("The first sync did not come through; `crystal sync` says why and tries again.")
    if joined.enrolled.fresh:
        say()
        say("Next:  crystal capture          record this machine's conversations")
        say("       crystal up               hooks, and the agent that keeps in touch with the relay")
        say("       crystal search WORDS     find anything, offline")


def say_anew(enrolled: "Enrolled", *, new_keys: bool) -> None:
    """A home that was set up is another device now: so it says, and which one is left behind."""
    vault = enrolled.vault.hex()[:8]
    say(
        f"This machine ({enrolled.settings.name.value}) is back in vault {vault}, as another device than before."
    )
    listed = _listed(enrolled)
    if listed is False:
        return
    why = "" if new_keys else "The keys of the one that it was are not here any more. "
    if listed is None:
        note(
            f"{why}`crystal devices` shows it still: take it out with `crystal devices revoke`, where that is allowed."
        )
        return
    note(
        f"{why}The list has it still. If nothing else is that device, take it out on a machine that may: "
        f"crystal devices revoke {enrolled.replaced.hex()[:8]}"
    )


def _listed(enrolled: "Enrolled") -> bool | None:
    """Whether the device that this home was is a member still; None if it is not known which one that was."""
    from crystal_node.device.device import opened

    if not enrolled.replaced:
        return None
    with opened(enrolled.settings) as device:
        return device.member.log.is_active(enrolled.replaced)


def run_until_stopped(work: Coroutine[Any, Any, T]) -> T:
    """Runs it; SIGTERM and a closed terminal stop it as Ctrl-C does, so that no invite stays open behind."""

    async def main() -> T:
        task = asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, task.cancel)
        return await work

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _invite(settings: "Settings", person: InviterPerson, *, grant: bool) -> Invited:
    from crystal_node.base.errors import NotSetUp
    from crystal_node.base.locking import FileLock
    from crystal_node.device.device import opened
    from crystal_node.device.relaystore import open_http
    from crystal_node.safekeeping.pairing.inviter import invite as serve

    with opened(settings) as device:
        device.member.check_active()
        token = device.keys.token(device.identity.id)
        if not settings.relay_url or token is None:
            raise NotSetUp("this device has no relay", hint="Join again: `crystal pair --code -`.")
        with FileLock(settings.home.setup_lock, purpose="crystal pair"):
            async with open_http(settings, vault=device.member.vault, token=token) as http:
                return await serve(device, http, person, grant=grant)


def first_sync(settings: "Settings") -> bool:
    """Best effort: the machine is set up whether it comes through or not."""
    from crystal_crypto.errors import CrystalError
    from crystal_node.device.device import opened
    from crystal_node.sync.sync import sync_now
    from crystal_relay.errors import RelayError

    try:
        with opened(settings) as device:
            asyncio.run(sync_now(device))
    except (CrystalError, RelayError):
        return False
    return True


def _paired(invited: Invited) -> str:
    name = pair_people.shown(invited.machine)
    if invited.again:
        return f"{name} was a device of this vault before; it has a new token for the relay."
    grant = ", and may take the lead" if invited.grant else ""
    return f"{name} is now a device of this vault{grant}."


def _joined_document(joined: "Joined", *, synced: bool) -> dict[str, object]:
    enrolled = joined.enrolled
    settings = enrolled.settings
    return {
        "event": "joined",
        "role": "node",
        "vault": enrolled.vault.hex(),
        "device": enrolled.device.hex(),
        "name": settings.name.value,
        "relay": settings.relay_url,
        "home": str(settings.home.root),
        "keys": enrolled.keys.kind.value,
        "fresh": enrolled.fresh,
        "anew": enrolled.anew,
        "replaced": enrolled.replaced.hex() or None,
        "inviter": pair_events.described(joined.inviter),
        "synced": synced,
    }
