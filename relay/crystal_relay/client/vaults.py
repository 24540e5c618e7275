"""Calls to a relay beside the port: vaults, tokens, the recovery secret, invites.

A mixin of `HttpStore`, which sends them. Calls that take `recovery` (the 32-byte secret derived from the root) need no
token with it; without it the store's token needs the scope `tokens`. All calls are idempotent.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

import msgspec

from crystal_relay.errors import BadReply, BadRequest, BodyTooLarge
from crystal_relay.invites import CloseReason, InviteInfo, check_mailbox, check_place
from crystal_relay.limits import FOUNDING_ROOTS_MAX, RECOVERIES_MAX
from crystal_relay.tokens import DEVICE, SECRET_BYTES, Preset
from crystal_relay.wire import (
    SERVICE,
    V1_SERVICE,
    DeletionReply,
    DeletionRequest,
    Devices,
    DevicesReply,
    HealthReply,
    InviteCreation,
    InviteReply,
    RecoveryReplacement,
    RecoveryReply,
    Reply,
    RootProof,
    ShortInviteCreation,
    TokenRegistration,
    TokenReply,
    VaultCreation,
    VaultReply,
)


class VaultCalls(ABC):
    """Calls of one vault at one relay. All raise StoreUnavailable, Unauthorized, Forbidden."""

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

    @property
    @abstractmethod
    def host(self) -> str:
        """The host in the relay's address, as a proof of the root names it."""

    @abstractmethod
    def _token_header(self) -> dict[str, str]:
        """This store's own credentials."""

    # --- vaults and tokens ---

    async def create_vault(
        self,
        *,
        enroll_token: str,
        recovery_hash: str,
        device: bytes | str,
        token_hash: str,
        proof: RootProof | None = None,
    ) -> None:
        """Create this store's vault with its first device (preset `lead`).

        `proof`: of the root, for `host`. A relay of before there were proofs takes no request with one, and gets it without.

        Raises AlreadyExists if the vault exists with other hashes, Unauthorized for a wrong enrolment token, Forbidden
        without a proof that the relay accepts.
        """
        if proof is not None and len(proof.roots) > FOUNDING_ROOTS_MAX:
            raise BadRequest(f"a relay takes a proof of at most {FOUNDING_ROOTS_MAX} replaced roots")
        creation = VaultCreation(self._vault, recovery_hash, _device_text(device), token_hash, proof)
        headers = {"Authorization": f"Bearer {header_safe(enroll_token)}"}
        try:
            await self._json("POST", "/v2/vaults", VaultReply, body=creation, headers=headers)
        except (BadRequest, BodyTooLarge):  # §R4.1-4, §4.3-4
            if proof is None:
                raise
            creation = msgspec.structs.replace(creation, proof=None)
            await self._json("POST", "/v2/vaults", VaultReply, body=creation, headers=headers)

    async def register_token(
        self, *, device: bytes | str, token_hash: str, preset: Preset | str, recovery: bytes | None = None
    ) -> None:
        """Register a token.

        Raises AlreadyExists if the hash is registered with another preset, Forbidden if it was revoked: make a new token.
        """
        registration = TokenRegistration(_device_text(device), token_hash, Preset(preset))
        await self._json(
            "POST", self._path("tokens"), TokenReply, body=registration, headers=self._authority(recovery)
        )

    async def revoke_token(
        self, *, device: bytes | str, token_hash: str | None = None, recovery: bytes | None = None
    ) -> None:
        """Revoke all tokens of a device, or one of them, for good."""
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
        """Revoke, for good, the tokens of all devices except these. Returns how many were revoked.

        `tokens`: the hash of the one token that a device uses; others of its id are revoked too. One call is enough after a
        device was revoked: tokens that it, or a thief of its token, registered under any id are revoked with it.
        `leads`: no other device has the preset `lead` afterwards; None for no change.
        """
        only = {_device_text(device): name for device, name in (tokens or {}).items()}
        leading = None if leads is None else sorted({_device_text(device) for device in leads})
        named = Devices(sorted({_device_text(device) for device in devices}), only, leading)
        headers = self._authority(recovery)
        reply = await self._json("PUT", self._path("members"), DevicesReply, body=named, headers=headers)
        return reply.shut_out

    async def raise_token(self, device: bytes | str, *, recovery: bytes | None = None) -> None:
        """Give the device's present and future tokens the preset `lead`. Raises NotFound if it has none."""
        path = self._path(f"leads/{_device_text(device)}")
        await self._json("PUT", path, TokenReply, headers=self._authority(recovery))

    async def replace_recovery(
        self, number: int, recovery_hash: str, *, recovery: bytes | None = None
    ) -> None:
        """Replace the recovery secret by the one of this hash.

        `number` is one more than `recovery_number`; `recovery` is the current secret. Raises WrongNumber if another
        replacement was first.
        """
        if not 1 <= number <= RECOVERIES_MAX:
            raise BadRequest(f"replacements are numbered from 1 to {RECOVERIES_MAX}")
        replacement = RecoveryReplacement(recovery_hash)
        path = self._path(f"recovery/{number}")
        await self._json("PUT", path, RecoveryReply, body=replacement, headers=self._authority(recovery))

    async def recovery_number(self) -> int:
        """How often the recovery secret was replaced at this relay."""
        return (await self._json("GET", self._path("recovery"), RecoveryReply)).number

    # --- the vault's deletion ---

    async def deletion(self) -> DeletionReply:
        """Whether the vault is to be deleted, when, and what the relay accepts. Raises NoSuchRoute (an older relay)."""
        return await self._json("GET", self._path("deletion"), DeletionReply)

    async def ask_deletion(
        self, number: int, due: int, proof: RootProof, *, recovery: bytes
    ) -> DeletionReply:
        """Have the vault deleted at `due` (Unix seconds). `number` is one more than the last one's; `proof` is for both.

        Raises WrongNumber, Forbidden, BadRequest (a waiting time that the relay does not accept).
        """
        request = DeletionRequest(due, proof)
        path, headers = self._path(f"deletion/{number}"), self._authority(recovery)
        return await self._json("PUT", path, DeletionReply, body=request, headers=headers)

    async def call_off_deletion(self, number: int, *, recovery: bytes | None = None) -> DeletionReply:
        """Call the deletion of this number off. Raises NotFound, BadRequest (it has begun)."""
        path, headers = self._path(f"deletion/{number}"), self._authority(recovery)
        return await self._json("DELETE", path, DeletionReply, headers=headers)

    # --- invites ---

    async def create_invite(self, mailbox: bytes | str, access_hash: str) -> int:
        """Open a mailbox (16 bytes, or 32 hex digits) to the holder of the access secret. Returns seconds until it expires.

        Raises TooManyInvites, AlreadyExists (open with another secret), InviteOver (opened before, and over).
        """
        creation = InviteCreation(check_mailbox(mailbox), access_hash)
        return (await self._json("POST", self._path("invites"), InviteReply, body=creation)).expires_in

    async def keep_short_invite(self, mailbox: bytes | str, place: bytes | str, sealed: bytes) -> None:
        """Keep an open invite's sealed bytes at a place (16 bytes, or 32 hex digits), for somebody who is given a short invite.

        Raises NoSuchRoute (the relay is older), AlreadyExists, InviteOver, NotFound.
        """
        creation = ShortInviteCreation(check_place(place), sealed)
        path = self._path(f"invites/{check_mailbox(mailbox)}/short")
        await self._json("PUT", path, InviteReply, body=creation)

    async def close_invite(self, mailbox: bytes | str, reason: CloseReason | str) -> InviteInfo:
        """Close an invite. The first reason stays. Raises NotFound."""
        path = self._path(f"invites/{check_mailbox(mailbox)}")
        query = {"reason": CloseReason(reason).value}
        return invite_info(await self._json("DELETE", path, InviteReply, query=query))

    async def invite_state(self, mailbox: bytes | str) -> InviteInfo:
        """The state of an invite, kept for a day after its ten minutes. Raises NotFound."""
        path = self._path(f"invites/{check_mailbox(mailbox)}")
        return invite_info(await self._json("GET", path, InviteReply))

    # --- anybody ---

    async def health(self) -> HealthReply:
        """Check that the address is a relay's and that it serves. Needs no token. Raises StoreUnavailable, BadReply."""
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
    """The state of an invite in a reply. Raises BadReply for impossible values."""
    if reply.expires_in < 0 or reply.expired_ago < 0:
        raise BadReply("the relay says an impossible time of an invite")
    return InviteInfo(reply.state, reply.expires_in, reply.expired_ago)


def header_safe(secret: str) -> str:
    """Refuse characters that a header cannot contain, without showing the secret."""
    if not secret or not secret.isascii() or not secret.isprintable() or " " in secret:
        raise BadRequest("a token holds characters that no token has, or is empty")
    return secret


def _device_text(device: bytes | str) -> str:
    text = device if isinstance(device, str) else device.hex()
    if DEVICE.match(text) is None:
        raise BadRequest("a device's id is 32 lower-case hex digits")
    return text
