"""Names of the vault's devices, as the last round left them in the memory's database.

In the device log names are sealed. A search opens no keys, so each round writes down what this device can read of them; a
memory without them shows the beginnings of ids.
"""

import re
from typing import TYPE_CHECKING

import msgspec

from crystal_core.database import Database
from crystal_crypto.errors import UNDECODABLE
from crystal_node.base.errors import UsageError
from crystal_node.base.wording import one_line

if TYPE_CHECKING:
    from crystal_mirror.membership.member import Member

ID_DIGITS = 8
"""What stands for a device without a name."""
META_NAMES = "node.device_names"
_ID = re.compile(r"[0-9a-f]{8,32}")
_NAMES_TOLD_MAX = 20
_NAME_CHARS = 60
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

    def all(self) -> dict[str, str]:
        """The names of all devices that have one, by id."""
        return {device: name for device, name in self._names.items() if name}

    def name(self, device: str) -> str:
        """The name of the device with this id, the beginning of the id if there is none, "" for none."""
        return self._names.get(device) or device[:ID_DIGITS]

    def find(self, given: str) -> bytes:
        """The id of the device with this name, or whose id begins with these digits (8 to 32). Upper and lower case are one.

        Raises UsageError, which lists the known names, if there is none or more than one.
        """
        wanted = given.strip().casefold()
        found = [device for device, name in self._names.items() if name.casefold() == wanted]
        if not found and _ID.fullmatch(wanted):
            found = [device for device in self._names if device.startswith(wanted)]
        if len(found) == 1:
            return bytes.fromhex(found[0])
        if found:
            ids = ", ".join(device[:ID_DIGITS] for device in found[:_NAMES_TOLD_MAX])
            raise UsageError(
                f"{len(found)} devices are called {one_line(given, _NAME_CHARS)!r}", hint=f"Use an id: {ids}."
            )
        known = sorted(one_line(self.name(device), _NAME_CHARS) for device in self._names)[:_NAMES_TOLD_MAX]
        raise UsageError(
            f"no device of this memory is called {one_line(given, _NAME_CHARS)!r}",
            hint=f"Use one of {', '.join(known)}."
            if known
            else "`crystal sync` reads the names of the devices.",
        )
