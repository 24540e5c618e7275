"""The recovery kit as a page of text: to be printed, or written down by hand.

Rules: ASCII only and at most 80 columns, so that any printer and any editor takes it; only the six lines look like lines of a
kit, so that the whole page can be given back; what it is, what it gives power over and what to do stands on it, because
the person who needs it may have nothing else.
"""

import textwrap
from dataclasses import dataclass, field

from crystal_crypto.hierarchy import Root
from crystal_crypto.kit import encode_kit
from crystal_crypto.pairing import encode

COLUMNS_MAX = 80

_NAME_CHARS_MAX = 60
_INDENT = "  "
_LABEL_CHARS = 8

_POWER = """\
Whoever has these six lines has the vault: they can read everything in it, add devices, put devices out and take the lead.
Whoever runs the relay cannot do any of that without them. They are good until you have the vault's root replaced."""
_LOSS = """\
If you lose all of your devices and this kit, the vault is lost. Nobody can bring it back: not the relay, not the makers of
the program."""
_KEEP = """\
Keep it on paper, where you keep what must be neither lost nor seen. Photograph it nowhere, mail it to nobody, put it into no
cloud folder. If you saved it as a file to print it, delete the file afterwards."""
_CHECK = """\
Type it back once, and you know that it works: `crystal recovery verify`."""
_WITH_RELAY = """\
With the relay above, or wherever it has moved to: install Crystal on any machine, run this command, and type the six lines
when you are asked for them."""
_WITHOUT_RELAY = """\
Without that relay: on a new one, with a copy of the folder .ldm of any device that was in the vault. The keys of that device
are not needed."""
_AFTERWARDS = """\
Then look which devices are in the vault, and put out those that you have lost. If that replaces the vault's root, make a new
kit."""
_STEPS = (
    (_WITH_RELAY, "crystal recovery restore --relay URL"),
    (_WITHOUT_RELAY, "crystal recovery restore --from FOLDER --relay URL --enroll-token -"),
    (_AFTERWARDS, "crystal devices"),
)


@dataclass(frozen=True, slots=True)
class KitPage:
    """What stands on the page. ``made`` is a date; ``device`` the name of the machine that made it.

    ``number`` counts how often the vault's root was replaced before.
    """

    root: Root = field(repr=False)
    vault: bytes
    relay: str
    made: str
    device: str
    number: int = 0

    @property
    def lines(self) -> tuple[str, ...]:
        """The six lines. They are the vault."""
        return encode_kit(self.root, self.vault)

    @property
    def code(self) -> str:
        """The same as an offline code, for a QR."""
        return encode(self.root, self.vault)

    def text(self) -> str:
        """The whole page."""
        parts = [
            "CRYSTAL RECOVERY KIT",
            "\n".join(
                [
                    *_labelled("Vault", self.vault.hex()),
                    *_labelled("Relay", _ascii(self.relay)),
                    *_labelled("Made", _ascii(f"{self.made}, on {self.device[:_NAME_CHARS_MAX]}")),
                ]
            ),
        ]
        if self.number:
            parts.append(
                _filled(
                    "It takes the place of every kit of this vault that was made before: the root was replaced."
                )
            )
        parts += [
            "\n".join(_INDENT * 2 + line for line in self.lines),
            _section("What it is", _POWER, _LOSS),
            _section("Keep it", _KEEP, _CHECK),
            _section(
                "Bring the vault back",
                *(f"{_filled(words, 1)}\n\n{_INDENT * 3}{command}" for words, command in _STEPS),
            ),
        ]
        return "\n\n".join(parts) + "\n"


def _labelled(label: str, text: str) -> list[str]:
    """A label and its text, over as many lines as it takes."""
    room = COLUMNS_MAX - _LABEL_CHARS
    pieces = [text[at : at + room] for at in range(0, len(text), room)] or ["(none)"]
    return [f"{label if not at else '':<{_LABEL_CHARS}}{piece}" for at, piece in enumerate(pieces)]


def _section(title: str, *paragraphs: str) -> str:
    filled = [text if text.startswith(_INDENT) else _filled(text, 1) for text in paragraphs]
    return "\n\n".join((title.upper(), *filled))


def _filled(text: str, indents: int = 0) -> str:
    indent = _INDENT * indents
    return textwrap.fill(
        " ".join(text.split()),
        COLUMNS_MAX,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _ascii(text: str) -> str:
    return "".join(char if " " <= char <= "~" else "?" for char in text)
