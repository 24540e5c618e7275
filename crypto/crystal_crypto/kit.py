"""The recovery kit's secret part: six numbered lines to be written down and typed back.

    1: ABCD-EFGH-JKMN-PQRS        16 characters of Crockford's base32 = 8 bytes of data | 2 bytes of check
    lines 1 to 4 are the root, lines 5 and 6 the vault's id

Rules: a line's check (CRC-16) covers its number, so that every slip within three neighbouring characters, every swap of two,
and every line in the wrong place is found, and at which line. A reader takes any case, reads O as 0 and I and L as 1,
ignores spaces and dashes, finds the lines in any order and among other text, and takes an offline code in their place. Two kits
of one vault differ in lines 1 to 4; mixed lines of two kits are detected only by the root's check value. Errors name the
line; no line is ever quoted.
"""

import binascii
import re
from dataclasses import dataclass
from typing import Final

from crystal_crypto.errors import BadCode
from crystal_crypto.hierarchy import Root
from crystal_crypto.limits import (
    KEY_BYTES,
    KIT_LINE_BYTES,
    KIT_LINE_CHECK_BYTES,
    KIT_LINES,
    KIT_TEXT_CHARS_MAX,
    VAULT_BYTES,
)
from crystal_crypto.pairing import OFFLINE_PREFIXES, decode, is_offline_code
from crystal_crypto.secret import exactly

LINE_CHARS: Final = (KIT_LINE_BYTES + KIT_LINE_CHECK_BYTES) * 8 // 5

_GROUP: Final = 4
_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_VALUES: Final = {char: value for value, char in enumerate(_ALPHABET)} | {"O": 0, "I": 1, "L": 1}
_SEPARATORS: Final = frozenset(" \t\u00a0-")
# `3: …`, `3. …`, `3) …`, or `3 …`: a data line has no group of one character.
_NUMBERED: Final = re.compile(r"\s*([1-9])(?:\s*[:.)]|(?=\s))\s*(.*)", re.DOTALL)
_GROUPS: Final = re.compile(r"[0-9A-Za-z]{1,5}(?:[ \t\u00a0-]+[0-9A-Za-z]{1,5}){2,}|[0-9A-Za-z]{10,20}")
_NEXT_LINE: Final = re.compile(r"[\r\n]+|(?<=\s)(?=[1-6]:)")
_HINT: Final = "Type the line again as it stands on the kit"


@dataclass(frozen=True, slots=True)
class Kit:
    """The content of a kit."""

    root: Root
    vault: bytes


def encode_kit(root: Root, vault: bytes) -> tuple[str, ...]:
    """The six lines. They give full power over the vault: show them to the person only. Raises Malformed for a vault id of
    another length."""
    secret = root.to_bytes() + exactly(vault, VAULT_BYTES, "a vault id")
    pieces = (secret[at : at + KIT_LINE_BYTES] for at in range(0, len(secret), KIT_LINE_BYTES))
    return tuple(_line(number, piece) for number, piece in enumerate(pieces, start=1))


def decode_line(number: int, text: str) -> bytes:
    """The 8 bytes of line `number` (from 1), typed with or without its number. Raises BadCode, which names the line."""
    if not 1 <= number <= KIT_LINES:
        raise ValueError(f"a kit has the lines 1 to {KIT_LINES}")
    stated, rest = _split(text)
    chars = _chars(number, rest)
    if len(chars) != LINE_CHARS:
        too = "short" if len(chars) < LINE_CHARS else "long"
        raise BadCode(
            f"line {number} of the kit is too {too} by {abs(LINE_CHARS - len(chars))} characters", hint=_HINT
        )
    at = _place(chars)
    if at is None:
        raise BadCode(f"line {number} of the kit was mistyped: its check does not agree", hint=_HINT)
    if at != number:
        raise BadCode(f"that is line {at} of the kit, not line {number}", hint=f"Type line {number}")
    if stated not in (None, number):
        raise BadCode(f"line {number} of the kit has the number {stated} before it", hint=_HINT)
    return _packed(chars)[:KIT_LINE_BYTES]


def line_place(text: str) -> int | None:
    """The number of the line that these 16 characters are by their check, without separators; None: of no kit.

    Six in 65,536 random texts of this length pass.
    """
    chars = _normal(text)
    return _place(chars) if len(chars) == LINE_CHARS and all(char in _VALUES for char in chars) else None


