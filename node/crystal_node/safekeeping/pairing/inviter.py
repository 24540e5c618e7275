"""The inviting side: opens a mailbox, shows the code, has the digits typed, and only then adds the newcomer.

::

    OPEN --a join that opens--> MET --right digits--> ADDING --log, token--> ADDED --welcome--> WELCOMED --done--> over: used
     |  \\                        |  \\                   |                      |                   |  \\
     |   ten minutes: expired    |   ten minutes        |  fails: what the      |  fails: added,    |   ten minutes: used
     |                           |   wrong 3 times:     |  log holds counts     |  not told         +-- stopped: stays added
     +-- stopped: withdrawn      |   burnt              +-- stopped: finished first, then told      +-- refuses: taken back
                                 +-- stopped: withdrawn

Before ADDING, nothing was written but the mailbox. Once an entry that adds the newcomer was sent, a stop comes too late: the
step is finished, and the person is told. A relay that is away is retried while the invite lives. The invite is always closed at
the relay in the end; if that is out of reach, it expires.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from crystal_crypto.errors import BadJoin, BadMessage, CrystalError
from crystal_crypto.invite import EndReason, Inviter, Newcomer
from crystal_crypto.invite_code import encode_invite
from crystal_mirror.requests import StoreFailure
from crystal_node.base.errors import UsageError
from crystal_node.base.wording import one_line
from crystal_node.device.enrolment import system_name
from crystal_node.device.own_relay import shared_url
from crystal_node.device.runner import store_failure
from crystal_node.safekeeping.pairing.errors import (
    DigitsDiffer,
    Expired,
    InviteDeclined,
    LastStepFailed,
    NewcomerLeft,
    NobodyCame,
    PairingFailed,
    RelayLost,
    RevokedBefore,
    StrangeNewcomer,
    TooManyOpen,
)
from crystal_node.safekeeping.pairing.mailbox import Countdown, InviterMailbox, Post, over
from crystal_node.safekeeping.pairing.person import Confirmation, Invited, InviterPerson, Machine, ShownInvite
from crystal_node.safekeeping.pairing.registrar import Admission, Membership, Registrar
from crystal_node.safekeeping.pairing.short_invite import keep
from crystal_relay.errors import RelayError, TooManyInvites
from crystal_relay.invites import CloseReason, InviteState, MailboxSlot, access_hash

if TYPE_CHECKING:
    from crystal_node.device.device import Device
    from crystal_relay.client.http import HttpStore

DONE_SECONDS_MAX = 600.0
"""Longest wait for the newcomer's confirmation, within the life of the invite: its person may have to be found first."""
ADD_SECONDS_MIN = 10.0
"""With less time left of the invite, nobody is added: the welcome could come too late."""
_FINISH_SECONDS_MAX = 30.0
"""Time for a step under way when the person stops the pairing."""
_CLOSE_SECONDS_MAX = 5.0
_READ_SECONDS = 0.5
"""Time for a newcomer to read the welcome or the reason of an end: a closed invite cannot be read."""

T = TypeVar("T")


class InviteStep(Enum):
    """The state of an invite; see the drawing."""

    OPEN = "open"
    MET = "met"
    ADDING = "adding"
    ADDED = "added"
    WELCOMED = "welcomed"


async def invite(
    device: "Device",
    http: "HttpStore",
    person: InviterPerson,
    *,
    grant: bool = False,
    monotonic: Callable[[], float] = time.monotonic,
) -> Invited:
    """Adds one machine to this device's vault.

    Raises:
        NotAllowed: this device may not add devices.
        PairingFailed: see its subclasses.
        StoreFailure: the relay cannot be reached, or refuses.
    """
    registrar = Registrar(device, http, grant=grant)
    await registrar.refresh()
    registrar.check_right()
    earlier = registrar.interrupted()
    if earlier is not None:
        person.remind(Machine(earlier.name, earlier.system, earlier.device))
    url = shared_url(device.settings)
    side = Inviter.begin(
        vault=device.member.vault,
        url=url,
        device=device.identity.id,
        name=device.name,
        system=system_name(),
    )
    try:
        seconds = await http.create_invite(side.code.mailbox, access_hash(side.code.access))
        mailbox = InviterMailbox(http, device.member.vault, side.code.mailbox)
        post = Post(mailbox, Countdown(seconds, monotonic), person.away)
        serving = _Serving(side, registrar, mailbox, post, person, grant)
        return await serving.run(url)
    except TooManyInvites as error:
        raise TooManyOpen(f"no invite was made: {error}") from error
    except RelayError as error:
        raise store_failure(error) from error


