"""Reads the corpus of credentials.

    = kind | origin | text                     a case on one line
    == name | kind | origin                    a case whose text is the lines below, up to an empty line before the next `=`

In a text ⟦ and ⟧ enclose what must not be readable afterwards, and ⟨alphabet*count⟩ stands for made-up characters, the same at
each run: no file of this project contains what a scanner of secrets would take for one. ␛ is the escape character.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from random import Random
from string import ascii_lowercase, ascii_uppercase, digits

_FOLDER = Path(__file__).parent
_ALPHABETS = {
    "b62": ascii_uppercase + ascii_lowercase + digits,
    "b64": ascii_uppercase + ascii_lowercase + digits + "+/",
    "b64u": ascii_uppercase + ascii_lowercase + digits + "-_",
    "b58": "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz",
    "b32": ascii_uppercase + "234567",
    "bech": "qpzry9x8gf2tvdw0s3jn54khce6mua7l",
    "hex": digits + "abcdef",
    "HEX": digits + "ABCDEF",
    "low": ascii_lowercase + digits,
    "up": ascii_uppercase + digits,
    "dig": digits,
}
_RANDOM = re.compile(r"⟨(\w+)\*(\d+)⟩")
_SECRET = re.compile(r"⟦(.*?)⟧", re.DOTALL)
_MARK = re.compile(r"\[redacted:[a-z0-9-]+\]")
PIECE_CHARS = 5
"""So many characters of a secret in a row, and it counts as readable."""


@dataclass(frozen=True, slots=True)
class Case:
    """A text with credentials in it. ``kind``: the sort of form; ``origin``: where that form comes from;
    ``frame``: the text without them."""

    name: str
    kind: str
    origin: str
    text: str
    secrets: tuple[str, ...]
    frame: str

    def framed(self) -> str:
        """The text between two lines that must stay."""
        return f"What came before it.\n{self.text}\nWhat came after it."

    def survives(self, redacted: str) -> bool:
        """Whether a piece of a secret is readable in the redacted text, or what stood around it is gone."""
        if not redacted.startswith("What came before it.") or not redacted.endswith("What came after it."):
            return True
        redacted = _MARK.sub(" ", redacted)
        for secret in self.secrets:
            size = min(PIECE_CHARS, len(secret))
            pieces = {secret[at : at + size] for at in range(len(secret) - size + 1)}
            if any(piece in redacted for piece in pieces if piece not in self.frame):
                return True
        return False


def read_cases(name: str) -> list[Case]:
    """The cases of a file of this folder (`seen.txt`, `held_back.txt`)."""
    found: list[Case] = []
    for number, block in enumerate(re.split(r"\n(?==)", (_FOLDER / name).read_text("utf-8"))):
        if block.startswith("== "):
            head, _, text = block[3:].partition("\n")
            label, kind, origin = (part.strip() for part in head.split("|"))
        elif block.startswith("= "):
            kind, origin, text = (part.strip() for part in block[2:].split(" | ", 2))
            label = f"{kind}-{number}"
        else:
            continue
        found.append(_case(label, kind, origin, text.rstrip("\n")))
    return found


def _case(name: str, kind: str, origin: str, template: str) -> Case:
    chance = Random(name)

    def made(match: re.Match[str]) -> str:
        alphabet = _ALPHABETS[match[1]]
        # Random text of a real token's length has digits; a short one made here must not lack them by chance.
        while True:
            drawn = "".join(chance.choice(alphabet) for _ in range(int(match[2])))
            if len(drawn) < 16 or sum(char.isdigit() for char in drawn) >= 2 or "2" not in alphabet:
                return drawn

    filled = _RANDOM.sub(made, template).replace("␛", "\x1b")
    secrets = tuple(_SECRET.findall(filled))
    return Case(name, kind, origin, _SECRET.sub(r"\1", filled), secrets, _SECRET.sub("⟧", filled))
