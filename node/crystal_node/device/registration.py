"""Letting this device in at the relay, by the enrolment token or by the root's power: the vault, and its token.

Repeating any of it is no error; a process that dies in between does it again.
"""

from crystal_crypto.hierarchy import Root
from crystal_crypto.identity import DeviceIdentity
from crystal_node.base.errors import BadConfig, WrongCode
from crystal_node.device.keys.device_keys import DeviceKeys
from crystal_node.device.runner import store_failure
from crystal_relay.client.http import HttpStore
from crystal_relay.errors import (
    AlreadyExists,
    Forbidden,
    NotFound,
    RecoveryReplaced,
    RelayError,
    Unauthorized,
)
from crystal_relay.tokens import Preset, new_token, recovery_hash, token_hash


class UnknownVault(WrongCode):
    """The relay lets nobody in by this root: another relay, an emptied one, or a root that was replaced."""

    hint = (
        "Check that code and relay belong together, and that the code is whole: some go on behind an @. "
        "`crystal status` on the Core shows its relay."
    )

    def __init__(
        self, message: str = "the relay knows no vault for this code", *, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)


def token_of(keys: DeviceKeys, identity: DeviceIdentity) -> str:
    """This device's token at the relay, kept before the relay hears of it."""
    token = keys.token(identity.id)
    if token is None:
        token = new_token(identity.id)
        keys.keep_token(token)
    return token


async def create_vault(
    store: HttpStore, keys: DeviceKeys, root: Root, identity: DeviceIdentity, token: str, enrolment_token: str
) -> str:
    """Makes the vault at the relay, or lets this device into the one that is there. Returns the token that counts.

    Raises:
        BadConfig: the enrolment token is not the relay's.
        UnknownVault: the vault is there, and this root lets nobody in.
        StoreFailure: what else the relay says.
    """
    try:
        await store.create_vault(
            enroll_token=enrolment_token,
            recovery_hash=recovery_hash(root.relay_secret),
            device=identity.id,
            token_hash=token_hash(token),
        )
    except AlreadyExists:
        # The vault is there with another first token: this device registers itself, as the root lets it.
        return await register(store, keys, root, identity, token)
    except Unauthorized as error:
        raise BadConfig(
            "the relay does not accept that enrolment token",
            hint="Copy it again from the relay's first start or its settings.",
        ) from error
    except RelayError as error:
        raise store_failure(error) from error
    return token


async def register(
    store: HttpStore, keys: DeviceKeys, root: Root, identity: DeviceIdentity, token: str
) -> str:
    """Lets this device's token in by the root's power; takes a new token if the old one was shut out for good.

    Returns the token that counts.

    Raises:
        UnknownVault: the relay lets nobody in by this root.
        StoreFailure: what else the relay says.
    """
    try:
        try:
            await _register(store, root, identity, token)
        except (Forbidden, AlreadyExists):
            token = new_token(identity.id)
            keys.keep_token(token)
            await _register(store, root, identity, token)
    except RecoveryReplaced as error:
        raise UnknownVault(
            "the vault's root was replaced since this code or kit was made",
            hint="Use the newest recovery kit.",
        ) from error
    except (NotFound, Unauthorized) as error:
        raise UnknownVault from error
    except RelayError as error:
        raise store_failure(error) from error
    return token


async def _register(store: HttpStore, root: Root, identity: DeviceIdentity, token: str) -> None:
    await store.register_token(
        device=identity.id, token_hash=token_hash(token), preset=Preset.LEAD, recovery=root.relay_secret
    )
