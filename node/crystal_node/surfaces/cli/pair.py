"""``crystal pair``: invite another machine, join by a code, or show the vault's offline code."""

import asyncio
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from crystal_crypto.errors import BadCode, CrystalError
from crystal_crypto.hierarchy import Root
from crystal_crypto.invite_code import InviteCode
from crystal_crypto.pairing import decode, encode
from crystal_mirror.requests import StoreFailure
from crystal_node.base.errors import BadConfig, NotSetUp, UsageError, WrongCode
from crystal_node.base.locking import FileLock, is_held
from crystal_node.base.settings import LOCAL_RELAY, Flags, Settings, resolve
from crystal_node.base.settings.checks import checked_url
from crystal_node.base.wording import one_line
from crystal_node.device.device import opened
from crystal_node.device.enrolment import EnrolmentResult, join_vault
from crystal_node.device.own_relay import on_network, shared_url
from crystal_node.device.privacy import peek_privacy
from crystal_node.device.registration import UnknownVault
from crystal_node.device.relay import open_http
from crystal_node.safekeeping.pairing.errors import FOR_THE_INVITER, FOR_THE_NEWCOMER
from crystal_node.safekeeping.pairing.inviter import invite as serve
from crystal_node.safekeeping.pairing.newcomer import Joined, join_by_invite
from crystal_node.safekeeping.pairing.person import Confirmation, Invited, InviterPerson, NewcomerPerson
from crystal_node.safekeeping.pairing.qr import check_file, write
from crystal_node.surfaces.cli.console.options import DeviceName, Json, Relay, Yes
from crystal_node.surfaces.cli.console.output import emit, emit_line, note, say
from crystal_node.surfaces.cli.console.prompts import (
    InputLines,
    confirm,
    tell_wrong,
    typed_line,
    until_right,
)
from crystal_node.surfaces.cli.console.relay_link import relay_and_token
from crystal_node.surfaces.cli.console.terminal import is_terminal, show_code
from crystal_node.surfaces.cli.pair_code import (
    ask_code,
    check_argument,
    code_in,
    explain_old_code,
    is_invite,
    read_invite,
)
from crystal_node.surfaces.cli.pair_dialogue import (
    JsonInviter,
    JsonNewcomer,
    TerminalInviter,
    TerminalNewcomer,
    described,
    shown,
)
from crystal_node.surfaces.cli.pair_relay import at_shared_relay, close_again, until_reached, until_synced
from crystal_node.surfaces.cli.recovery import offer_kit
from crystal_node.sync.syncer import sync_now
from crystal_relay.errors import RelayError

_ASK = "-"

Offline = Annotated[
    bool,
    typer.Option(
        "--offline", help="Show the offline code instead of an invite: anybody who has it has the vault."
    ),
]
Code = Annotated[
    str | None,
    typer.Option(
        "--code",
        metavar="CODE",
        help="Join with this invite; - reads an invite or an offline code from standard input, or asks for it.",
    ),
]
CodeFile = Annotated[
    Path | None, typer.Option("--code-file", metavar="FILE", help="Join with the code in this file.")
]
QrFile = Annotated[
    Path | None,
    typer.Option(
        "--qr", metavar="FILE", help="Write the code's QR to this .png or .svg instead of drawing it."
    ),
]
Grant = Annotated[
    bool, typer.Option("--grant", help="Allow the new machine to become the Core by itself later.")
]
EnrolToken = Annotated[
    str | None,
    typer.Option(
        "--enroll-token",
        metavar="T",
        help="The enrolment token of the relay that the vault moves to; - reads it.",
    ),
]
Here = Annotated[bool, typer.Option("--here", help="Open the relay in this home to your network.")]
NewKeys = Annotated[
    bool,
    typer.Option("--new-keys", help="Join as a new device: for a machine that was revoked."),
]


