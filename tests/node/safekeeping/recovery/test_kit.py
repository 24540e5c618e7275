"""The recovery kit as a page, and typed back by people who make mistakes."""

import random

import pytest

from crystal_crypto.errors import BadCode
from crystal_crypto.hierarchy import Root
from crystal_crypto.kit import decode_kit, decode_line
from crystal_crypto.limits import KIT_LINES
from crystal_node.device.recovery_kit import COLUMNS_MAX, KitPage

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def _page(seed: int = 1, *, relay: str = "https://relay.example.org", device: str = "desktop") -> KitPage:
    drawn = random.Random(seed)
    root = Root.from_bytes(drawn.randbytes(32))
    return KitPage(root, root.vault, relay, "2026-03-04", device)


@pytest.mark.parametrize(
    ("relay", "device"),
    [
        ("https://relay.example.org", "desktop"),
        ("https://relay.example.org/" + "long/" * 390, "a name " * 20),
        ("", "Küchentisch \u202e\x1b[31m"),
    ],
)
def test_the_page_is_ascii_within_80_columns_whatever_names_stand_on_it(relay: str, device: str) -> None:
    page = _page(relay=relay, device=device)
    text = page.text()
    assert text.isascii()
    assert all(char.isprintable() or char == "\n" for char in text)
    assert max(len(line) for line in text.splitlines()) <= COLUMNS_MAX
    assert relay in "".join(line.removeprefix("Relay").strip() for line in text.splitlines())
    kit = decode_kit(text)
    assert (kit.root, kit.vault) == (page.root, page.vault)


def test_the_page_says_what_it_is_and_what_to_do() -> None:
    text = " ".join(_page().text().split())
    for said in (
        _page().vault.hex(),
        "https://relay.example.org",
        "2026-03-04",
        "read everything in it, add devices, put devices out and take the lead",
        "If you lose all of your devices and this kit, the vault is lost",
        "crystal recovery verify",
        "crystal recovery restore --relay URL",
        "crystal recovery restore --from FOLDER",
        "crystal devices",
    ):
        assert said in text


def test_a_kit_of_a_later_root_says_that_it_replaces_the_others_and_names_its_vault() -> None:
    first, later = Root.generate(), Root.generate()
    page = KitPage(later, first.vault, "https://relay.example.org", "2026-03-04", "desktop", number=1)
    assert "takes the place of every kit" in page.text()
    for given in (page.text(), page.code):
        assert (decode_kit(given).root, decode_kit(given).vault) == (later, first.vault)


def _careless(line: str, drawn: random.Random) -> str:
    """The line as somebody types it who does not look: case, look-alikes, spaces, no dashes."""
    number, _, rest = line.partition(":")
    typed = "".join(
        drawn.choice({"0": "0Oo", "1": "1lIiL"}.get(char, char + char.lower()))
        for char in rest.replace("-", "")
    ).strip()
    for _ in range(drawn.randrange(5)):
        at = drawn.randrange(len(typed) + 1)
        typed = typed[:at] + drawn.choice((" ", "-", "  ", " - ")) + typed[at:]
    return drawn.choice((f"{number}: ", f"{number}.", f"{number}) ", f" {number} ", "")) + typed


@pytest.mark.parametrize("seed", range(60))
def test_a_careless_typist_is_understood(seed: int) -> None:
    drawn = random.Random(seed)
    page = _page(seed)
    typed = [_careless(line, drawn) for line in page.lines]
    for number, line in enumerate(typed, start=1):
        assert decode_line(number, line) == decode_line(number, page.lines[number - 1])
    if drawn.random() < 0.5:
        drawn.shuffle(typed)
    kit = decode_kit("\n".join(typed))
    assert (kit.root, kit.vault) == (page.root, page.vault)


@pytest.mark.parametrize("number", range(1, KIT_LINES + 1))
def test_each_single_slip_is_found_and_its_line_is_named(number: int) -> None:
    page = _page(7)
    line = page.lines[number - 1]
    for at in range(3, len(line)):
        if line[at] == "-":
            continue
        for char in _ALPHABET:
            if char == line[at]:
                continue
            slipped = line[:at] + char + line[at + 1 :]
            with pytest.raises(BadCode, match=f"line {number} "):
                decode_line(number, slipped)
    for at in (3, 10, 16, len(line) - 1):
        for typed in (line[:at] + line[at + 1 :], line[:at] + "7" + line[at:]):
            with pytest.raises(BadCode, match=f"line {number} "):
                decode_kit(page.text().replace(line, typed))
    other = page.lines[number % KIT_LINES]
    with pytest.raises(BadCode, match="not line"):
        decode_line(number, other.partition(":")[2])


def test_lines_of_two_kits_give_neither_vault() -> None:
    one, other = _page(1), _page(2)
    mixed = decode_kit("\n".join((*one.lines[:3], *other.lines[3:])))
    assert mixed.root not in (one.root, other.root)


def test_a_kit_does_not_show_in_its_own_repr() -> None:
    page = _page()
    assert page.root.to_bytes().hex() not in repr(page)
    assert page.lines[0][3:] not in repr(page)