def decode_kit(text: str) -> Kit:
    """From the lines, the whole printed page, or an offline code. Raises BadCode, which names the line."""
    if len(text) > KIT_TEXT_CHARS_MAX:  # §20.2-5
        raise BadCode(f"a kit has at most {KIT_TEXT_CHARS_MAX} characters", hint="Give the six lines only")
    if is_offline_code(text):  # §20.2-1
        return _from_code(text)
    written = [line for line in _NEXT_LINE.split(text) if line.strip()]  # §20.2-2
    found: dict[int, bytes] = {}
    for line in written:
        number, data = _good_line(line)
        if number is not None and found.setdefault(number, data) != data:  # §20.2-3
            raise BadCode(f"line {number} is there twice, and differently", hint="Use one kit at a time")
    missing = [number for number in range(1, KIT_LINES + 1) if number not in found]
    if len(missing) == KIT_LINES:
        for word in text.split():
            if word.startswith(OFFLINE_PREFIXES):  # §20.2-4
                return _from_code(word)
    for number in missing:
        decode_line(number, _meant(number, written))
    secret = b"".join(found[number] for number in sorted(found))
    return Kit(Root.from_bytes(secret[:KEY_BYTES]), secret[KEY_BYTES:])


def _from_code(text: str) -> Kit:
    code = decode(text)
    return Kit(code.root, code.vault_id)


def _good_line(line: str) -> tuple[int | None, bytes]:
    """The number of a valid line of a kit (None: not a line, or another number is written before it), and its data."""
    stated, rest = _split(line)
    chars = _normal(rest)
    if len(chars) != LINE_CHARS or any(char not in _VALUES for char in chars):  # §20.1-3
        return None, b""
    at = _place(chars)
    return (at if stated in (None, at) else None), _packed(chars)[:KIT_LINE_BYTES]  # §20.1-3


def _meant(number: int, written: list[str]) -> str:
    """What was written in place of the line. Raises BadCode if nothing was."""
    for line in written:
        stated, rest = _split(line)
        if stated == number and _GROUPS.fullmatch(rest.strip()):
            return line
    if len(written) == KIT_LINES and _split(written[number - 1])[0] is None:
        return written[number - 1]
    raise BadCode(f"line {number} of the kit is missing", hint="Give all six lines")  # §20.2-3


def _split(line: str) -> tuple[int | None, str]:
    numbered = _NUMBERED.fullmatch(line)  # §20.1-2
    return (int(numbered[1]), numbered[2]) if numbered else (None, line)


def _chars(number: int, text: str) -> str:
    chars = _normal(text.strip())
    for at, char in enumerate(chars, start=1):
        if char not in _VALUES:
            raise BadCode(
                f"line {number} of the kit has a character at place {at} that cannot occur in it",
                hint="A kit has digits and letters without U. " + _HINT,
            )
    return chars


def _normal(text: str) -> str:
    """Without separators, ASCII letters in upper case; other letters stay, and are refused."""
    kept = (char for char in text.strip() if char not in _SEPARATORS)  # §20.1-1
    return "".join(char.upper() if char.isascii() else char for char in kept)


def _place(chars: str) -> int | None:
    """The line number that these characters have by their check. No check is valid for two numbers."""
    raw = _packed(chars)
    data, check = raw[:KIT_LINE_BYTES], raw[KIT_LINE_BYTES:]
    return next((n for n in range(1, KIT_LINES + 1) if _check(n, data) == check), None)


def _packed(chars: str) -> bytes:
    number = 0
    for char in chars:
        number = number << 5 | _VALUES[char]
    return number.to_bytes(KIT_LINE_BYTES + KIT_LINE_CHECK_BYTES, "big")


def _line(number: int, data: bytes) -> str:
    value = int.from_bytes(data + _check(number, data), "big")
    chars = "".join(_ALPHABET[value >> 5 * at & 31] for at in reversed(range(LINE_CHARS)))
    return f"{number}: " + "-".join(chars[at : at + _GROUP] for at in range(0, LINE_CHARS, _GROUP))


def _check(number: int, data: bytes) -> bytes:
    return binascii.crc_hqx(bytes([number]) + data, 0xFFFF).to_bytes(KIT_LINE_CHECK_BYTES, "big")
