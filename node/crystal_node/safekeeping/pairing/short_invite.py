"""Short invites at the relay: the inviting device puts its sealed invite there, the newcomer fetches it by what was typed.

With a relay that keeps none there is no short invite, and everything else works. An answer to the newcomer is believed only if
it opens with the key that was typed, whatever server gave it.
"""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from crystal_crypto.errors import BadCode, BadMessage
from crystal_crypto.invite_code import InviteCode
from crystal_crypto.short_invite import ShortInvite, encode_short_invite
from crystal_node.device.relay import sealed_invite
from crystal_node.device.runner import store_failure
from crystal_node.safekeeping.pairing.errors import (
    PairingFailed,
    RelayOfTheCode,
    StrangeInviter,
    UnknownInvite,
    Withdrawn,
)
from crystal_node.safekeeping.pairing.mailbox import InviterMailbox, Post, over
from crystal_relay.errors import (
    BadReply,
    Busy,
    InviteClosed,
    InviteExpired,
    InviteOver,
    InviteUsed,
    NoSuchRoute,
    NotFound,
    RelayError,
    StoreUnavailable,
)
from crystal_relay.invites import InviteInfo, InviteState

if TYPE_CHECKING:
    from crystal_node.base.settings import Settings

KEEP_SECONDS_MAX = 20.0
"""Time for the relay to keep a short invite. After that the person is shown the whole text alone."""
_PAUSES_SECONDS = (0.5, 1.0)
"""Between tries to reach the relay, before the person is told that it is away."""


async def keep(code: InviteCode, mailbox: InviterMailbox, post: Post) -> str:
    """Has the relay keep the sealed invite. Returns the short invite; "" if the relay keeps none.

    Raises:
        PairingFailed: the invite is over.
    """
    with suppress(RelayError, TimeoutError, BadCode):  # §21.5-5
        short = ShortInvite.generate(code.url)
        keys = await asyncio.to_thread(short.derived)
        sealed = keys.seal(code)
        async with asyncio.timeout(KEEP_SECONDS_MAX):
            if await post.patiently(lambda: mailbox.keep_short(keys.place, sealed)):
                return encode_short_invite(short)
    return ""


async def fetch(settings: "Settings", short: ShortInvite) -> InviteCode:
    """The whole invite, which the relay keeps. Does not use it up.

    Raises:
        PairingFailed: see its subclasses.
        StoreFailure: the relay refuses.
        BadConfig, BadRequest: its address cannot be used.
    """
    settings = settings.at_relay(short.url)
    keys = await asyncio.to_thread(short.derived)
    try:
        return keys.open(await _asked(settings, keys.place))
    except BadMessage as error:
        raise StrangeInviter(f"the invite was changed at the relay: {error}") from error
    except InviteOver as error:
        raise _over(error) from error
    except NotFound as error:
        raise UnknownInvite(
            f"there is no such invite at {short.url}",
            hint="Compare the address with what the other machine shows. An invite is good for ten minutes: make a new "
            "one there with `crystal pair`.",
        ) from error
    except NoSuchRoute as error:
        raise UnknownInvite(
            f"the relay at {short.url} is too old for short invites, or is not a relay of Crystal",
            hint="Compare the address with what the other machine shows.",
        ) from error
    except (StoreUnavailable, Busy) as error:
        raise RelayOfTheCode(
            f"the relay of this code cannot be reached: {settings.relay_url} ({error})"
        ) from error
    except RelayError as error:
        raise store_failure(error) from error


async def _asked(settings: "Settings", place: bytes) -> bytes:
    for pause in _PAUSES_SECONDS:
        try:
            return await sealed_invite(settings, place)
        except (BadReply, Busy):
            raise
        except StoreUnavailable:
            await asyncio.sleep(pause)
    return await sealed_invite(settings, place)


def _over(error: InviteOver) -> PairingFailed:
    match error:
        case InviteExpired():
            return over(InviteInfo(InviteState.EXPIRED, 0, error.seconds_ago))
        case InviteUsed():
            return over(InviteInfo(InviteState.USED, 0, error.seconds_ago))
        case InviteClosed():
            return Withdrawn(str(error))
        case _:
            return Withdrawn("the invite is over")
