"""Runs a command under the restrictions of a systemd unit, by the same means of the kernel and without systemd.

`unshare --mount --ipc [--map-root-user] python -m tests.support.unit_sandbox UNIT STATE_DIRECTORY COMMAND…`

Applied: the user (as root: 65534), no capabilities, no new privileges, a read-only view of every file system but the state
directory and a `/tmp` of its own, homes and other processes hidden, no devices but the harmless ones, nothing executed from
outside the unit's places, only the system calls and the address families that the unit leaves, no memory that is both
writable and executable. Not applied: cgroup settings (memory, tasks, devices, IP addresses), PrivateUsers, the lock on
the personality.
"""

import ctypes
import errno
import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.support.systemd_unit import Unit

NOBODY = 65_534
_PR_SET_NO_NEW_PRIVS, _PR_CAPBSET_DROP, _PR_SET_MDWE = 38, 24, 65
_CAPABILITIES = 64
_ALLOW = 0x7FFF_0000
_ERRNO = 0x0005_0000
_EQUAL = 4
_FAMILIES = {"AF_UNIX": socket.AF_UNIX, "AF_INET": socket.AF_INET, "AF_INET6": socket.AF_INET6}
_DEVICES = ("null", "zero", "full", "random", "urandom")


def sandboxed(unit: Path, state: Path, *command: str) -> list[str]:
    """The command line that runs `command` under a unit; to be started in the project's folder."""
    here = (sys.executable, "-m", "tests.support.unit_sandbox")
    return ["unshare", "--mount", "--ipc", *here, str(unit), str(state), *command]


def hide_homes(hold: Path) -> None:
    """Put empty folders over the homes. The Python of the tests may lie in one; only that comes along. `hold` is ours."""
    homes = [Path("/home"), Path("/root"), Path("/run/user")]
    kept = [Path(sys.base_prefix), Path(sys.prefix)]
    for number, place in enumerate(kept):
        (hold / str(number)).mkdir(parents=True)
        run("mount", "--rbind", str(place), str(hold / str(number)))
    for home in homes:
        if home.is_dir():
            run("mount", "-t", "tmpfs", "-o", "mode=0755,size=1m", "tmpfs", str(home))
    for number, place in enumerate(kept):
        if any(place.is_relative_to(home) for home in homes):
            place.mkdir(parents=True)
            run("mount", "--rbind", str(hold / str(number)), str(place))


def read_only_but(*writable: Path, executable: tuple[Path, ...] = (Path("/"),)) -> None:
    """Remount everything read-only in this process's mount namespace, but these places, which are mounts.

    Only below `executable`, which are mounts as well, may files be executed.
    """
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        place = line.split()[1]
        # The kernel's own trees are not files of anybody; systemd leaves them to other settings.
        if place.startswith(("/proc", "/sys", "/dev/")):
            continue
        writing = "rw" if Path(place) in writable else "ro"
        execution = "exec" if any(Path(place).is_relative_to(one) for one in executable) else "noexec"
        # A mount that another one covers cannot be reached, and need not be.
        subprocess.run(
            ["mount", "-o", f"remount,bind,{writing},{execution}", place], capture_output=True, check=False
        )
    for one in writable:
        (one / "probe").touch()
        (one / "probe").unlink()


def run(*command: str) -> None:
    """Run a command of the system that has to succeed."""
    subprocess.run(command, check=True)


