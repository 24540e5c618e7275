"""Names of devices: one that is free in the vault.

A name is for people; the protocol knows devices by their ids. Two devices that are added at the same moment by different
machines may still get one name.
"""

from collections.abc import Callable, Iterable
from itertools import count

from crystal_crypto.hierarchy import GenerationKey
from crystal_mirror.devicelog.log import DeviceLog
from crystal_mirror.devicelog.records import DETAIL_CHARS_MAX, entry_details

KeyOf = Callable[[int], GenerationKey | None]


def names_in(log: DeviceLog, key_of: KeyOf, *, besides: bytes = b"") -> list[str]:
    """The names of the active devices, as far as these keys open them, without that of the device ``besides``."""
    known = (
        entry_details(info.named, key_of(info.named.header.generation))
        for info in log.active()
        if info.device != besides
    )
    return [details.name for details in known if details is not None]


def free_name(wanted: str, taken: Iterable[str]) -> str:
    """``wanted``, or with a number if a device has it, whatever its case: "laptop-2". At most ``DETAIL_CHARS_MAX``."""
    others = {name.casefold() for name in taken}
    if wanted.casefold() not in others:
        return wanted
    for number in count(2):
        end = f"-{number}"
        name = wanted[: DETAIL_CHARS_MAX - len(end)] + end
        if name.casefold() not in others:
            return name
    raise AssertionError("a count does not end")
