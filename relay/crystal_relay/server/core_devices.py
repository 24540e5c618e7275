"""Devices of a vault with the preset `lead`, independent of their tokens': those named, and those raised since.

    r/vault/<vault>/leads/<number>             the devices that may lead, all of them; numbered from 1, twelve digits
    r/vault/<vault>/lead/<number>/<device>     raised while that naming was the newest (0: there was none)

The newest naming is valid. Every grant of the preset `lead` carries the number of the naming that was the newest when it was
authorised: a raise in its key, a token's registration in its record. With an older number it grants nothing, unless the device
is named. So the time at which a pending raise is written does not matter: one authorised by a device that has lost the preset
is void. For the same reason a naming takes the number after the one under which its author was authorised.

A newer naming is written before older ones and their raises are deleted, the oldest first. The newest is never deleted, nor
is number 1, which is marked as replaced before any other is deleted. So whoever finds no number n + 1, and then finds number n
as it was written (or looked for number 1), knows the newest of a moment before without a list, which costs twelve times as
much as a read where requests are paid for.
"""

import time
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from crystal_relay.errors import AlreadyExists, NotFound, QuotaExceeded
from crystal_relay.limits import VAULT_DEVICES_MAX
from crystal_relay.server.records import Records

RAISES_RESERVED = 64
"""Additional raises, reserved for the recovery secret."""
KNOWN_VAULTS_MAX = 65_536
LIST_AGAIN_SECONDS = 6 * 3600.0
"""How long a number leads to the newest naming by reads alone. Bounds what a relay of an older version, which deleted number 1
too, can hide from this one."""
_VERSION = 1
_REPLACED = 0
"""In place of the version of number 1, once others that are newer may be missing."""


class _Naming(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    devices: frozenset[str]


class CoreDevices:
    """Namings and raises in one store."""

    def __init__(self, records: Records, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._records = records
        self._clock = clock
        self._known: OrderedDict[str, tuple[int, float]] = OrderedDict()
        """A naming's number for each vault, and until when it need not be listed."""

    async def recent(self, vault: str) -> tuple[int, frozenset[str]]:
        """As `newest`, for an answer that may be remembered: by one or two reads if this process knows a number."""
        number, until = self._known.get(vault, (0, float("-inf")))
        if self._clock() >= until:
            return await self._listed(vault)
        while await self._read(vault, number + 1) is not None:
            number += 1
            self._known[vault] = (number, until)
        if not number:
            return 0, frozenset()
        # Read last: were it deleted, a newer one than the missing one could be there.
        naming = await self._read(vault, number)
        if naming is None or naming.version == _REPLACED:
            return await self._listed(vault)
        return number, naming.devices

    def forget(self, vault: str | None) -> None:
        """Drop the known number of a vault, or of all."""
        if vault is None:
            self._known.clear()
        else:
            self._known.pop(vault, None)

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
            if naming.version != _REPLACED:  # as above
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
        older = [each for each in named[:-1] if int(each) != 1]
        if older:
            await self._records.replace(_naming_key(vault, 1), _Naming(_REPLACED, frozenset()))
        for each in older:  # one after the other, so that no older one outlives a newer one
            await self._records.delete_all([prefix + each])
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

    # --- inside ---

    async def _listed(self, vault: str) -> tuple[int, frozenset[str]]:
        until = self._clock() + LIST_AGAIN_SECONDS
        found = await self.newest(vault)
        self._known[vault] = (found[0], until)
        self._known.move_to_end(vault)
        if len(self._known) > KNOWN_VAULTS_MAX:
            self._known.popitem(last=False)
        return found

    async def _read(self, vault: str, number: int) -> _Naming | None:
        try:
            return await self._records.read(_naming_key(vault, number), _Naming)
        except NotFound:
            return None


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
