"""The vectors about recovery kits, and about offline codes that name a vault."""

import base64
import binascii
from collections.abc import Iterator

from tests.vectors.craft import VAULT, checked_root, fixed, own_vault
from tests.vectors.vectorfile import Vector

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_ROOT = fixed("root of a kit", 32)
_OWN = own_vault(_ROOT)
_CODE = "mc3:" + base64.b64encode(checked_root(_ROOT)).decode()
_OTHERS_CODE = "mc3:" + base64.b64encode(checked_root(_ROOT, VAULT)).decode()
_OLD_CODE = "mc1:" + base64.b64encode(_ROOT).decode()


def cases() -> Iterator[Vector]:
    yield from _kits()
    yield from _faults()
    yield from _codes()


def lines(secret: bytes) -> list[str]:
    """The lines of a kit without their numbers, 16 characters each."""
    made: list[str] = []
    for number, at in enumerate(range(0, 48, 8), start=1):
        data = secret[at : at + 8]
        data += binascii.crc_hqx(bytes([number]) + data, 0xFFFF).to_bytes(2, "big")
        bits = f"{int.from_bytes(data, 'big'):080b}"
        made.append("".join(_ALPHABET[int(bits[i : i + 5], 2)] for i in range(0, 80, 5)))
    return made


def _printed(number: int, line: str) -> str:
    return f"{number}: " + "-".join(line[at : at + 4] for at in range(0, 16, 4))


def _good(name: str, what: str, text: str, vault: bytes = VAULT) -> Vector:
    fields = {"what": what, "expect": "success", "root": _ROOT.hex(), "vault": vault.hex()}
    return Vector("kit", f"good_{name}", fields, text.encode())


def _bad(name: str, what: str, text: str) -> Vector:
    return Vector("kit", name, {"what": what, "expect": "bad code"}, text.encode())


def _kits() -> Iterator[Vector]:
    bare = lines(_ROOT + VAULT)
    full = [_printed(n, line) for n, line in enumerate(bare, start=1)]
    yield _good("printed", "as it is printed", "\n".join(full))
    yield _good("lower_case", "in lower case, with line ends of two bytes", "\r\n".join(full).lower())
    confused = [line.replace("0", "o").replace("1", "l") for line in bare]
    yield _good("look_alikes", "o for 0, l for 1, no numbers", "\n".join(confused))
    confused = [line.replace("0", "O").replace("1", "I") for line in bare]
    yield _good("look_alikes_upper_case", "O for 0, I for 1, no dashes", "\n".join(confused))
    yield _good("reversed", "in reverse order", "\n".join(reversed(full)))
    yield _good("reversed_bare", "in reverse order, without numbers", "\n".join(reversed(bare)))
    yield _good("one_line", "all in one line", "  ".join(full))
    yield _good("dots", "other marks after the numbers", "\n".join(line.replace(":", ".") for line in full))
    yield _good(
        "spaces",
        "spaces for marks and dashes",
        "\n".join(line.replace(":", "").replace("-", " ") for line in full),
    )
    yield _good("twice", "each line twice", "\n".join(full + full))
    page = (
        "Recovery kit\n\n1. Install Crystal.\n2. Type the lines.\n\n"
        + "\n".join(full)
        + "\n\nRelay: https://a\n"
    )
    yield _good("page", "among other text", page)
    yield _good("code", "an offline code in its place", f" {_CODE}\n", _OWN)
    yield _good("code_with_vault", "one that names its vault", f"{_OTHERS_CODE}@{VAULT.hex()}")
    yield _good("old_code", "an earlier version's offline code", f" {_OLD_CODE}\n", _OWN)
    yield _good("old_code_with_vault", "one that names its vault", f"{_OLD_CODE}@{VAULT.hex()}")
    yield _good(
        "code_in_a_page",
        "one among other text",
        f"Recovery kit\n\n{_OTHERS_CODE}@{VAULT.hex()}\nKeep it.",
        VAULT,
    )