def run(
    offline: Offline = False,
    code: Code = None,
    code_file: CodeFile = None,
    qr: QrFile = None,
    grant: Grant = False,
    new_keys: NewKeys = False,
    relay: Relay = None,
    enroll_token: EnrolToken = None,
    here: Here = False,
    name: DeviceName = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Bring another machine into the vault, or join one.

    On a machine that is set up this shows an invite, good for one machine and ten minutes. Give it to the new machine,
    and type here the six digits that the new machine shows. The new machine joins with the code: it asks for it, to be typed
    or pasted, and asks again after a typing error. An invite adds nobody without the digits. Joining again, with another
    invite, replaces a lost relay token. With --json each event is one line; digits are read from standard input.

    While the vault's relay is in this home, it first asks for one that both machines reach: this relay, opened to your
    network (--here), or another one (--relay URL), to which the vault then moves.

    --offline shows a code that works without the first machine's help, and opens everything.

    Example:

        crystal pair             (on the Core)
        crystal pair --code -    (on the new machine)
    """
    joins = code is not None or code_file is not None
    if offline and joins:
        raise UsageError("--offline shows a code and --code takes one: not both at once")
    if code is not None and code_file is not None:
        raise UsageError("--code and --code-file each give a code: one of them")
    relay, enroll_token = relay_and_token(relay, enroll_token)
    settings = resolve(Flags(relay_url=relay, name=name))
    joins = joins or (settings.vault is None and not offline)
    if joins and (qr is not None or grant):
        raise UsageError(f"{'--qr' if qr is not None else '--grant'} is for the machine that invites")
    if not joins and new_keys:
        raise UsageError("--new-keys is for the machine that joins")
    if joins and (enroll_token is not None or here):
        raise UsageError(f"{'--here' if here else '--enroll-token'} is for the machine that invites")
    if joins:
        check_argument(code)
        given = code_in(code_file) if code_file is not None else code or _ASK
        join(settings, given, as_json=as_json, yes=yes, new_keys=new_keys)
    elif offline:
        if grant:
            raise UsageError(
                "--grant goes with an invite",
                hint="A machine that joins by the offline code may do everything.",
            )
        settings = at_shared_relay(settings, enroll_token, here=here, yes=yes, as_json=as_json)
        show_offline(settings, qr, yes=yes, as_json=as_json)
    else:
        shared = at_shared_relay(settings, enroll_token, here=here, yes=yes, as_json=as_json)
        try:
            invite(shared, qr, grant=grant, as_json=as_json)
        except BaseException:
            close_again(settings)
            raise
        if shared.relay_is_local and not as_json:
            say(
                f"Other machines reach this one's relay at port {shared.service.own_relay_port}, while its background service"
            )
            say(
                "runs. A firewall here must let that port through. To close it: crystal config unset own_relay_port"
            )
        if settings.config.relay_url == LOCAL_RELAY and not shared.relay_is_local and not as_json:
            offer_kit(shared)  # from now on it would bring the vault back


def join(
    settings: Settings,
    code: str,
    *,
    as_json: bool,
    yes: bool = False,
    new_keys: bool = False,
) -> None:
    """Join with a code of either kind; ``-`` reads it, at a terminal until one is right."""
    if code != _ASK or as_json or not is_terminal():
        _join(settings, code, as_json=as_json, yes=yes, new_keys=new_keys)
        return
    until_right(lambda: _join(settings, _ASK, as_json=False, yes=yes, new_keys=new_keys), WRONG_CODES)


WRONG_CODES = (BadCode, *FOR_THE_NEWCOMER, UnknownVault, StoreFailure)
"""At a terminal, a person is asked for the code again."""


def _join(settings: Settings, code: str, *, as_json: bool, yes: bool, new_keys: bool) -> None:
    if code == _ASK:
        code = ask_code()
    if is_invite(code):
        invite = read_invite(settings, code, yes=yes)
        join_with_invite(settings, invite, as_json=as_json, yes=yes, new_keys=new_keys)
        return

    join_offline(settings, code, as_json=as_json, new_keys=new_keys)


def with_relay(settings: Settings, *, as_json: bool) -> Settings:
    """The settings with a relay, which a person is asked for: an offline code names none."""
    if as_json or not is_terminal() or (settings.relay_url and not settings.relay_is_local):
        return settings
    url = until_right(lambda: checked_url(typed_line(_RELAY, ""), "your answer"), (BadConfig,))
    return resolve(Flags(relay_url=url, name=settings.name.value)) if url else settings


_RELAY = "The relay's address (`crystal status` on the other machine shows it): "


_WARNING = """\
The code opens the whole vault: anybody who has it can read everything, add devices and become the Core.
It never expires, and no digits protect it. To bring in one machine, plain `crystal pair` is safer.
Show it to nobody, photograph it nowhere, and clear the screen afterwards.
"""


def key_check(root: Root) -> str:
    """Four groups that are the same for the same root: "3f2a 9c01 77be 10d4". They reveal nothing of it."""
    text = root.check_value.hex()
    return " ".join(text[at : at + 4] for at in range(0, len(text), 4))


def show_offline(settings: Settings, qr: Path | None, *, yes: bool, as_json: bool) -> None:
    """Show the offline code, the vault's root itself, after a typed confirmation."""
    if settings.vault is None:
        raise NotSetUp(f"{settings.home.root} belongs to no vault yet")
    if qr is not None:
        check_file(qr)
    with opened(settings) as device:
        root, in_force = device.root, device.holds_root
    if root is None or not in_force:
        raise WrongCode(
            "this machine does not hold the vault's root"
            if root is None
            else "the vault's root was replaced, and the one on this machine opens nothing any more",
            hint="Show the code on a machine that holds the root: `crystal devices` names it.",
        )
    if not yes:
        confirm("\nType show to show it: ", expect="show", about=_WARNING, as_json=as_json)
    text = encode(root, settings.vault)
    if as_json:
        if qr is not None:
            write(text, qr)
        emit({"code": text, "key_check": key_check(root), "qr": str(qr) if qr else None})
        return
    show_code(text, qr)
    note(f"Key check: {key_check(root)}. The other machine has to show the same.")
    note(
        f"There: `crystal pair --code - --relay '{shared_url(settings)}'`, with the address at which it reaches the relay."
    )
    if settings.relay_is_local and not is_held(settings.home.watch_lock):
        _serve_offline(settings)


def _serve_offline(settings: Settings) -> None:
    """Open the relay in this home to the other machine, without a background service, until the person ends it."""
    if not is_terminal():
        note(
            "Start the background service here first, so that the other machine reaches this relay: `crystal agent run`"
        )
        return
    lines = InputLines()

    async def until_enter() -> None:
        async with on_network(settings, note):
            await until_reached(settings)
            note("Other machines reach the relay in this home while this runs.")
            note("Press Enter once the other one is set up.")
            await lines.line()

    run_until_stopped(until_enter())


def join_offline(settings: Settings, code: str, *, as_json: bool, new_keys: bool) -> None:
    """Join by an offline code."""
    offline = decode(code)
    settings = with_relay(settings, as_json=as_json)
    note(f"Key check: {key_check(offline.root)}. The machine that shows the code has to show the same.")
    with explain_old_code(offline):
        enrolled = asyncio.run(join_vault(settings, offline.root, offline.vault, new_keys=new_keys))
    settings = enrolled.settings
    if as_json:
        emit(
            {
                "role": "node",
                "vault": enrolled.vault.hex(),
                "device": enrolled.device.hex(),
                "name": enrolled.name,
                "relay": settings.relay_url,
                "home": str(settings.home.root),
                "keys": enrolled.keys.kind.value,
                "key_check": key_check(offline.root),
                "fresh": enrolled.fresh,
                "anew": enrolled.anew,
                "replaced": enrolled.replaced.hex() or None,
            }
        )
        return
    if not enrolled.fresh:
        note_private(settings)
    if enrolled.anew:
        say_anew(enrolled, new_keys=new_keys)
        return
    if not enrolled.fresh:
        say(f"This machine was in the vault already; the relay {settings.relay_url} knows it again.")
        return
    say(f"This machine ({enrolled.name}) has joined vault {enrolled.vault.hex()[:8]}.")
    note_name(enrolled)
    say("It holds the vault's root now: anybody who has this machine can do everything with the vault.")
    say()
    say("Next:  crystal capture          record this machine's conversations")
    say("       crystal up               hooks, and the background service")
    say("       crystal search WORDS     find anything, offline")


T = TypeVar("T")


def invite(settings: Settings, qr: Path | None, *, grant: bool, as_json: bool) -> None:
    """Invite one machine, and wait until it has joined or the invite has ended."""
    if qr is not None:
        check_file(qr)
    lines = InputLines()
    if lines.at_end():
        raise UsageError(
            "nobody can type the newcomer's digits here: standard input is closed; no invite was made",
            hint="Run it in a terminal, or let a program write them: `crystal pair --json` says when.",
        )
    person: InviterPerson = JsonInviter(lines, qr) if as_json else TerminalInviter(lines, qr)
    invited = _invited(settings, person, grant=grant)
    while invited is None:
        person = TerminalInviter(InputLines(), qr)
        invited = _invited(settings, person, grant=grant)
    if as_json:
        emit_line(
            {
                "event": "paired",
                **described(invited.machine),
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


def _invited(settings: Settings, person: InviterPerson, *, grant: bool) -> Invited | None:
    """One invite; None if it ended without a machine and the person wants another one."""
    try:
        return run_until_stopped(_invite(settings, person, grant=grant))
    except FOR_THE_INVITER as error:
        person.ended()
        if isinstance(person, JsonInviter) or not is_terminal():
            raise
        tell_wrong(error)
        if typed_line("Show another invite? [yes/no] (yes) ", "yes").lower() not in ("y", "yes"):
            raise
        return None
    finally:
        person.ended()


def enter(settings: Settings, code: InviteCode, *, as_json: bool, yes: bool, new_keys: bool) -> Joined:
    """Join by an invite, with the person or program at this machine."""
    before, wanted = settings.config.relay_url, settings.at_relay(code.url).relay_url
    if settings.vault is not None and before not in ("", LOCAL_RELAY, wanted):
        # Whoever knows the vault's id can make such an invite: what the person is asked then is about more than a machine.
        note(
            f"This machine uses the relay {before}. The invite would move it to {one_line(wanted, 200)}: go on only if the "
            "vault has moved there."
        )
    lines = InputLines()
    person: NewcomerPerson = (
        JsonNewcomer(lines, yes=yes, relay=wanted, relay_now=before)
        if as_json
        else TerminalNewcomer(lines, yes=yes)
    )
    try:
        return run_until_stopped(join_by_invite(settings, code, person, new_keys=new_keys))
    finally:
        person.ended()


def join_with_invite(
    settings: Settings, code: InviteCode, *, as_json: bool, yes: bool, new_keys: bool
) -> None:
    """Join by an invite, and sync for the first time."""
    joined = enter(settings, code, as_json=as_json, yes=yes, new_keys=new_keys)
    synced = first_sync(joined.enrolled.settings)
    if as_json:
        emit_line(_joined_document(joined, synced=synced))
        return
    settings = joined.enrolled.settings
    vault = joined.enrolled.vault.hex()[:8]
    if joined.enrolled.fresh:
        say(f"This machine ({joined.enrolled.name}) has joined vault {vault}.")
        note_name(joined.enrolled)
    elif joined.enrolled.anew:
        note_private(joined.enrolled.settings)
        say_anew(joined.enrolled, new_keys=new_keys)
    else:
        say(f"This machine was in vault {vault} already; the relay {settings.relay_url} knows it again.")
    if not synced:
        note("The first sync did not come through; `crystal sync` says why and tries again.")
    if joined.enrolled.fresh:
        say()
        say("Next:  crystal capture          record this machine's conversations")
        say("       crystal up               hooks, and the background service")
        say("       crystal search WORDS     find anything, offline")


def note_name(enrolled: EnrolmentResult) -> None:
    """Say so if the vault gave this machine another name than it asked for."""
    if enrolled.name != enrolled.settings.name.value:
        note(
            f"The vault calls this machine {one_line(enrolled.name, 60)}: another device is called "
            f"{one_line(enrolled.settings.name.value, 60)}. To change it, run `crystal devices rename` on the Core."
        )


def note_private(settings: Settings) -> None:
    """Say that private mode is on, which a home that lost its state may not expect."""
    privacy = peek_privacy(settings.home.state_database)
    if privacy.on:
        lost = " This machine lost its record of what was private." if privacy.since == 0 else ""
        note(f"Private mode is on: nothing is recorded until `crystal private off`.{lost}")


def say_anew(enrolled: EnrolmentResult, *, new_keys: bool) -> None:
    """Say that this home is a new device now, and which one it was."""
    vault = enrolled.vault.hex()[:8]
    say(f"This machine ({enrolled.name}) is back in vault {vault}, as another device than before.")
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


def _listed(enrolled: EnrolmentResult) -> bool | None:
    """Whether the device that this home was is still a member; None if it is not known which that was."""
    if not enrolled.replaced:
        return None
    with opened(enrolled.settings) as device:
        return device.member.log.is_active(enrolled.replaced)


def run_until_stopped(work: Coroutine[Any, Any, T]) -> T:
    """Run it; SIGTERM and SIGHUP stop it as Ctrl-C does, so that no invite stays open."""

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


async def _invite(settings: Settings, person: InviterPerson, *, grant: bool) -> Invited:
    with opened(settings) as device:
        device.member.check_active()
        token = device.keys.token(device.identity.id)
        if not settings.relay_url or token is None:
            raise NotSetUp("this device has no relay", hint="Join again: `crystal pair --code -`.")
        with FileLock(settings.home.setup_lock, purpose="crystal pair"):
            async with (
                on_network(settings, note),
                open_http(settings, vault=device.member.vault, token=token) as http,
            ):
                await until_reached(settings)
                invited = await serve(device, http, person, grant=grant)
                if settings.relay_is_local and not is_held(settings.home.watch_lock):
                    await until_synced(http, device.member.vault, invited.machine.device)
                return invited


def first_sync(settings: Settings) -> bool:
    """Sync if possible. Returns whether it worked; the machine is set up in any case."""
    try:
        with opened(settings) as device:
            asyncio.run(sync_now(device))
    except (CrystalError, RelayError):
        return False
    return True


def _paired(invited: Invited) -> str:
    name = shown(invited.machine)
    if invited.again:
        return f"{name} was a device of this vault before; it has a new token for the relay."
    grant = ", and may become the Core" if invited.grant else ""
    called = f", called {one_line(invited.machine.called, 60)}" if invited.machine.called else ""
    return f"{name} is now a device of this vault{called}{grant}."


def _joined_document(joined: Joined, *, synced: bool) -> dict[str, object]:
    enrolled = joined.enrolled
    settings = enrolled.settings
    return {
        "event": "joined",
        "role": "node",
        "vault": enrolled.vault.hex(),
        "device": enrolled.device.hex(),
        "name": enrolled.name,
        "relay": settings.relay_url,
        "home": str(settings.home.root),
        "keys": enrolled.keys.kind.value,
        "fresh": enrolled.fresh,
        "anew": enrolled.anew,
        "replaced": enrolled.replaced.hex() or None,
        "inviter": described(joined.inviter),
        "synced": synced,
    }
