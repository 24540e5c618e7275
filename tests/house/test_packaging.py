"""What is built for users holds everything that they need and nothing else."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "crystal_crypto",
    "crystal_mirror",
    "crystal_core",
    "crystal_relay",
    "crystal_prototype",
    "crystal_node",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    target = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(target)],
        cwd=PROJECT,
        check=True,
        capture_output=True,
        timeout=100,
    )
    (built,) = target.glob("*.whl")
    return zipfile.ZipFile(built)


def test_the_wheel_holds_the_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith((".dist-info", ".data"))} == PACKAGES


def test_the_manual_pages_are_installed_where_systems_look(wheel: zipfile.ZipFile) -> None:
    data = {name.split(".data/")[1] for name in wheel.namelist() if ".data/" in name}
    assert data == {"data/share/man/man1/crystal.1", "data/share/man/man1/crystal-relay.1"}


def test_every_package_is_typed(wheel: zipfile.ZipFile) -> None:
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(wheel.namelist())


def test_the_embedding_model_and_its_licence_travel_with_the_package(wheel: zipfile.ZipFile) -> None:
    model = [name for name in wheel.namelist() if name.startswith("crystal_core/embed/model/")]
    assert sum(wheel.getinfo(name).file_size for name in model) > 20_000_000
    assert any(name.endswith("weights.bin") for name in model)
    assert any("LICENSE" in name.upper() for name in model)


def test_every_module_of_the_sources_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    sources = {
        str(path.relative_to(PROJECT / folder))
        for folder in ("crypto", "mirror", "core", "relay", "node")
        for path in (PROJECT / folder).glob("crystal_*/**/*.py")
    }
    assert sources <= set(wheel.namelist())


def test_the_web_page_travels_with_the_package(wheel: zipfile.ZipFile) -> None:
    web = PROJECT / "node" / "crystal_node" / "surfaces" / "gateway" / "web"
    files = {str(path.relative_to(web)) for path in web.rglob("*") if path.is_file()}
    assert {"index.html", "style.css", "app.js", "icon.svg"} <= files
    assert {f"crystal_node/surfaces/gateway/web/{name}" for name in files} <= set(wheel.namelist())


def test_a_device_does_not_install_the_relays_server(wheel: zipfile.ZipFile) -> None:
    (metadata,) = [name for name in wheel.namelist() if name.endswith("METADATA")]
    required = [
        line.removeprefix("Requires-Dist: ")
        for line in wheel.read(metadata).decode().splitlines()
        if line.startswith("Requires-Dist: ")
    ]
    always = [requirement for requirement in required if "extra ==" not in requirement]
    assert not [
        requirement
        for requirement in always
        if requirement.startswith(("boto3", "prometheus", "pytest", "uvicorn["))
    ]
    assert any(
        requirement.startswith("uvicorn[") and "extra == 'relay'" in requirement for requirement in required
    )
