"""Registration at the relay: the vault, by the enrolment token, and this device's token, by the root.

Everything may be repeated, so that a process that died simply runs again.
"""

from base64 import b64encode

from crystal_crypto.hierarchy import Root
from crystal_crypto.identity import DeviceIdentity
from crystal_mirror.devicelog.log import DeviceLog
from crystal_node.base.errors import BadConfig, WrongCode
from crystal_node.base.settings import LOCAL_RELAY, Settings
from crystal_node.device.keys.device_keys import DeviceKeys
from crystal_node.device.runner import RelayRefused, store_failure
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
from crystal_relay.wire import RootProof


class WrongEnrolmentToken(BadConfig):
    """The relay does not accept the enrolment token. It took nothing."""

    hint = "Copy it again, or make another one on the relay: `crystal-relay tokens create`."


class UnknownVault(WrongCode):
    """The relay does not accept this root: it is another relay, an emptied one, or the root was replaced."""

    hint = (
        "Check that code and relay belong together, and that the root was not replaced since: "
        "`crystal status` on the Core shows its relay."
    )

    def __init__(
        self, message: str = "the relay knows no vault for this code", *, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)


def token_of(keys: DeviceKeys, identity: DeviceIdentity) -> str:
    """This device's token at the relay, stored before the relay hears of it."""
    token = keys.token(identity.id)
    if token is None:
        token = new_token(identity.id)
        keys.keep_token(token)
    return token


def token_for(settings: Settings, keys: DeviceKeys, identity: DeviceIdentity) -> str:
    """This device's token for the relay of ``settings``: another one if the vault moves there from another relay.

    The relay before has seen the kept token, and so has an intruder there. Another one is kept by ``keep_new`` once the new
    relay has taken it: one that refuses does not cost the access to the relay before. Nobody but this device has seen the
    token of the relay in the home.
    """
    before = settings.config.relay_url
    if settings.vault is not None and before not in ("", LOCAL_RELAY, settings.relay_url):
        return new_token(identity.id)
    return token_of(keys, identity)


def keep_new(keys: DeviceKeys, identity: DeviceIdentity, token: str) -> None:
    """Stores the token that the relay has taken, if it is another than the stored one."""
    if token != keys.token(identity.id):
        keys.keep_token(token)


async def create_vault(
    store: HttpStore,
    keys: DeviceKeys,
    root: Root,
    identity: DeviceIdentity,
    token: str,
    enrolment_token: str,
    log: DeviceLog,
) -> str:
    """Makes the vault at the relay, or registers this device with an existing one. Returns the valid token.

    ``log``: the vault's device log, empty if there is none yet. It shows the relay that ``root`` is the vault's.

    Raises:
        WrongEnrolmentToken: the enrolment token is not the relay's.
        UnknownVault: the vault exists, and its root is another.
        StoreFailure: any other refusal or failure.
    """
    try:
        await store.create_vault(
            enroll_token=enrolment_token,
            recovery_hash=recovery_hash(root.relay_secret),
            device=identity.id,
            token_hash=token_hash(token),
            proof=_proof(store.host, root, identity, token, log),
        )
    except AlreadyExists:
        # The vault exists with another first token: the root allows this device to register.
        try:
            return await register(store, keys, root, identity, token)
        except UnknownVault as error:
            if isinstance(error.__cause__, RecoveryReplaced):
                raise
            raise UnknownVault(
                "that relay has a vault with this id and another root",
                hint="Its root was replaced elsewhere: then use the newest kit. Or somebody else registered the id there: "
                "use another relay, or have its operator delete it with `crystal-relay vaults delete`.",
            ) from error.__cause__
    except Unauthorized as error:
        raise WrongEnrolmentToken("the relay does not accept that enrolment token") from error
    except Forbidden as error:
        raise RelayRefused(str(error), hint=error.hint) from error
    except RelayError as error:
        raise store_failure(error) from error
    return token


def root_proof(log: DeviceLog, root: Root, signature: bytes) -> RootProof:
    """What a relay is shown of the vault's roots, with a signature by the one in force."""
    first = log.roots[0][0].admin if log.roots else root.admin.public.to_bytes()
    return RootProof(  # §4.3-1
        admin=first.hex(),
        roots=[b64encode(entry.shown).decode("ascii") for _, entry in log.roots[1:]],
        signature=signature.hex(),
    )


def _proof(host: str, root: Root, identity: DeviceIdentity, token: str, log: DeviceLog) -> RootProof:
    signature = root.sign_founding(
        vault=log.vault,
        device=identity.id,
        recovery_hash=bytes.fromhex(recovery_hash(root.relay_secret)),
        token_hash=bytes.fromhex(token_hash(token)),
        host=host,
    )
    return root_proof(log, root, signature)


async def register(
    store: HttpStore, keys: DeviceKeys, root: Root, identity: DeviceIdentity, token: str
) -> str:
    """Registers this device's token with the root's secret, or a new one if the old one was revoked.

    Returns the valid token.

    Raises:
        UnknownVault: the relay does not accept this root.
        StoreFailure: any other refusal or failure.
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
