"""The distribution of the relay alone: it has what a relay needs, nothing of a device's, and works by itself."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
import zipfile
from collections.abc import Generator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import httpx
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.release_files import PROJECT, ran
from tests.support.s3_servers import S3Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
RELAY = PROJECT / "relay"
MEGABYTES_MAX = 90
"""Files of a relay's environment on Linux x86-64, without bytecode: 82 as of this writing (deploy/README.md)."""
START_SECONDS_MAX = 120.0
DEVICE_ONLY = {"crystal_node", "crystal_core", "crystal_mirror"}
OF_A_DEVICE = DEVICE_ONLY | {"keyring", "mcp", "numpy", "onnxruntime", "pydantic", "sqlite_vec"}


def project(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    return document


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("relay-wheel")
    ran(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(target)],
        cwd=RELAY,
    )
    (built,) = target.glob("crystal_relay-*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that has the packages of the relay's lock, and the wheel. No index is asked. Returns its folder of commands."""
    folder = tmp_path_factory.mktemp("relay") / "venv"
    ran([sys.executable, "-m", "venv", "--without-pip", str(folder)])
    (site,) = folder.glob("lib/python*/site-packages")
    for name in locked():
        installed = distribution(name)
        for top in {file.parts[0] for file in installed.files or () if file.parts[0] != ".."}:
            if top != "__pycache__":
                (site / top).symlink_to(Path(str(installed.locate_file(top))))
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    ran([*pip, "install", "--no-index", "--no-compile", str(wheel)])
    return folder / "bin"


def locked() -> list[str]:
    """The packages of requirements/relay.txt that this system needs."""
    lines = (PROJECT / "requirements" / "relay.txt").read_text(encoding="utf-8").splitlines()
    wanted = [Requirement(line.rstrip("\\")) for line in lines if re.match(r"\w", line)]
    return [each.name for each in wanted if each.marker is None or each.marker.evaluate()]


# --- the wheel ---


def test_it_has_every_module_of_the_relay_and_none_of_a_device(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {str(path.relative_to(RELAY)) for path in (RELAY / "crystal_relay").rglob("*.py")}
    assert len(sources) > 100
    assert sources <= names
    assert {
        "crystal_relay/py.typed",
        "crystal_prototype/relay/routes.py",
        "crystal_prototype/cli/v1.py",
    } <= names
    assert not DEVICE_ONLY & {name.split("/")[0] for name in names}
    assert [name for name in names if name.startswith("crystal_crypto/")] == [
        name for name in names if name in ("crystal_crypto/__init__.py", "crystal_crypto/certificate.py")
    ]
    assert not [
        name for name in names if name.startswith(("crystal_prototype/home", "crystal_prototype/bridge"))
    ]


def test_it_has_the_command_its_manual_page_and_the_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        texts = {
            name.split("/", 1)[1]: archive.read(name).decode()
            for name in archive.namelist()
            if "-info/" in name
        }
        data = [name.split(".data/")[1] for name in archive.namelist() if ".data/" in name]
    assert texts["entry_points.txt"].split() == [
        "[console_scripts]",
        "crystal-relay",
        "=",
        "crystal_relay.cli:main",
    ]
    assert texts["licenses/LICENSE"] == (PROJECT / "LICENSE").read_text(encoding="utf-8")
    assert data == ["data/share/man/man1/crystal-relay.1"]


def test_it_says_the_same_of_itself_as_the_whole_project() -> None:
    relay, whole = project(RELAY / "pyproject.toml"), project(PROJECT / "pyproject.toml")
    assert {name: relay[name] for name in ("version", "license", "requires-python")} == {
        name: whole[name] for name in ("version", "license", "requires-python")
    }
    assert relay["scripts"].items() <= whole["scripts"].items()
    lines = [*whole["dependencies"], *whole["optional-dependencies"]["relay"]]
    bounds = {(canonicalize_name(each.name), str(each.specifier)) for each in map(Requirement, lines)}
    bounds.add((canonicalize_name("uvloop"), ">=0.15"))  # in the whole project by `uvicorn[standard]`
    own = {
        (canonicalize_name(each.name), str(each.specifier))
        for each in map(Requirement, relay["dependencies"])
    }
    assert own <= bounds


# --- installed ---


def test_its_packages_are_enough_for_every_module(environment: Path) -> None:
    code = (
        "import importlib, pkgutil, crystal_relay, crystal_prototype\n"
        "for package in (crystal_relay, crystal_prototype):\n"
        "    for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        if not module.name.endswith('__main__'):\n"
        "            importlib.import_module(module.name)\n"
        "print(crystal_relay.__file__)\n"
    )
    said = ran([str(environment / "python"), "-I", "-c", code]).strip()
    assert said.startswith(str(environment.parent))
    code = f"import importlib.util as u; print([name for name in {sorted(OF_A_DEVICE)} if u.find_spec(name)])"
    assert ran([str(environment / "python"), "-I", "-c", code]) == "[]\n"


def test_it_takes_the_room_that_the_page_says(environment: Path) -> None:
    (site,) = environment.parent.glob("lib/python*/site-packages")
    files = [
        Path(folder, name)
        for folder, _, names in os.walk(site, followlinks=True)
        for name in names
        if not name.endswith(".pyc")
    ]
    assert 40 < sum(path.stat().st_size for path in files) / 1e6 < MEGABYTES_MAX


@contextlib.contextmanager
def serving(environment: Path, folder: Path, *options: str) -> Generator[str]:
    ready = folder / "ready"
    variables = {"PATH": os.environ["PATH"], "HOME": str(folder), "CRYSTAL_RELAY_METRICS_TOKEN": "m" * 20}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                str(environment / "crystal-relay"),
                "serve",
                "--port",
                "0",
                "--ready-file",
                str(ready),
                *options,
            ],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not ready.exists():
            said = (folder / "log").read_text(errors="replace")
            assert process.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.05)
        yield str(json.loads(ready.read_text())["url"])
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0, (folder / "log").read_text(errors="replace")
    finally:
        process.kill()
        process.wait()


def test_it_serves_tells_its_version_and_counts(environment: Path, tmp_path: Path) -> None:
    version = project(RELAY / "pyproject.toml")["version"]
    assert ran([str(environment / "crystal-relay"), "--version"]) == f"crystal-relay {version}\n"
    with serving(environment, tmp_path, "--store", (tmp_path / "store").as_uri(), "--v1") as url:
        assert httpx.get(f"{url}/health", timeout=60).json()["version"] == version
        metrics = httpx.get(
            f"{url}/metrics", headers={"Authorization": "Bearer " + "m" * 20}, timeout=60
        ).text
        assert f'crystal_relay_info{{version="{version}"}} 1' in metrics


def test_it_makes_the_certificate_of_a_relay_with_an_address(environment: Path, tmp_path: Path) -> None:
    options = ("--store", (tmp_path / "store").as_uri(), "--tls", "--address", "127.0.0.1")
    with serving(environment, tmp_path, *options) as url:
        assert url.startswith("https://127.0.0.1:")


def test_it_works_on_a_bucket(environment: Path, moto_server: S3Server, tmp_path: Path) -> None:
    mine = moto_server.with_new_bucket()
    variables = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **mine.environment}
    place = ("--store", f"s3://{mine.bucket}/relay", "--s3-endpoint", mine.endpoint)
    said = json.loads(ran([str(environment / "crystal-relay"), "check", "--json", *place], env=variables))
    assert said["ok"] is True, said
