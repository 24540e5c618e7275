"""`.importlinter` notices what docs/architecture.md forbids. The linters of `make check` run it on the project."""

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


FORBIDDEN = (
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
    ("crystal_node/base", "import crystal_node.device.device"),
    ("crystal_node/search", "def late() -> None:\n    import crystal_node.sync.syncer"),
    ("crystal_node/agent", "import crystal_node.surfaces.cli.app"),
    ("crystal_core/state", "import crystal_core.search.search"),
    ("crystal_relay/local", "import crystal_relay.server.app"),
    ("crystal_relay/server", "import crystal_prototype.relay.tokens"),
    ("crystal_node/surfaces", "import crystal_prototype.home.takeover"),
    ("crystal_prototype/relay", "import crystal_prototype.sealing\nimport crystal_crypto"),
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All modules with nothing in them, and the rules."""
    directory = tmp_path_factory.mktemp("project")
    shutil.copy(PROJECT / ".importlinter", directory)
    _empty_copy(directory)
    return directory


@pytest.fixture(scope="module")
def found(project: Path) -> str:
    """What is said of a project with all forbidden imports, each in a module of its own."""
    clean = _lint_imports(project)
    assert clean.returncode == 0, clean.stdout + clean.stderr
    for number, (importer, statement) in enumerate(FORBIDDEN):
        (project / importer / f"planted_{number}.py").write_text(statement + "\n", encoding="utf-8")
    result = _lint_imports(project)
    assert result.returncode == 1, result.stdout + result.stderr
    return result.stdout.partition("Broken contracts")[2]


@pytest.mark.parametrize("number", range(len(FORBIDDEN)), ids=[" ".join(each) for each in FORBIDDEN])
def test_a_forbidden_import_is_found(number: int, found: str) -> None:
    importer, statement = FORBIDDEN[number]
    module = f"{importer.replace('/', '.')}.planted_{number}"
    imported = statement.splitlines()[-1].split()[1]
    assert f"{module} -> {imported.partition('.')[0]}" in found, found


def _empty_copy(directory: Path) -> None:
    """All modules of the product, with nothing in them: contracts name modules that must be there."""
    for folder in FOLDERS:
        for path in (PROJECT / folder).rglob("*.py"):
            copy = directory / path.relative_to(PROJECT / folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.touch()
