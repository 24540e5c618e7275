"""The joining side: meets the inviting machine by its code, shows six digits, and trusts nothing but the device log.

::

    KEYED --offer--> join put --reveal as promised--> SHOWING --welcome--> WELCOMED --the log agrees--> VERIFIED
      |                |                                |                                                 |
      |  no offer:     |  taken: used                   |  ended, or ten minutes: nothing was set up      |
      |  nobody waits  |  no reveal: nobody waits       |  stopped: refuses                               |
                                                                                                          v
                                       set up <--config.json names the vault--  the person says yes  CONFIRMED
                                                                                no, or stopped:      refuses

The device's keys are stored before anything is sent and ``config.json`` names the vault last, as in ``enrol``. Until the
person has confirmed, the vault's log is read into memory only: a home that was lured towards a foreign vault keeps nothing
of it. A home that is not set up drops the keys that it showed if the person does not know the inviting machine, if they
were revoked, or if it refused and they are no longer in the device log. Otherwise it keeps them, so that a device that was
added is not added twice. A home that is set up and joins as another device keeps its present keys until it is in.

A refusal has arrived when the inviting machine closes the invite after it. If it does not, the vault may still list this
machine: then the person is told its id, to revoke it.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crystal_crypto.errors import BadMessage, CryptoError, CrystalError
from crystal_crypto.invite import EndReason, InviterInfo, Joiner, Welcome
from crystal_crypto.invite_code import InviteCode
from crystal_mirror.devicelog.keyring import KeyRing
from crystal_mirror.devicelog.log import DeviceLog
from crystal_mirror.devicelog.sync import read_log
from crystal_mirror.errors import KeysWithheld
from crystal_mirror.membership.member import load_log
from crystal_mirror.requests import StoreFailure
from crystal_mirror.store_keys import StoreKeys
from crystal_node.device.enrolment import EnrolmentResult, PendingEnrolment, joining, system_name
from crystal_node.device.journal import SqliteJournal
from crystal_node.device.relay import invite_store, open_store
from crystal_node.device.runner import Runner, TokenRefused, store_failure
from crystal_node.safekeeping.pairing.errors import (
    DigitsDiffer,
    Expired,
    NobodyWaiting,
    NotAdded,
    NotConfirmed,
    NotInTheLog,
    PairingFailed,
    RelayLost,
    RelayOfTheCode,
    RevokedHere,
    StrangeInviter,
    UnknownInvite,
    Used,
    Withdrawn,
)
from crystal_node.safekeeping.pairing.mailbox import Countdown, NewcomerMailbox, Post, over
from crystal_node.safekeeping.pairing.person import Machine, NewcomerPerson
from crystal_relay.errors import (
    Busy,
    Forbidden,
    NotFound,
    RelayError,
    StoreUnavailable,
    Unauthorized,
    UntrustedCertificate,
)
from crystal_relay.invites import InviteState, MailboxSlot
from crystal_relay.tokens import new_token, token_hash

if TYPE_CHECKING:
    from crystal_node.base.settings import Settings

ANSWER_SECONDS_MAX = 30.0
"""Time for the inviting machine to answer a join, which needs no person."""
_LAST_WORD_SECONDS_MAX = 5.0
HEARD_SECONDS_MAX = 15.0
"""Time for the inviting machine to take this one out again."""
_HEARD_PAUSE_SECONDS = 0.25

_RELAY_LOST_HINT = (
    "Once the relay can be reached, run this again with a new invite. If the other machine says that it added this one: it is "
    "not added twice."
)


@dataclass(frozen=True, slots=True)
class Joined:
    """The outcome: the home as it is now, and the machine that added it."""

    enrolled: EnrolmentResult
    inviter: Machine


async def join_by_invite(
    settings: "Settings",
    code: InviteCode,
    person: NewcomerPerson,
    *,
    new_keys: bool = False,
    monotonic: Callable[[], float] = time.monotonic,
) -> Joined:
    """Joins the vault of an invite; a member gets a new token. ``new_keys``: joins as another device.

    Raises:
        WrongCode: this home belongs to another vault; nothing was asked of the relay.
        PairingFailed: see its subclasses.
        StoreFailure: the relay cannot be reached any more, or refuses.
        KeyStoreError: the keys cannot be kept.
    """
    settings = settings.at_relay(code.url)
    with joining(settings, code.vault, new_keys=new_keys) as home:
        store = invite_store(settings, code)
        try:
            mailbox = NewcomerMailbox(store)
            seconds = await _seconds_left(mailbox, settings.relay_url)
            post = Post(mailbox, Countdown(seconds, monotonic), person.away)
            return await _Meeting(home, code, post, person).run()
        except (RelayError, StoreFailure) as error:
            cause = error if isinstance(error, StoreFailure) else store_failure(error)
            raise RelayLost.by(cause, "nothing was set up here", _RELAY_LOST_HINT) from error
        finally:
            await store.aclose()


async def _seconds_left(mailbox: NewcomerMailbox, url: str) -> float:
    """Asks the relay for the invite's remaining seconds. Does not use it up."""
    try:
        info = await mailbox.info()
    except UntrustedCertificate as error:
        raise RelayOfTheCode(f"{error} ({url})", hint=f"{error.hint} The invite is not used up.") from error
    except (StoreUnavailable, Busy) as error:
        raise RelayOfTheCode(f"the relay of this code cannot be reached: {url} ({error})") from error
    except (Unauthorized, Forbidden, NotFound) as error:
        raise UnknownInvite("the relay knows no such invite") from error
    if info.state is not InviteState.OPEN:
        raise over(info)
    return info.expires_in


