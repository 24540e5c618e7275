"""The vault's root in this device's key store, and its replacement.

::

    root: old                  --a new one is drawn, stored and read back-->  root: old, root.next: new
    root: old, root.next: new  --"root" in the device log--> the new one is in force, the old one still lets us in at the relay
                               --the relay has the new recovery secret-->     root: new, root.next: new --> root: new
                               (of the old one its recovery secret stays, as recovery.before: see duties.py)

The device log says which of the two is in force, not their names: a process that died between two steps left both, and opening
the device picks the right one. A root that is not in force has no power; it is kept, ignored, and reported.
"""

from dataclasses import dataclass, field

from crystal_crypto.hierarchy import Root
from crystal_mirror.devicelog.log import DeviceLog
from crystal_mirror.devicelog.records import RootRecord
from crystal_mirror.membership.authority import in_force
from crystal_node.base.errors import LocalStorage
from crystal_node.device.keys.device_keys import DeviceKeys

NEXT = "root.next"


@dataclass(frozen=True, slots=True)
class KeptRoots:
    """``root``: the one in force, if it is here, else the one stored as root. ``spare``: the other one."""

    root: Root | None = field(repr=False)
    spare: Root | None = field(repr=False)


def kept_roots(keys: DeviceKeys, log: DeviceLog) -> KeptRoots:
    """The roots in the key store. Reads the second one only if the first is not in force. Raises KeyStoreError."""
    root = keys.root()
    if root is not None and in_force(log, root):
        return KeptRoots(root, None)
    coming = _next(keys)
    if coming is not None and in_force(log, coming):
        return KeptRoots(coming, root)
    return KeptRoots(root, None)


def prepare_next(keys: DeviceKeys, log: DeviceLog) -> Root:
    """A root that was never in force, stored durably: that of an interrupted attempt, or a new one.

    Raises:
        LocalStorage: the key store does not return what was stored.
        KeyStoreError: it stores nothing.
    """
    coming = _next(keys)
    if coming is None or _was_in_force(log, coming):
        coming = Root.generate()
        keys.store.store(NEXT, coming.to_bytes())
    if keys.store.load(NEXT) != coming.to_bytes():
        raise LocalStorage(
            f"the key store ({keys.kind}) does not give back the new root that it took; nothing was changed",
            hint="Move the keys to another place: `crystal keys move`.",
        )
    return coming


def settle_next(keys: DeviceKeys, log: DeviceLog) -> bool:
    """Completes a replacement that is in the device log: the new root becomes the root. Idempotent.

    Returns False if it is not in the log yet; the new root is kept for the next attempt while the old one can still sign it.
    """
    coming = _next(keys)
    if coming is None:
        return True
    if in_force(log, coming):
        before = keys.root()
        if before is not None and before != coming and _was_in_force(log, before):
            keys.keep_replaced(before)
        keys.keep_root(coming)
        if keys.root() != coming:
            raise LocalStorage(f"the key store ({keys.kind}) does not give back the new root that it took")
    elif not _was_in_force(log, coming) and not _was_replaced(log, keys.root()):
        return False
    keys.store.delete(NEXT)
    return True


def take_root(keys: DeviceKeys, root: Root) -> None:
    """Stores the root that is in force. A pending replacement of another root is dropped, because it can never complete."""
    before = keys.root()
    keys.keep_root(root)
    if before is not None and before != root:
        keys.store.delete(NEXT)


def _next(keys: DeviceKeys) -> Root | None:
    data = keys.store.load(NEXT)
    return None if data is None else Root.from_bytes(data)


def _was_replaced(log: DeviceLog, root: Root | None) -> bool:
    """Whether another device has replaced this root: everything it signs is void."""
    return root is not None and _was_in_force(log, root) and not in_force(log, root)


def _was_in_force(log: DeviceLog, root: Root) -> bool:
    """Whether this root was ever in force: no root is accepted twice."""
    admin = root.admin.public.to_bytes()
    return any(isinstance(event.record, RootRecord) and event.record.admin == admin for event in log.events)
