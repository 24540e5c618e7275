"""Install the S3 servers that are not in .venv: Swift into .venv-swift, Ceph's object gateway from the system's packages.

Part of `make test`. What is there already is left alone, and what cannot be installed here is said and left out: the tests that
need it are skipped then, with a reason that names it. Exit code 0 when both are there, 1 when one is missing.
System packages are only installed as root on Debian and its relatives. None of their services is started, now or later: the
tests run the programs themselves.
"""

import contextlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
SWIFT = PROJECT / ".venv-swift"
SWIFT_PINS = PROJECT / "requirements" / "swift.txt"
# Holds the pins that the environment was made from. The last thing to be written.
SWIFT_DONE = SWIFT / "installed"

CEPH_PROGRAMS = ("ceph-mon", "ceph-osd", "radosgw")
CEPH_PACKAGES = ("radosgw", "ceph-mon", "ceph-osd")
CEPH_SERVICES = (
    "ceph-crash.service",
    "ceph-mon.target",
    "ceph-osd.target",
    "ceph-radosgw.target",
    "ceph.target",
)
SERVICES = Path("/lib/systemd/system")

# Debian's own switch: while this file says 101, no package starts a service.
POLICY = Path("/usr/sbin/policy-rc.d")
INSTALL_SECONDS_MAX = 600.0


def main() -> int:
    missing = [
        name for name, there in (("Swift", have_swift()), ("Ceph's object gateway", have_ceph())) if not there
    ]
    for name in missing:
        print(f"{name} is not installed: the tests that run on it are skipped.", file=sys.stderr)
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


def have_ceph() -> bool:
    """Whether radosgw and what it needs is there, after an attempt to install it if that is ours to do."""
    if _has_ceph():
        return True
    if sys.platform != "linux" or shutil.which("apt-get") is None or not _is_debian():
        print(
            f"Not Debian or Ubuntu, so nothing is installed here. Packages there: {' '.join(CEPH_PACKAGES)}"
        )
        return False
    if os.geteuid() != 0:
        print(
            f"Not root. For the tests on Ceph: sudo apt-get install --no-install-recommends {' '.join(CEPH_PACKAGES)}"
        )
        return False
    print(f"Installing {' '.join(CEPH_PACKAGES)} for the tests, with apt-get", flush=True)
    apt = ("apt-get", "--quiet=2", "--option", "DPkg::Lock::Timeout=120")
    # A machine that runs Ceph in earnest keeps what it has.
    new_services = [name for name in CEPH_SERVICES if not (SERVICES / name).exists()]
    with _no_service_starts():
        # An update that fails for one source need not matter: the installation shows it.
        _succeeds(*apt, "update")
        done = _succeeds(*apt, "install", "--yes", "--no-install-recommends", *CEPH_PACKAGES)
    new_services = [name for name in new_services if (SERVICES / name).exists()]
    if new_services and shutil.which("systemctl") is not None:
        _succeeds("systemctl", "--quiet", "disable", *new_services)
    return done and _has_ceph()


def _has_ceph() -> bool:
    return all(shutil.which(program) is not None for program in CEPH_PROGRAMS)


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
