"""Reads and writes the vector files; `README.md` says what is in them."""

import base64
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Vector:
    """One file: its folder, its name without `.txt`, its fields in order, and the bytes written out in it."""

    folder: str
    name: str
    fields: dict[str, str]
    body: bytes = field(default=b"")

    @property
    def path(self) -> Path:
        return FOLDER / self.folder / f"{self.name}.txt"

    @property
    def expect(self) -> str:
        return self.fields["expect"]

    def hex(self, name: str) -> bytes:
        return bytes.fromhex(self.fields[name])

    def number(self, name: str) -> int:
        return int(self.fields[name])

    def render(self) -> str:
        lines = [f"{name}: {value}" for name, value in self.fields.items()]
        if self.body:
            lines += ["", *textwrap.wrap(base64.b64encode(self.body).decode("ascii"), 76)]
        return "\n".join(lines) + "\n"


def read(path: Path) -> Vector:
    head, _, rest = path.read_text(encoding="ascii").partition("\n\n")
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    return Vector(path.parent.name, path.stem, fields, base64.b64decode(rest))


def read_folder(folder: str) -> list[Vector]:
    """All vectors of a folder by name. An empty folder is an error: a test over nothing would pass."""
    found = [read(path) for path in sorted((FOLDER / folder).glob("*.txt"))]
    if not found:
        raise FileNotFoundError(f"no vectors in {FOLDER / folder}")
    return found


def subject(vector: Vector) -> bytes:
    """The bytes that the vector is about: its body, or the parts of it (or of its base) that `parts` lists."""
    source = vector.body
    if "base" in vector.fields:
        source = subject(read(FOLDER / vector.folder / vector.fields["base"]))
    if "parts" not in vector.fields:
        return source
    return b"".join(_part(part, source) for part in vector.fields["parts"].split())


def _part(part: str, source: bytes) -> bytes:
    if part.startswith("x"):
        literal, _, times = part[1:].partition("*")
        return bytes.fromhex(literal) * int(times or 1)
    start, _, end = part.partition(":")
    return source[int(start or 0) : int(end) if end else len(source)]
