"""Write the lock files of `requirements/`: every package with the hashes of its published files.

`python -m scripts.make_locks` needs `uv` (`pip install uv`) and the package index. Versions are those of
`requirements/constraints.txt`, which `make setup` installs and the tests run with; the locks add hashes, for all systems and
Python versions that are supported. `tests/house/test_locks.py` holds them against it and against pyproject.toml.
"""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
REQUIREMENTS = PROJECT / "requirements"
CONSTRAINTS = REQUIREMENTS / "constraints.txt"
LOCKS: dict[str, tuple[str, str]] = {
    "device.txt": ("pyproject.toml", "What a device needs to run."),
    "relay.txt": ("relay/pyproject.toml", "What a relay needs to run."),
    "build.txt": ("-", "What builds the wheel."),
}
"""File, what uv reads the requirements from (`-`: those of the build), and the head of the file."""
_HEAD = """# {about} For `pip install --require-hashes -r`.
# Written by `python -m scripts.make_locks` from constraints.txt; not to be changed by hand.
"""


def main() -> int:
    uv = shutil.which("uv")
    if uv is None:
        print("make_locks: there is no uv on the PATH: pip install uv", file=sys.stderr)
        return 3
    for name, (source, about) in LOCKS.items():
        command = [
            uv,
            "pip",
            "compile",
            "--quiet",
            "--universal",
            "--python-version",
            "3.11",
            "--generate-hashes",
        ]
        command += ["--no-header", "--no-annotate", "--constraint", str(CONSTRAINTS), source]
        done = subprocess.run(
            command, cwd=PROJECT, input=build_requirements(), stdout=subprocess.PIPE, text=True, check=False
        )
        if done.returncode != 0:
            return done.returncode
        (REQUIREMENTS / name).write_text(_HEAD.format(about=about) + done.stdout, encoding="utf-8")
    return 0


def build_requirements() -> str:
    """`build-system.requires` of pyproject.toml, a line each."""
    document = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    return "\n".join(document["build-system"]["requires"])


if __name__ == "__main__":
    sys.exit(main())
