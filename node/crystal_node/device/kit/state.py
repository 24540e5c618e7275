"""Whether the person has a recovery kit that works: typed back once, and of the root in force.

``config.json`` remembers a mark of the root whose kit was typed back, not the root. A kit of a root that was replaced counts
no more. Each device knows only what was typed on it.
"""

from enum import StrEnum

from crystal_crypto.hierarchy import Root, vault_id
from crystal_crypto.identity import VerifyKey
from crystal_mirror.devicelog.records import RootRecord
from crystal_node.base.settings import Config

_MARK_BYTES = 8


class KitState(StrEnum):
    """What is known here of the recovery kit."""

    VERIFIED = "verified"
    NEVER = "never"
    OUTDATED = "outdated"


def kit_mark(root: Root) -> str:
    """What ``config.json`` keeps of a root whose kit was typed back: the beginning of its admin key's hash, in hex."""
    return root.vault[:_MARK_BYTES].hex()


def kit_state(config: Config, log_root: RootRecord | None) -> KitState:
    """The state by what was typed here and by the root in force, as the device log tells it (None: it tells none yet)."""
    if not config.kit_verified:
        return KitState.NEVER
    if log_root is None:
        return KitState.VERIFIED
    in_force = vault_id(VerifyKey.from_bytes(log_root.admin))[:_MARK_BYTES].hex()
    return KitState.VERIFIED if config.kit_verified == in_force else KitState.OUTDATED
