"""The wheel and the sdist as a release has them, and environments into which they are installed."""

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
_SECONDS_MAX = 390


@dataclass(frozen=True, slots=True)
class ReleaseFiles:
    """What `hatchling build` made of a folder of sources."""

    wheel: Path
    sdist: Path


def build(target: Path, sources: Path = PROJECT) -> ReleaseFiles:
    """Build both."""
    ran([sys.executable, "-m", "hatchling", "build", "--directory", str(target)], cwd=sources)
    (wheel,), (sdist,) = target.glob("*.whl"), target.glob("*.tar.gz")
    return ReleaseFiles(wheel, sdist)


def with_version(wheel: Path, version: str, folder: Path) -> Path:
    """The same wheel under another version, as a later or an earlier release."""
    folder.mkdir(exist_ok=True)
    before = wheel.name.split("-")[1]
    made = folder / wheel.name.replace(f"-{before}-", f"-{version}-")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(made, "w") as new:
        for item in old.infolist():
            data = old.read(item)
            name = item.filename.replace(
                f"memory_crystal-{before}.dist-info", f"memory_crystal-{version}.dist-info"
            )
            if name.endswith(".dist-info/METADATA"):
                data = data.replace(f"\nVersion: {before}\n".encode(), f"\nVersion: {version}\n".encode(), 1)
            if name.endswith(".dist-info/RECORD"):
                lines = data.decode().replace(f"-{before}.dist-info", f"-{version}.dist-info").splitlines()
                data = "".join(f"{line.split(',')[0]},,\n" for line in lines).encode()
            new.writestr(name, data)
    return made


def offline_environment(folder: Path) -> Path:
    """A new environment with pip and links to the packages of this one, but for Crystal. Needs no index. Returns its Python."""
    ran([sys.executable, "-m", "venv", str(folder)])
    (site,) = folder.glob("lib/python*/site-packages")
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        target = site / package.name
        if "memory_crystal" not in package.name and not target.exists():
            target.symlink_to(package)
    return folder / "bin" / "python"


def tool(name: str) -> str:
    """`uv` or `pipx`, beside this Python or on the PATH; "" if it is not there."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name) or ""


def index_answers(folder: Path) -> bool:
    """Whether packages can be had: pip fetches a small one."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), "h11"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def ran(command: list[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """Run it. Returns its standard output; fails with what it said."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=_SECONDS_MAX,
        check=False,
        cwd=cwd,
        env=env,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout
