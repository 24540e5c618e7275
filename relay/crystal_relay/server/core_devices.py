"""Devices of a vault with the preset `lead`, independent of their tokens': those named, and those raised since.

    r/vault/<vault>/leads/<number>             the devices that may lead, all of them; numbered from 1, twelve digits
    r/vault/<vault>/lead/<number>/<device>     raised while that naming was the newest (0: there was none)

The newest naming is valid. Every grant of the preset `lead` carries the number of the naming that was the newest when it was
authorised: a raise in its key, a token's registration in its record. With an older number it grants nothing, unless the device
is named. So the time at which a pending raise is written does not matter: one authorised by a device that has lost the preset
is void. For the same reason a naming takes the number after the one under which its author was authorised.

A newer naming is written before older ones and their raises are deleted; the newest is never deleted.
"""

import msgspec

from crystal_relay.errors import AlreadyExists, NotFound, QuotaExceeded
from crystal_relay.limits import VAULT_DEVICES_MAX
from crystal_relay.server.records import Records

RAISES_RESERVED = 64
"""Additional raises, reserved for the recovery secret."""
_VERSION = 1


class _Naming(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    devices: frozenset[str]


class CoreDevices:
    """Namings and raises in one store."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def newest(self, vault: str) -> tuple[int, frozenset[str]]:
        """The number of the newest naming and its devices; 0 and no devices if there is none."""
        while True:
            number = await self.number(vault)
            if not number:
                return 0, frozenset()
            try:
                naming = await self._records.read(_naming_key(vault, number), _Naming)
            except NotFound:
                continue  # replaced by a newer one meanwhile
            return number, naming.devices

    async def number(self, vault: str) -> int:
        """The number of the newest naming, 0 if there is none."""
        named = await self._records.names(_naming_prefix(vault))
        return int(named[-1]) if named else 0

    async def is_raised(self, vault: str, number: int, device: str) -> bool:
        """Whether the device was raised while that naming was the newest."""
        return await self._records.has(_raise_key(vault, number, device))

    async def name(self, vault: str, devices: frozenset[str], *, after: int) -> bool:
        """Give these devices alone the preset, if naming `after` is still the newest. Returns whether it was."""
        number = after + 1
        try:
            await self._records.put_new(_naming_key(vault, number), _Naming(_VERSION, devices))
        except AlreadyExists:
            return False
        prefix = _naming_prefix(vault)
        named = await self._records.names(prefix)
        # A late naming, with the number of one that was deleted already, ends here too.
        await self._records.delete_all([prefix + each for each in named[:-1]])
        if int(named[-1]) != number:
            return False
        raised, newest = await self._records.names(_raise_prefix(vault)), _digits(number)
        old = [each for each in raised if each.partition("/")[0] < newest]  # §R4.5-3
        await self._records.delete_all([_raise_prefix(vault) + each for each in old])
        return True

    async def raise_device(self, vault: str, number: int, device: str, *, by_recovery: bool) -> None:
        """Raise a device under that naming's number. Idempotent. Raises QuotaExceeded."""
        raised = await self._records.names(f"{_raise_prefix(vault)}{_digits(number)}/")
        room = VAULT_DEVICES_MAX + (RAISES_RESERVED if by_recovery else 0)
        if len(raised) >= room and device not in raised:  # §R4.5-2
            raise QuotaExceeded(f"{VAULT_DEVICES_MAX} devices of this vault may lead already")
        await self._records.mark(_raise_key(vault, number, device))

    async def end_all_but(self, vault: str, devices: frozenset[str]) -> None:
        """End the raises of devices that are shut out, so that none comes back under its id with the preset."""
        raised = await self._records.names(_raise_prefix(vault))
        gone = [each for each in raised if each.partition("/")[2] not in devices]  # §R4.5-3
        await self._records.delete_all([_raise_prefix(vault) + each for each in gone])


def _digits(number: int) -> str:
    return f"{number:012d}"


def _naming_prefix(vault: str) -> str:
    return f"r/vault/{vault}/leads/"


def _naming_key(vault: str, number: int) -> str:
    return f"{_naming_prefix(vault)}{_digits(number)}"


def _raise_prefix(vault: str) -> str:
    return f"r/vault/{vault}/lead/"


def _raise_key(vault: str, number: int, device: str) -> str:
    return f"{_raise_prefix(vault)}{_digits(number)}/{device}"
