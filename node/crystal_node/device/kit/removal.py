"""Removing the vault's root from a device whose person has it on a kit that was typed back."""

from crystal_node.base.errors import HomeBusy
from crystal_node.device.device import Device
from crystal_node.device.keys.roots import NEXT


def remove_root(device: Device) -> None:
    """Removes the root from the key store.

    Raises:
        HomeBusy: a replacement of the root has begun here and is not finished: both are needed until then.
        KeyStoreError: the key store does not let go of it.
    """
    if device.keys.store.load(NEXT) is not None:
        raise HomeBusy(
            "another root is taking this one's place: both stay here until that is finished",
            hint="Run `crystal sync`, then this again.",
        )
    device.keys.drop_replaced()
    device.keys.drop_root()
    device.member.root = None
