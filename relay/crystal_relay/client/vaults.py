"""The client's calls that are not the port's: vaults, tokens, the recovery secret, invites.

A mixin of `HttpStore`, which sends them. Calls that take `recovery` (the 32-byte relay secret that the root gives) need no
token of one's own with it; without it the store's token has to have the scope `tokens`. Repeating any of them is no error.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from crystal_relay.errors import BadReply, BadRequest
from crystal_relay.invites import CloseReason, InviteInfo, check_mailbox
from crystal_relay.limits import RECOVERIES_MAX
from crystal_relay.tokens import DEVICE, SECRET_BYTES, Preset
from crystal_relay.wire import (
    SERVICE,
    V1_SERVICE,
    Devices,
    DevicesReply,
    HealthReply,
    InviteCreation,
    InviteReply,
    RecoveryReplacement,
    RecoveryReply,
    TokenRegistration,
    TokenReply,
    VaultCreation,
    VaultReply,
)

Reply = TypeVar("Reply", bound=msgspec.Struct)


class VaultCalls(ABC):
    """Of one vault at one relay. All raise StoreUnavailable, Unauthorized, Forbidden."""

    _vault: str

    @abstractmethod
    async def _json(
        self,
        method: str,
        path: str,
        reply: type[Reply],
        *,
        query: dict[str, str] | None = None,
        body: msgspec.Struct | None = None,
        headers: dict[str, str] | None = None,
        patience: float | None = None,
    ) -> Reply:
        """Ask and parse the answer. `patience`: seconds until its first byte, the idle time if None."""

    @abstractmethod
    def _token_header(self) -> dict[str, str]:
        """This store's own credentials."""

    # --- vaults and tokens ---

    async def create_vault(
        self, *, enroll_token: str, recovery_hash: str, device: bytes | str, token_hash: str
    ) -> None:
        """Create this store's vault with its first device (preset `lead`).

        Raises AlreadyExists if the vault is there with other hashes, Unauthorized for a wrong enrolment token.
        """
        creation = VaultCreation(self._vault, recovery_hash, _device_text(device), token_hash)
        headers = {"Authorization": f"Bearer {header_safe(enroll_token)}"}
        await self._json("POST", "/v2/vaults", VaultReply, body=creation, headers=headers)

    async def register_token(
        self, *, device: bytes | str, token_hash: str, preset: Preset | str, recovery: bytes | None = None
    ) -> None:
        """Let a token in.

        Raises AlreadyExists if this hash is there with another preset, Forbidden if it was revoked: make a new token.
        """
        registration = TokenRegistration(_device_text(device), token_hash, Preset(preset))
        await self._json(
            "POST", self._path("tokens"), TokenReply, body=registration, headers=self._authority(recovery)
        )

    async def revoke_token(
        self, *, device: bytes | str, token_hash: str | None = None, recovery: bytes | None = None
    ) -> None:
        """Shut out all tokens of a device, or one of them, for good."""
        query = {} if token_hash is None else {"token_hash": token_hash}
        path = self._path(f"tokens/{_device_text(device)}")
        await self._json("DELETE", path, TokenReply, query=query, headers=self._authority(recovery))

    async def retain_tokens(
        self,
        devices: Iterable[bytes | str],
        *,
        tokens: Mapping[bytes, str] | None = None,
        leads: Iterable[bytes | str] | None = None,
        recovery: bytes | None = None,
    ) -> int:
        """Shut out, for good, the tokens of all devices but these. Returns how many that were.

        `tokens`: the hash of the one token that a device uses; any other under its id is shut out as well. One call is enough
        after a device was revoked: what it, or a thief of its token, let in goes with it, under whatever id.
        `leads`: of no other device has a token the preset `lead` afterwards, however it came by it; None: that stays.
        """
        only = {_device_text(device): name for device, name in (tokens or {}).items()}
        leading = None if leads is None else sorted({_device_text(device) for device in leads})
        named = Devices(sorted({_device_text(device) for device in devices}), only, leading)
        headers = self._authority(recovery)
        reply = await self._json("PUT", self._path("members"), DevicesReply, body=named, headers=headers)
        return reply.shut_out

    async def raise_token(self, device: bytes | str, *, recovery: bytes | None = None) -> None:
        """The device's tokens have the preset `lead` from now on, those to come too. Raises NotFound if none is let in."""
        path = self._path(f"leads/{_device_text(device)}")
        await self._json("PUT", path, TokenReply, headers=self._authority(recovery))

    async def replace_recovery(
        self, number: int, recovery_hash: str, *, recovery: bytes | None = None
    ) -> None:
        """Have the recovery secret of this hash count, and none that came before it.

        `number` is one more than `recovery_number` says; `recovery` the secret that counted until now. Raises WrongNumber if
        another one was put in its place first.
        """
        if not 1 <= number <= RECOVERIES_MAX:
            raise BadRequest(f"replacements are numbered from 1 to {RECOVERIES_MAX}")
        replacement = RecoveryReplacement(recovery_hash)
        path = self._path(f"recovery/{number}")
        await self._json("PUT", path, RecoveryReply, body=replacement, headers=self._authority(recovery))

    async def recovery_number(self) -> int:
        """How often the recovery secret was replaced at this relay."""
        return (await self._json("GET", self._path("recovery"), RecoveryReply)).number

    # --- invites ---

    async def create_invite(self, mailbox: bytes | str, access_hash: str) -> int:
        """Open a mailbox (16 bytes, or 32 hex digits) to who knows the access secret. Returns in how many seconds it expires.

        Raises TooManyInvites, AlreadyExists (it was opened with another secret), InviteOver (it was opened, and is over).
        """
        creation = InviteCreation(check_mailbox(mailbox), access_hash)
        return (await self._json("POST", self._path("invites"), InviteReply, body=creation)).expires_in

    async def close_invite(self, mailbox: bytes | str, reason: CloseReason | str) -> InviteInfo:
        """Nobody uses it any more. The first reason stays. Raises NotFound."""
        path = self._path(f"invites/{check_mailbox(mailbox)}")
        query = {"reason": CloseReason(reason).value}
        return invite_info(await self._json("DELETE", path, InviteReply, query=query))

    async def invite_state(self, mailbox: bytes | str) -> InviteInfo:
        """What has become of it; told for a day after its ten minutes. Raises NotFound."""
        path = self._path(f"invites/{check_mailbox(mailbox)}")
        return invite_info(await self._json("GET", path, InviteReply))

    # --- anybody ---

    async def health(self) -> HealthReply:
        """Ask the relay whether it is one and serves. Needs no token. Raises StoreUnavailable, BadReply."""
        reply = await self._json("GET", "/health", HealthReply, headers={})
        if reply.service not in (SERVICE, V1_SERVICE):
            raise BadReply("what answers there is not a Crystal relay")
        return reply

    # --- inside ---

    def _path(self, rest: str) -> str:
        return f"/v2/vaults/{self._vault}/{rest}"

    def _authority(self, recovery: bytes | None) -> dict[str, str]:
        if recovery is None:
            return self._token_header()
        if len(recovery) != SECRET_BYTES:
            raise BadRequest(f"the recovery secret is {SECRET_BYTES} bytes")
        return {"Authorization": f"Crystal-Recovery {recovery.hex()}"}


def invite_info(reply: InviteReply) -> InviteInfo:
    """What a relay said of an invite. Raises BadReply for what cannot be."""
    if reply.expires_in < 0 or reply.expired_ago < 0:
        raise BadReply("the relay says an impossible time of an invite")
    return InviteInfo(reply.state, reply.expires_in, reply.expired_ago)


def header_safe(secret: str) -> str:
    """Refuse what cannot stand in a header, without showing it."""
    if not secret or not secret.isascii() or not secret.isprintable() or " " in secret:
        raise BadRequest("a token holds characters that no token has, or is empty")
    return secret


def _device_text(device: bytes | str) -> str:
    text = device if isinstance(device, str) else device.hex()
    if DEVICE.match(text) is None:
        raise BadRequest("a device's id is 32 lower-case hex digits")
    return text