class _Meeting:
    """One newcomer's path through an invite."""

    def __init__(self, home: PendingEnrolment, code: InviteCode, post: Post, person: NewcomerPerson) -> None:
        self._home = home
        self._code = code
        self._post = post
        self._person = person
        self._token = new_token(home.identity.id)
        self._side = Joiner.begin(
            code,
            home.identity,
            name=home.settings.name.value,
            system=system_name(),
            token_hash=token_hash(self._token),
        )
        self._revealed = False
        self._welcome: Welcome | None = None

    async def run(self) -> Joined:
        try:
            inviter = await self._meet()
            welcome = self._welcome = await self._welcomed()
            read = SqliteJournal.open(":memory:")
            await self._post.patiently(lambda: self._verified(read, welcome))
            if not await self._person.confirms(inviter, self._code.vault):
                raise NotConfirmed("not confirmed: this machine was not set up")
        except (asyncio.CancelledError, NotConfirmed, NotInTheLog) as error:
            if isinstance(error, NotConfirmed):
                self._home.abandon()
            listed = await self._refuse()
            if isinstance(error, asyncio.CancelledError):
                self._person.left(listed)
            elif listed:
                error.hint = (
                    "Nothing was set up here, and the vault lists this machine still: take it out on the inviting one with "
                    f"`crystal devices revoke {listed.hex()[:8]}`."
                )
            raise
        await self._keep_log(read, welcome)
        read.close()
        self._home.keys.keep_token(self._token)
        enrolled = self._home.finish()
        await self._say(accepted=True)
        return Joined(enrolled, inviter)

    async def _meet(self) -> Machine:
        """Writes the join, and shows the digits once the inviting machine has answered."""
        offer = await self._post.first_of([MailboxSlot.OFFER], within=ANSWER_SECONDS_MAX)
        if offer is None:
            raise NobodyWaiting("the machine that made this invite is not waiting")
        try:
            offered = self._side.open_offer(offer[1])
        except BadMessage as error:
            raise StrangeInviter(f"the mailbox does not hold what belongs to this code: {error}") from error
        self._person.met(offered.name, self._code.vault)
        if not await self._post.put(MailboxSlot.JOIN, self._side.join()):
            raise Used("this invite was already used: another machine came first with it")
        slots = [MailboxSlot.REVEAL, MailboxSlot.END]
        slot, data = await self._post.first_of(slots, within=ANSWER_SECONDS_MAX) or (None, b"")
        if slot is None:
            raise NobodyWaiting("the machine that made this invite does not answer")
        if slot is MailboxSlot.END:
            raise self._ended(data)
        try:
            info: InviterInfo = self._side.open_reveal(data)
        except BadMessage as error:
            raise StrangeInviter(f"the other side is not who made this invite: {error}") from error
        self._revealed = True
        inviter = Machine(info.name, info.system, info.device)
        self._person.digits(self._side.digits, inviter, self._post.seconds_left)
        return inviter

    async def _welcomed(self) -> Welcome:
        slots = [MailboxSlot.WELCOME, MailboxSlot.END]
        try:
            found = await self._post.first_of(slots, tick=self._person.waiting)
        except Used as error:
            raise NotAdded(
                "the inviting machine closed the invite before its answer arrived here",
                hint="If it says that this machine was added, run this again with a new invite.",
            ) from error
        if found is None:
            raise Expired("the invite's ten minutes were over before the digits were typed")
        slot, data = found
        if slot is MailboxSlot.END:
            raise self._ended(data)
        try:
            return self._side.open_welcome(data)
        except BadMessage as error:
            raise StrangeInviter(
                f"the welcome is not from the machine that made this invite: {error}"
            ) from error

    def _ended(self, data: bytes) -> PairingFailed:
        try:
            reason = self._side.open_end(data)
        except BadMessage as error:
            return StrangeInviter(f"the mailbox does not hold what belongs to this code: {error}")
        match reason:
            case EndReason.DIGITS:
                return DigitsDiffer("other digits than these were typed three times on the inviting machine")
            case EndReason.WITHDRAWN:
                return Withdrawn("the invite was withdrawn on the machine that made it")
            case EndReason.FAILED:
                return NotAdded("the inviting machine could not add this one")
            case EndReason.REVOKED if self._home.fresh or self._home.anew:
                self._home.abandon()
                return RevokedHere(
                    "this machine's keys were revoked in that vault; it makes new ones",
                    hint="Make a new invite there, and run this again: it comes as a new device.",
                )
            case EndReason.REVOKED:
                return RevokedHere("this machine was a device of that vault, and was revoked")

    async def _verified(self, journal: SqliteJournal, welcome: Welcome) -> None:
        """Reads the device log and checks the welcome against it: this device, with its own keys, at its place.

        Raises:
            NotInTheLog: the log differs.
            StoreFailure: the log could not be read.
        """
        vault = self._code.vault
        log = load_log(journal, vault)
        async with open_store(self._home.settings, vault=vault, token=self._token) as store:
            await Runner(store, None).run(read_log(log, journal, StoreKeys(vault)))
        self._check(log, welcome)

    async def _keep_log(self, read: SqliteJournal, welcome: Welcome) -> None:
        """Stores the log in the home's own journal. One that holds another log is checked against the relay's."""
        journal = self._home.journal()
        try:
            kept, entries = journal.log_entries(), read.log_entries()
            if entries[: len(kept)] != kept:
                await self._verified(journal, welcome)
                return
            with journal.transaction() as transaction:
                for slot, data, void in entries[len(kept) :]:
                    transaction.keep_log_entry(slot, data, void=void)
        finally:
            journal.close()

    def _check(self, log: DeviceLog, welcome: Welcome) -> None:
        identity = self._home.identity
        info = log.member(identity.id)
        if (
            info is None
            or info.revoked is not None
            or (info.signing, info.exchange) != (identity.signing.public, identity.exchange.public.to_bytes())
            or (info.slot, info.entry.hash) != (welcome.slot, welcome.entry_hash)  # §21.4-5
        ):
            raise NotInTheLog("the relay's device log does not have this machine as it was welcomed")
        if not log.knows_head(welcome.head) or log.root_number < welcome.root_number:  # §21.4-5
            raise NotInTheLog("the relay shows an older or another device log than the inviting machine has")
        try:
            KeyRing.of_device(identity, log).current()
        except (CryptoError, KeysWithheld) as error:
            raise NotInTheLog(f"the device log brings this machine no keys that open: {error}") from error

    async def _refuse(self) -> bytes:
        """Has the inviting machine take this one out again. Returns this device's id if the vault may still list it."""
        said = await self._say(accepted=False)
        heard = said and await self._heard()
        if self._welcome is None or not (self._home.fresh or self._home.anew):
            return b""  # it was not added as far as is known here, or is the device that it was before
        if said and await self._is_out(guess=heard):
            self._home.abandon()
            return b""
        return self._home.identity.id

    async def _heard(self) -> bool:
        """Whether the refusal arrived: the inviting machine closes the invite as its last step."""
        try:
            async with asyncio.timeout(HEARD_SECONDS_MAX):
                while True:
                    if (await self._post.info()).state is not InviteState.OPEN:
                        return True
                    await asyncio.sleep(_HEARD_PAUSE_SECONDS)
        except PairingFailed:
            return True
        except (RelayError, TimeoutError):
            return False

    async def _is_out(self, *, guess: bool) -> bool:
        """Whether this machine is not in the device log any more; ``guess`` where that cannot be read."""
        vault = self._code.vault
        journal = SqliteJournal.open(":memory:")
        log = load_log(journal, vault)
        try:
            async with (
                asyncio.timeout(_LAST_WORD_SECONDS_MAX),
                open_store(self._home.settings, vault=vault, token=self._token) as store,
            ):
                await Runner(store, None).run(read_log(log, journal, StoreKeys(vault)))
        except TokenRefused:
            return True
        except (RelayError, CrystalError, TimeoutError):
            return guess
        finally:
            journal.close()
        return not log.is_active(self._home.identity.id)

    async def _say(self, *, accepted: bool) -> bool:
        """Tells the inviting machine the outcome, on which nothing depends there. Returns whether that was written."""
        if not self._revealed:
            return False
        with suppress(RelayError, PairingFailed, TimeoutError):
            async with asyncio.timeout(_LAST_WORD_SECONDS_MAX):
                return await self._post.put(MailboxSlot.DONE, self._side.done(accepted=accepted))
        return False
