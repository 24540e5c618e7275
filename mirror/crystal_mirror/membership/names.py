"""Device names that are free in the vault.

Names are for people; the protocol knows devices by their ids. Two devices that different machines add at the same moment
may still get the same name.
"""

from collections.abc import Callable, Iterable
from itertools import count

from crystal_crypto.hierarchy import GenerationKey
from crystal_mirror.devicelog.log import DeviceLog
from crystal_mirror.devicelog.records import DETAIL_CHARS_MAX, entry_details

KeyOf = Callable[[int], GenerationKey | None]


def names_in(log: DeviceLog, key_of: KeyOf, *, besides: bytes = b"") -> list[str]:
    """The names of the active devices except ``besides``, as far as these keys open them."""
    known = (
        entry_details(info.named, key_of(info.named.header.generation))
        for info in log.active()
        if info.device != besides
    )
    return [details.name for details in known if details is not None]


def free_name(wanted: str, taken: Iterable[str]) -> str:
    """``wanted``, with a number (``laptop-2``) if it is taken, case ignored. At most ``DETAIL_CHARS_MAX`` characters."""
    others = {name.casefold() for name in taken}
    if wanted.casefold() not in others:
        return wanted
    for number in count(2):
        end = f"-{number}"
        name = wanted[: DETAIL_CHARS_MAX - len(end)] + end
        if name.casefold() not in others:
            return name
    raise AssertionError("a count does not end")
