"""Cuts a text into windows for a provider's model, by bytes, because its tokenizer is not available.

Like the built-in model's windows (``crystal_core.embed.builtin``): a text that fits is one window, and a longer one is cut into
windows shorter than would fit, because a window has a single vector. A token has at least one byte, so that no window has more
tokens than bytes; prose has about a quarter.

Windows end at white space if some is near, and never within a character.
"""

from dataclasses import dataclass

WINDOWS_PER_TEXT_MAX = 96
"""The rest of a longer text is found by its words only. A text of 64 KiB has 73."""
_NEAR = 48
"""How many bytes before a window's end are searched for white space."""
EMPTY = "-"
"""Embedded instead of a text without visible characters, which servers refuse or skip."""


@dataclass(frozen=True, slots=True)
class WindowScheme:
    """Sizes in bytes: of a text that is not cut, of the windows of one that is, and their overlap. ``version`` is raised with
    any other change of what is sent for a text."""

    whole: int
    part: int
    overlap: int
    version: int = 1

    def __str__(self) -> str:
        return f"w{self.version}-{self.whole}-{self.part}-{self.overlap}"


LONG = WindowScheme(1984, 1024, 128)
"""For models that read 2,048 tokens or more: no text can be too long for them."""
SHORT = WindowScheme(960, 512, 96)
"""For models that read about 512 tokens, or 256."""
FINE = WindowScheme(960, 320, 64)
"""For models in this process whose vector is a mean: what two sentences say is lost among many."""


def windows_of(text: str, scheme: WindowScheme) -> list[str]:
    """The windows of a text in order, one at least."""
    data = text.encode("utf-8", "replace")
    if len(data) <= scheme.whole:
        return [_shown(data)]
    found: list[str] = []
    start = 0
    while len(found) < WINDOWS_PER_TEXT_MAX:
        end = _end(data, start + scheme.part)
        found.append(_shown(data[start:end]))
        if end >= len(data):
            break
        start = _begin(data, end - scheme.overlap)
    return found


def first_window(text: str, scheme: WindowScheme) -> str:
    """The part of a query that is embedded."""
    data = text[: scheme.whole].encode("utf-8", "replace")
    return _shown(data[: _boundary(data, scheme.whole)])


def _shown(data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    return text if text.strip() else EMPTY


def _end(data: bytes, wanted: int) -> int:
    if wanted >= len(data):
        return len(data)
    for at in range(wanted, wanted - _NEAR, -1):
        if data[at - 1 : at].isspace():
            return at
    return _boundary(data, wanted)


def _begin(data: bytes, wanted: int) -> int:
    for at in range(wanted, wanted + _NEAR):
        if data[at - 1 : at].isspace():
            return at
    return _boundary(data, wanted)


def _boundary(data: bytes, wanted: int) -> int:
    """The nearest boundary between two characters at or before ``wanted``."""
    wanted = min(wanted, len(data))
    while 0 < wanted < len(data) and data[wanted] & 0xC0 == 0x80:
        wanted -= 1
    return wanted
