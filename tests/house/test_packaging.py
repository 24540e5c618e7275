"""What is built for users holds everything that they need and nothing else."""

import ast
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


def test_what_a_device_imports_is_among_its_dependencies() -> None:
    unmet = _imported("crypto", "mirror", "core", "node") - _provided(*_DEVICE_EXTRAS)
    assert not unmet, "a module that only developers have: declare its distribution, or use one that is there"


def test_what_the_relay_imports_is_among_its_dependencies() -> None:
    assert not _imported("relay") - _provided("relay")


_DEVICE_EXTRAS = ("documents", "multilingual", "sentence-transformers")
_OWN_FROM_3_14 = {"compression"}


def _imported(*folders: str) -> set[str]:
    """The top-level modules from elsewhere that any module of these folders names in an import, of this system's."""
    found: set[str] = set()
    for folder in folders:
        for path in (PROJECT / folder).glob("crystal_*/**/*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    found.update(alias.name.split(".")[0] for alias in node.names)
                elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                    found.add(node.module.split(".")[0])
    return found - sys.stdlib_module_names - PACKAGES - _OWN_FROM_3_14


def _provided(*extras: str) -> set[str]:
    """The top-level modules of the distributions that `pip install crystal[extras]` brings, and the names of those that other
    systems need and this one has not."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(each for extra in extras for each in project["optional-dependencies"][extra]),
    ]
    names: set[str] = set()
    _collect((Requirement(each) for each in wanted), names)
    modules = {
        module
        for module, distributions in packages_distributions().items()
        if names & {canonicalize_name(each) for each in distributions}
    }
    return modules | {name.replace("-", "_") for name in names}


def _collect(requirements: Iterable[Requirement], names: set[str]) -> None:
    for requirement in requirements:
        name = canonicalize_name(requirement.name)
        if name in names and not requirement.extras:
            continue
        names.add(name)
        try:
            further = [Requirement(each) for each in requires(name) or ()]
        except PackageNotFoundError:
            continue
        _collect(
            (
                each
                for each in further
                if each.marker is None
                or any(each.marker.evaluate({"extra": extra}) for extra in ("", *requirement.extras))
            ),
            names,
        )