class _Serving:
    """One invite, while it is open."""

    def __init__(
        self,
        side: Inviter,
        registrar: Registrar,
        mailbox: InviterMailbox,
        post: Post,
        person: InviterPerson,
        grant: bool,
    ) -> None:
        self.step = InviteStep.OPEN
        self._side = side
        self._registrar = registrar
        self._mailbox = mailbox
        self._post = post
        self._person = person
        self._grant = grant
        self._newcomer: Newcomer | None = None

    async def run(self, relay: str) -> Invited:
        try:
            await self._put(MailboxSlot.OFFER, self._side.offer())
            short = await keep(self._side.code, self._mailbox, self._post)
            text = encode_invite(self._side.code)
            self._person.show(ShownInvite(text, short, relay, self._post.seconds_left))
            newcomer = await self._meet()
            await self._agree(newcomer)
            admission = await self._admit(newcomer)
            return await self._conclude(newcomer, admission)
        except (RelayError, StoreFailure) as error:
            await self._close_after(error)
            raise self._lost(error) from error
        except BaseException as error:
            await self._close_after(error)
            raise

    async def _meet(self) -> Newcomer:
        """Waits for a join, and answers it."""
        found = await self._post.first_of([MailboxSlot.JOIN], tick=self._person.waiting)
        if found is None:
            raise NobodyCame("the invite expired, and no machine had come")
        try:
            newcomer = self._side.open_join(found[1])
        except BadJoin as error:
            raise StrangeNewcomer(f"what came through the invite was no newcomer: {error}") from error
        self.step = InviteStep.MET
        self._registrar.check_newcomer(newcomer)
        await self._put(MailboxSlot.REVEAL, self._side.reveal())
        self._person.arrived(self._machine(newcomer))
        return newcomer

    async def _agree(self, newcomer: Newcomer) -> None:
        """Returns once the person has typed the newcomer's digits."""
        while True:
            tries = self._side.tries_left
            typed = await self._typed(newcomer)
            if self._side.check(typed):
                break
            if self._side.tries_left == tries:
                self._person.unreadable()
                continue
            self._person.wrong(self._side.tries_left)
            if not self._side.tries_left:  # §21.4-3
                raise DigitsDiffer("other digits three times: the invite is burnt")
        info = await self._post.info()
        if info.state is not InviteState.OPEN:
            raise over(info)
        if self._post.seconds_left < ADD_SECONDS_MIN:
            raise Expired("the digits came when the invite's ten minutes were as good as over")
        self._check_still_there(await self._post.get(MailboxSlot.DONE))

    async def _typed(self, newcomer: Newcomer) -> str:
        """The person's answer, unless the invite ends or the newcomer leaves before it."""
        asking = asyncio.create_task(self._person.digits(self._machine(newcomer), self._side.tries_left))
        watching = asyncio.create_task(self._post.first_of([MailboxSlot.DONE]))
        try:
            await asyncio.wait({asking, watching}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                typed = await asking
                if typed is None:
                    raise InviteDeclined("not a machine of yours: it was not added")
                return typed
            found = await watching
            if found is not None:
                self._check_still_there(found[1])
            raise Expired("the invite's ten minutes were over before the digits were typed")
        finally:
            for task in (asking, watching):
                task.cancel()
            await asyncio.gather(asking, watching, return_exceptions=True)

    def _check_still_there(self, done: bytes | None) -> None:
        if done is None:
            return
        try:
            self._side.open_done(done)
        except BadMessage as error:
            raise StrangeNewcomer("somebody else wrote into the mailbox in the newcomer's name") from error
        raise NewcomerLeft("the new machine has left the pairing")

    async def _admit(self, newcomer: Newcomer) -> Admission:
        """Adds the newcomer and sends the welcome. A stop waits for a step that was begun."""
        return await self._finished(self._add_and_welcome(newcomer))

    async def _finished(self, step: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(step)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if self._membership() is not Membership.OUT:
                await asyncio.wait({task}, timeout=_FINISH_SECONDS_MAX)  # §21.4-7
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise

    async def _add_and_welcome(self, newcomer: Newcomer) -> Admission:
        self.step = InviteStep.ADDING  # §21.4-7
        self._registrar.intend(newcomer)
        self._newcomer = newcomer
        admission = await self._post.patiently(lambda: self._registrar.admit(newcomer))
        self.step = InviteStep.ADDED
        try:
            welcome = self._side.welcome(
                admission.slot, admission.entry_hash, admission.head, admission.root_number
            )
            await self._put(MailboxSlot.WELCOME, welcome)
        except (RelayError, PairingFailed) as error:
            raise LastStepFailed(f"{_shown(newcomer)} is added and could not be told: {error}") from error
        self.step = InviteStep.WELCOMED
        return admission

    def _machine(self, newcomer: Newcomer) -> Machine:
        return Machine(newcomer.name, newcomer.system, newcomer.device, self._registrar.called(newcomer))

    def _membership(self) -> Membership:
        return Membership.OUT if self._newcomer is None else self._registrar.membership(self._newcomer.device)

    def _lost(self, cause: RelayError | StoreFailure) -> PairingFailed:
        """The error for a failure of the relay, which says whether anybody was added."""
        error = cause if isinstance(cause, StoreFailure) else store_failure(cause)
        if self._newcomer is None or self._membership() is Membership.OUT:
            return RelayLost.by(error, "nobody was added", RelayLost.hint)
        if self._membership() is Membership.IN:
            return LastStepFailed(
                f"{_shown(self._newcomer)} is added, and could not be let in at the relay: {error}"
            )
        return RelayLost.by(
            error,
            f"whether {_shown(self._newcomer)} was added is not known, the relay's answer did not come",
            "Once the relay is there, `crystal sync` and `crystal devices` tell. Pairing it again with a new invite is right "
            "in either case: it is not added twice.",
        )

    async def _conclude(self, newcomer: Newcomer, admission: Admission) -> Invited:
        self._person.added(self._machine(newcomer))
        confirmation = Confirmation.SILENT
        found = None
        with suppress(
            RelayError, PairingFailed
        ):  # it is added and has its welcome: nothing depends on the confirmation
            found = await self._post.first_of(
                [MailboxSlot.DONE], within=DONE_SECONDS_MAX, tick=self._person.settling
            )
        if found is not None:
            with suppress(BadMessage):
                if not self._side.open_done(found[1]):
                    await self._finished(self._refused(newcomer, admission))
                confirmation = Confirmation.CONFIRMED
                self._registrar.settle()
        await self._close(CloseReason.USED)
        return Invited(
            self._machine(newcomer), admission.slot, not admission.fresh, self._grant, confirmation
        )

    async def _refused(self, newcomer: Newcomer, admission: Admission) -> None:
        """Raises NewcomerLeft, after the newcomer was taken back, or LastStepFailed."""
        if not admission.fresh:
            raise NewcomerLeft(
                f"{_shown(newcomer)} refused", hint="It was a device of this vault before, and still is one."
            )
        if not await self._registrar.take_back(newcomer.device):
            raise LastStepFailed(
                f"{_shown(newcomer)} refused after it was added, and could not be taken out again",
                hint=f"Take it out: `crystal devices revoke {newcomer.device.hex()[:8]}`.",
            )
        self._registrar.settle()
        raise NewcomerLeft(f"{_shown(newcomer)} refused and was taken out again")

    async def _put(self, slot: MailboxSlot, data: bytes) -> None:
        if not await self._post.put(slot, data):
            raise StrangeNewcomer("the relay holds something else in the place of this machine's message")

    async def _close_after(self, error: BaseException) -> None:
        """Closes the invite by the outcome, and tells the newcomer why it ended."""
        if self.step in (InviteStep.ADDED, InviteStep.WELCOMED):
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(_READ_SECONDS)  # the welcome may have been written a moment ago
            await self._close(CloseReason.USED)
        elif isinstance(error, (NobodyCame, Expired)):
            return  # the relay reports it as expired
        elif isinstance(error, DigitsDiffer):
            await self._close(CloseReason.BURNT, EndReason.DIGITS)
        elif isinstance(error, (StrangeNewcomer, InviteDeclined)):
            await self._close(CloseReason.BURNT, EndReason.WITHDRAWN)
        elif isinstance(error, RevokedBefore):
            await self._close(CloseReason.WITHDRAWN, EndReason.REVOKED)
        elif isinstance(error, (asyncio.CancelledError, UsageError)):
            await self._close(CloseReason.WITHDRAWN, EndReason.WITHDRAWN)
        else:
            await self._close(CloseReason.WITHDRAWN, EndReason.FAILED)
        if isinstance(error, asyncio.CancelledError):
            membership = self._membership()
            self._person.withdrawn(
                added=None if membership is Membership.UNKNOWN else membership is Membership.IN
            )

    async def _close(self, reason: CloseReason, end: EndReason | None = None) -> None:
        """Best effort: at a relay that is gone, the invite expires a little later."""
        with suppress(RelayError, CrystalError, TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS_MAX):
                if end is not None:
                    with suppress(RelayError):
                        await self._mailbox.put_new(MailboxSlot.END, self._side.end(end))
                    if self.step is not InviteStep.OPEN:
                        await asyncio.sleep(_READ_SECONDS)
                await self._mailbox.close(reason)


def _shown(newcomer: Newcomer) -> str:
    return f"{newcomer.device.hex()[:8]} ({one_line(newcomer.name, 40)})"