class _Compare(ctypes.Structure):
    _fields_ = (("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


def main() -> None:
    unit_path, state, *command = sys.argv[1:]
    unit = Unit(Path(unit_path))
    # Read while everything is still there: systemd-analyze runs outside the sandbox.
    calls = unit.system_calls()
    rlimits = unit.one("LimitNOFILE")
    _hide(unit, Path(state))
    _give_up(unit)
    os.umask(int(unit.one("UMask"), 8))
    os.chdir("/")
    import resource

    hard = min(int(rlimits), resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    _filter_calls(unit, calls)
    os.execv(command[0], command)  # noqa: S606 - there is no shell in between, and that is meant


def _hide(unit: Unit, state: Path) -> None:
    """The mounts, in this process's own mount namespace."""
    assert unit.one("ProtectSystem") == "strict"
    hold = state.parent / "hold"
    run("mount", "--make-rprivate", "/")
    if unit.on("ProtectHome"):
        hide_homes(hold)
    if unit.on("PrivateDevices"):
        _private_devices(hold)
    run("mount", "--rbind", str(state), str(state))
    own_tmp = state.parent / "tmp"
    own_tmp.mkdir()
    own_tmp.chmod(0o1777)
    run("mount", "--rbind", str(own_tmp), str(own_tmp))
    assert unit.one("NoExecPaths") == "/"
    named = [Path(word.lstrip("-")).resolve() for word in unit.one("ExecPaths").split()]
    # Where the program and its Python are installed, in place of /opt/crystal-relay.
    executable = {place for place in named if place.is_dir()} | {Path(sys.prefix), Path(sys.base_prefix)}
    for place in executable:
        run("mount", "--rbind", str(place), str(place))
    if unit.one("ProtectProc") == "invisible" and unit.one("ProcSubset") == "pid":
        run("mount", "-t", "proc", "-o", "hidepid=invisible,subset=pid", "proc", "/proc")
    read_only_but(state, own_tmp, executable=tuple(executable))


def _private_devices(hold: Path) -> None:
    for name in _DEVICES:
        (hold / name).touch()
        run("mount", "--bind", f"/dev/{name}", str(hold / name))
    run("mount", "-t", "tmpfs", "-o", "mode=0755,size=1m", "tmpfs", "/dev")
    for name in _DEVICES:
        Path("/dev", name).touch()
        run("mount", "--bind", str(hold / name), f"/dev/{name}")
    Path("/dev/shm").mkdir()


def _give_up(unit: Unit) -> None:
    """User, capabilities, privileges, executable memory."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert unit.all("CapabilityBoundingSet") == unit.all("AmbientCapabilities") == []
    for capability in range(_CAPABILITIES):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    if _is_real_root():
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    if unit.on("NoNewPrivileges"):
        _must(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if unit.on("MemoryDenyWriteExecute"):
        # Linux 6.3; an older kernel runs the rest.
        assert libc.prctl(_PR_SET_MDWE, 1, 0, 0, 0) == 0 or ctypes.get_errno() == errno.EINVAL


def _filter_calls(unit: Unit, calls: set[str]) -> None:
    """The unit's system calls and address families, by libseccomp, as systemd does it."""
    seccomp = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    seccomp.seccomp_init.restype = ctypes.c_void_p
    refused = getattr(errno, unit.one("SystemCallErrorNumber"))
    context = ctypes.c_void_p(seccomp.seccomp_init(_ERRNO | refused))
    assert context.value
    # With RestrictNamespaces systemd makes clone3 unknown, because its flags cannot be looked at.
    special = {"socket", "clone3", "unshare", "setns"} if unit.on("RestrictNamespaces") else {"socket"}
    for name in sorted(calls - special):
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:
            _must(seccomp.seccomp_rule_add_array(context, _ALLOW, number, 0, None))
    unknown = seccomp.seccomp_syscall_resolve_name(b"clone3")
    _must(seccomp.seccomp_rule_add_array(context, _ERRNO | errno.ENOSYS, unknown, 0, None))
    number = seccomp.seccomp_syscall_resolve_name(b"socket")
    for family in unit.one("RestrictAddressFamilies").split():
        compare = (_Compare * 1)(_Compare(0, _EQUAL, _FAMILIES[family], 0))
        _must(seccomp.seccomp_rule_add_array(context, _ALLOW, number, 1, compare))
    _must(seccomp.seccomp_load(context))


def _is_real_root() -> bool:
    """Root outside a user namespace as well."""
    inside, outside, _ = Path("/proc/self/uid_map").read_text().split()[:3]
    return os.geteuid() == 0 and inside == outside == "0"


def _must(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno() or -result, "a restriction was refused")


if __name__ == "__main__":
    main()
