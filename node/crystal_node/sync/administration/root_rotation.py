"""Root rotation: a new root replaces the one in force, with the revocation of a device that may have it, or alone, because a
recovery kit or an offline code was seen by somebody.

::

    a new root is drawn, stored here and read back --"root" in the log, signed by the old one--> the old one has no power
        --recovery secret at the relay, authorised by the old one--> the new one takes the old one's place here

Run again after a crash, it goes on where it stopped (``device.keys.roots``); the next round of sync completes it as well. Kits
and codes of the old root are worthless afterwards. Until a new kit is made, the new root is on this machine only.
"""

from crystal_crypto.errors import CrystalError
from crystal_crypto.hierarchy import Root
from crystal_mirror.devicelog.sync import read_log
from crystal_mirror.errors import NotAllowed
from crystal_mirror.membership.administration import rotate_root
from crystal_mirror.membership.authority import in_force
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import HomeBusy
from crystal_node.base.settings import read_config
from crystal_node.device.device import Device
from crystal_node.device.keys.roots import prepare_next, settle_next
from crystal_node.device.runner import store_failure
from crystal_node.sync.members.duties import raise_self
from crystal_node.sync.syncer import Syncer, syncing
from crystal_relay.errors import RelayError


async def replace_root(device: Device, *, kit: Root | None = None) -> CrystalError | None:
    """Replaces the root without a revocation. ``kit``: the root in force, where this device does not hold it.

    Returns why the relay could not be told, None if it was; the next round of sync retries.

    Raises:
        NotAllowed: the root in force is neither here nor in ``kit``.
        StoreFailure, HomeBusy, KeyStoreError: run it again; nothing is lost.
    """
    member = device.member
    async with syncing(device, "crystal recovery replace", None) as syncer:
        await syncer.run(read_log(member.log, member.journal, member.keys, member.notices))
        member.check_active()
        device.look_for_root()
        if device.spare_root is not None and device.holds_root:
            # An earlier run came as far as the log; its new root is in force.
            return await tell_relay(syncer)
        root = chosen_root(device, kit)
        if root is None:
            raise NotAllowed(
                "the vault's root is not on this machine",
                hint="Give the recovery kit: --kit FILE, or --kit -.",
            )
        await let_in(device, root)
        await put_new_root(device, syncer, root)
        return await tell_relay(syncer)


def chosen_root(device: Device, kit: Root | None) -> Root | None:
    """The root in force: this device's own, else the kit's.

    Raises:
        NotAllowed: the kit is of another root, and this device has none.
    """
    if device.holds_root:
        return device.root
    if kit is not None and not in_force(device.member.log, kit):
        raise NotAllowed(
            "the root of that kit was replaced, and has no power any more",
            hint="Give the newest recovery kit.",
        )
    return kit


async def let_in(device: Device, root: Root) -> None:
    """Has the relay let this device write the log, by the root. Raises StoreFailure."""
    if device.holds_root:
        await raise_self(device)  # a thief of a token may have changed who leads at the relay
    if device.member.is_core or device.holds_root:
        return
    async with device.at_relay() as relay:
        try:
            await relay.raise_token(device.member.device_id, recovery=root.relay_secret)
        except RelayError as error:
            raise store_failure(error) from error


async def put_new_root(device: Device, syncer: Syncer, old: Root) -> Root:
    """Stores a new root here, then writes it to the log. Returns it."""
    member, keys = device.member, device.keys
    async with syncer.alone():
        _check_place(device)
        if keys.root() != old:
            # Kept until the relay knows the new one: after a crash in between, only the old one lets this device in.
            keys.keep_root(old)
        new = prepare_next(keys, member.log)
    try:
        await syncer.run(rotate_root(member, old, new, now_ms=now_ms()))
    except NotAllowed:
        settle_next(keys, member.log)  # another device was first: this root never takes effect
        raise
    device.look_for_root()
    return new


def _check_place(device: Device) -> None:
    """Raises HomeBusy if the keys were moved since this process opened them: the new root must not stay where they were."""
    place = read_config(device.settings.home.config_file).key_store
    if place != device.keys.kind:
        raise HomeBusy(
            f"this device's keys were moved meanwhile (to: {place}); nothing was changed",
            hint="Run the command again.",
        )


async def tell_relay(syncer: Syncer) -> CrystalError | None:
    """Returns why it could not be told; the next round of sync tries again."""
    try:
        await syncer.do_duties()
    except CrystalError as error:
        return error
    return None