def _faults() -> Iterator[Vector]:
    bare = lines(_ROOT + VAULT)
    full = [_printed(n, line) for n, line in enumerate(bare, start=1)]

    def with_line(number: int, text: str) -> str:
        return "\n".join([*full[: number - 1], text, *full[number:]])

    yield _bad("empty", "nothing", "")
    yield _bad("prose", "only other text", "Recovery kit\n1. Install Crystal.\n")
    for number in range(1, 7):
        yield _bad(
            f"line_{number}_missing", "a line is missing", "\n".join(full[: number - 1] + full[number:])
        )
        typed = full[number - 1]
        other = "Z" if typed[-1] != "Z" else "Y"
        yield _bad(
            f"line_{number}_mistyped",
            "a line's last character is another",
            with_line(number, typed[:-1] + other),
        )
        yield _bad(f"line_{number}_cut", "a line is cut", with_line(number, typed[:-2]))
    yield _bad("line_long", "a line is too long", with_line(3, full[2] + "A"))
    yield _bad("line_with_u", "a letter that cannot occur", with_line(2, full[1][:-1] + "U"))
    yield _bad("line_foreign", "a letter that only looks right", with_line(2, full[1][:-1] + "\u0410"))
    exchanged = bare[0][1] + bare[0][0] + bare[0][2:]
    assert exchanged != bare[0]
    yield _bad("characters_swapped", "two characters swapped", with_line(1, _printed(1, exchanged)))
    yield _bad(
        "numbers_swapped",
        "lines 1 and 2 under each other's number",
        "\n".join([_printed(1, bare[1]), _printed(2, bare[0]), *full[2:]]),
    )
    yield _bad("line_twice", "line 1 in the place of line 2", with_line(2, full[0]))
    yield _bad("number_7", "line 6 with the number 7", with_line(6, "7" + full[5][1:]))
    another = lines(fixed("another root", 32) + VAULT)
    yield _bad("two_kits", "line 1 of two kits", "\n".join([*full, _printed(1, another[0])]))
    yield _bad("other_alphabet", "base32 of RFC 4648", base64.b32encode(_ROOT + VAULT).decode())
    yield _bad("too_much", "over 65,536 characters", "\n".join(full) + "\n" * 65536)
    yield _bad("code_cut", "an offline code that was cut", _CODE[:-3])
    yield _bad("code_upper_case", "an offline code in upper case", "MC3" + _CODE[3:])
    yield _bad(
        "old_code_upper_case", "an earlier version's offline code in upper case", "MC1" + _OLD_CODE[3:]
    )


def _codes() -> Iterator[Vector]:
    def code(name: str, what: str, text: str, vault: bytes | None = None) -> Vector:
        fields = {"what": what, "expect": "bad code"}
        if vault is not None:
            fields = {"what": what, "expect": "success", "root": _ROOT.hex(), "vault": vault.hex()}
        return Vector("code", f"vault_{name}", fields, text.encode())

    named, old = f"{_OTHERS_CODE}@{VAULT.hex()}", f"{_OLD_CODE}@{VAULT.hex()}"
    yield code("named", "a code that names its vault", named, VAULT)
    yield code("named_own", "a code that names the vault of its root", f"{_CODE}@{_OWN.hex()}", _OWN)
    yield code("not_named", "a code that names none", _CODE, _OWN)
    yield code("named_upper_case", "the vault in upper case", f"{_OTHERS_CODE}@{VAULT.hex().upper()}", VAULT)
    yield code("other", "the check of the root's own vault, and another vault", f"{_CODE}@{VAULT.hex()}")
    yield code("cut_off", "the check of another vault, which is not named", _OTHERS_CODE)
    yield code("empty", "nothing after the @", f"{_OTHERS_CODE}@")
    yield code("short", "31 digits", named[:-1])
    yield code("long", "33 digits", named + "0")
    yield code("bytes_15", "30 digits", named[:-2])
    yield code("foreign", "a letter that is no digit", named[:-1] + "g")
    yield code("foreign_digit", "a digit of another script", named[:-1] + "\u0660")
    yield code("space", "a space after the @", f"{_OTHERS_CODE}@ {VAULT.hex()[1:]}")
    yield code("twice", "two vaults", f"{named}@{VAULT.hex()}")
    yield code("first", "the vault first", f"mc3:{VAULT.hex()}@{_OTHERS_CODE[4:]}")
    yield code("root_cut", "the root cut short", f"{_OTHERS_CODE[:-3]}@{VAULT.hex()}")
    yield code("old_named", "an earlier version's, with a vault", old, VAULT)
    yield code("old_not_named", "an earlier version's, without one", _OLD_CODE, _OWN)
    yield code("old_named_no_padding", "without padding", f" {old.replace('=', '')}\n", VAULT)
    yield code("old_short", "an earlier version's, with 31 digits", old[:-1])
    yield code("old_root_cut", "the earlier version's root cut short", f"{_OLD_CODE[:-3]}@{VAULT.hex()}")
