"""What is mutated, and which tests have to find it. Every test runs once first, to see which lines it runs."""

from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Target:
    """Folders or modules of the product, and folders or files of tests that run it in their own process. `apart`: a folder of
    the code that is another target's."""

    code: tuple[str, ...]
    tests: tuple[str, ...]
    apart: str = "-"

    def modules(self) -> list[Path]:
        found = (path for each in self.code for path in _python(PROJECT / each))
        return [path for path in found if path.name != "__init__.py" and self.apart not in path.as_posix()]

    def test_files(self) -> list[Path]:
        return [
            path for each in self.tests for path in _python(PROJECT / each) if path.name.startswith("test_")
        ]


def _python(path: Path) -> list[Path]:
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


TARGETS = {
    "mirror": Target(("mirror/crystal_mirror",), ("tests/mirror",), apart="mirror/crystal_mirror/files/"),
    "core": Target(("core/crystal_core",), ("tests/core", "tests/mirror/test_file_decisions.py")),
    "relay": Target(
        ("relay/crystal_relay/local",),
        (
            "tests/relay/test_local_store.py",
            "tests/relay/test_local_errors.py",
            "tests/relay/test_local_model.py",
            "tests/relay/test_writer.py",
            "tests/relay/test_durability.py",
            "tests/relay/test_disks.py",
            "tests/relay/test_one_write.py",
            "tests/contract/test_store_contract.py",
        ),
    ),
    "files": Target(
        ("node/crystal_node/sync/files", "mirror/crystal_mirror/files"),
        (
            "tests/node/sync/files",
            "tests/mirror/test_file_decisions.py",
            "tests/node/surfaces/cli/test_files.py",
        ),
    ),
}
