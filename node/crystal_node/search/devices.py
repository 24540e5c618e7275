"""Names of the vault's devices, as the last round left them in the memory's database.

In the device log names are sealed. A search opens no keys, so each round writes down what this device can read of them; a
memory without them shows the beginnings of ids.
"""

from typing import TYPE_CHECKING

import msgspec

from crystal_core.database import Database
from crystal_crypto.errors import UNDECODABLE

if TYPE_CHECKING:
    from crystal_mirror.membership.member import Member

ID_DIGITS = 8
"""What stands for a device without a name."""
META_NAMES = "node.device_names"
_decoder: msgspec.json.Decoder[dict[str, str]] = msgspec.json.Decoder(dict[str, str])


def keep_names(member: "Member") -> None:
    """Writes down the names of all devices, if one has changed."""
    from crystal_mirror.membership.status import device_name

    named = {info.device.hex(): device_name(member, info.device) or "" for info in member.log.members()}
    data = msgspec.json.encode(named, order="sorted")
    if member.replica.meta_get(META_NAMES) != data:
        with member.replica.transaction() as transaction:
            transaction.meta_set(META_NAMES, data)


class DeviceNames:
    """The names in a database, as they are now."""

    def __init__(self, database: Database) -> None:
        data = database.value("SELECT value FROM meta WHERE name = ?", (META_NAMES,))
        try:
            self._names = _decoder.decode(bytes(data)) if data is not None else {}
        except UNDECODABLE:
            self._names = {}

    def name(self, device: str) -> str:
        """The name of the device with this id, the beginning of the id if there is none, "" for none."""
        return self._names.get(device) or device[:ID_DIGITS]
