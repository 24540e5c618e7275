"""The import rules of docs/architecture.md hold, and .importlinter would notice if they did not."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
FOLDERS = ("crypto", "mirror", "core", "relay", "node")
LINT_IMPORTS = Path(sys.executable).parent / "lint-imports"


def _lint_imports(directory: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(directory)}
    return subprocess.run(
        [str(LINT_IMPORTS), "--no-cache", "--config", str(directory / ".importlinter")],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_the_project_keeps_its_import_rules() -> None:
    result = _lint_imports(PROJECT)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("importer", "statement"),
    [
        ("crystal_crypto/keystore", "import crystal_mirror"),
        ("crystal_crypto/keystore", "import httpx"),
        ("crystal_crypto/keystore", "import crystal_crypto.kit"),
        ("crystal_mirror/streams", "import crystal_core"),
        ("crystal_mirror/streams", "import crystal_relay"),
        ("crystal_mirror/streams", "import time"),
        ("crystal_mirror/streams", "import apsw"),
        ("crystal_mirror/history", "import crystal_mirror.streams"),
        ("crystal_mirror/membership", "import crystal_mirror.replication.pull"),
        ("crystal_mirror/files", "import crystal_mirror.retention"),
        ("crystal_core", "import crystal_node"),
        ("crystal_core", "import crystal_relay"),
        ("crystal_core", "import starlette"),
        ("crystal_relay", "import crystal_crypto"),
        ("crystal_relay", "import crystal_node"),
        ("crystal_relay", "import cryptography"),
        ("crystal_relay", "from cryptography.hazmat.primitives import hashes"),
        ("crystal_relay/server", "import crystal_prototype.relay.tokens"),
        ("crystal_node/surfaces", "import crystal_prototype.home.takeover"),
        ("crystal_prototype/relay", "import crystal_prototype.sealing\nimport crystal_crypto"),
    ],
)
def test_a_forbidden_import_is_found(importer: str, statement: str, tmp_path: Path) -> None:
    shutil.copy(PROJECT / ".importlinter", tmp_path)
    _empty_copy(tmp_path)
    assert _lint_imports(tmp_path).returncode == 0
    (tmp_path / importer / "planted.py").write_text(statement + "\n", encoding="utf-8")
    result = _lint_imports(tmp_path)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "BROKEN" in result.stdout


def _empty_copy(directory: Path) -> None:
    """All modules of the product, with nothing in them: contracts name modules that must be there."""
    for folder in FOLDERS:
        for path in (PROJECT / folder).rglob("*.py"):
            copy = directory / path.relative_to(PROJECT / folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.touch()
