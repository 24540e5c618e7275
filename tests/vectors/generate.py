"""Writes all vector files: `python -m tests.vectors.generate`. Files that no case makes are deleted."""

from tests.vectors import (
    blob_cases,
    bundle_cases,
    content_cases,
    deletion_cases,
    entry_cases,
    founding_cases,
    invite_cases,
    key_cases,
    kit_cases,
    letter_cases,
    operation_cases,
    short_cases,
    text_cases,
    wrapped_cases,
)
from tests.vectors.vectorfile import FOLDER, Vector

FOLDERS = (
    "blob",
    "bundle",
    "code",
    "deletion",
    "entry",
    "founding",
    "invite",
    "key",
    "kit",
    "letter",
    "operation",
    "v1",
    "wrapped",
)

_MODULES = (
    entry_cases,
    content_cases,
    blob_cases,
    bundle_cases,
    letter_cases,
    text_cases,
    key_cases,
    invite_cases,
    short_cases,
    kit_cases,
    wrapped_cases,
    founding_cases,
    deletion_cases,
    operation_cases,
)


def vectors() -> list[Vector]:
    """Every vector. Raises ValueError if two have the same name."""
    made = [vector for module in _MODULES for vector in module.cases()]
    if len({vector.path for vector in made}) != len(made):
        raise ValueError("two vectors have the same name")
    return made


def main() -> None:
    made = vectors()
    for vector in made:
        vector.path.parent.mkdir(exist_ok=True)
        vector.path.write_text(vector.render(), encoding="ascii")
    kept = {vector.path for vector in made}
    for folder in FOLDERS:
        for path in (FOLDER / folder).glob("*.txt"):
            if path not in kept:
                path.unlink()


if __name__ == "__main__":
    main()
