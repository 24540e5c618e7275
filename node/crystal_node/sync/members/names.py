"""Devices as people name them: by name or id, or by the beginning of either where only one device has it."""

from collections.abc import Sequence

from crystal_mirror.membership.status import DeviceEntry
from crystal_node.base.errors import NoSuchEntry, UsageError
from crystal_node.base.wording import one_line

_CANDIDATES_MAX = 12


def find_device(entries: Sequence[DeviceEntry], given: str, *, what: str = "device") -> DeviceEntry:
    """The one device that ``given`` names. Whole names and ids come before beginnings, active devices before revoked ones: a
    machine that came back has the name that it had.

    Raises:
        Usage: it names several; the hint lists them.
        NoSuchEntry: it names none; the hint lists those that there are, revoked ones only where all are.
    """
    wanted = given.strip().casefold()
    active = [entry for entry in entries if entry.info.revoked is None]
    revoked = [entry for entry in entries if entry.info.revoked is not None]
    for pool in (active, revoked) if wanted else ():
        for matches in (_is, _begins):
            found = [entry for entry in pool if matches(entry, wanted)]
            if len(found) == 1:
                return found[0]
            if found:
                raise UsageError(
                    f"{one_line(given, 40)!r} is more than one {what}",
                    hint=f"Give more of the id: {_listed(found)}.",
                )
    there = active or revoked
    raise NoSuchEntry(
        f"there is no {what} {one_line(given, 40)!r}",
        hint=f"There {'is' if len(there) == 1 else 'are'} {_listed(there)}."
        if there
        else f"There is no such {what} in this vault.",
    )


def name_of(entry: DeviceEntry) -> str:
    """A device's name and the beginning of its id: "laptop (1a2b3c4d)"."""
    name = one_line(entry.details.name, 40) if entry.details is not None else ""
    short = entry.info.device.hex()[:8]
    return f"{name} ({short})" if name else short


def _is(entry: DeviceEntry, wanted: str) -> bool:
    return wanted in (_name(entry), entry.info.device.hex())


def _begins(entry: DeviceEntry, wanted: str) -> bool:
    return _name(entry).startswith(wanted) or entry.info.device.hex().startswith(wanted)


def _name(entry: DeviceEntry) -> str:
    return entry.details.name.casefold() if entry.details is not None else ""


def _listed(entries: Sequence[DeviceEntry]) -> str:
    names = [name_of(entry) for entry in entries[:_CANDIDATES_MAX]]
    more = len(entries) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
