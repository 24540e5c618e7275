"""A process with keys in memory leaves no core file when it crashes, and no other program of its user reads its memory."""

import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from crystal_node.base.locking import is_held
from tests.node.device.test_keys import until
from tests.support.machine import Machine, Vault

_PATTERN = Path("/proc/sys/kernel/core_pattern")

_CRASH = """
import os, sys
from crystal_node.surfaces.cli import main
from crystal_node.device.device import opened
from crystal_node.base.settings import resolve
if sys.argv[1] == "without keys":
    resolve()
    os.abort()
if sys.argv[1] == "command":
    assert main(["status"]) == 0
with opened(resolve()) as device:
    print("identity", len(device.identity.to_bytes()), flush=True)
    os.abort()
"""


def _allow_cores() -> None:
    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (most, most))


def _crash(machine: Machine, folder: Path, kind: str) -> list[Path]:
    """The core files that a crash leaves, in a process that could leave one."""
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", _CRASH, kind],
        env=machine.environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=_allow_cores,
    )
    assert done.returncode == -signal.SIGABRT, done.stderr
    assert ("identity 93" in done.stdout) is (kind != "without keys"), "whether it had its keys in memory"
    return list(folder.glob("core*"))


@pytest.fixture
def cores_are_files() -> None:
    if not _PATTERN.exists() or _PATTERN.read_text().strip() != "core":
        pytest.skip("this system does not leave core files in the working directory")
    if not resource.getrlimit(resource.RLIMIT_CORE)[1]:
        pytest.skip("this process may not leave core files, for good")


@pytest.mark.usefixtures("cores_are_files")
def test_a_crash_with_keys_in_memory_leaves_no_core(vault: Vault, tmp_path: Path) -> None:
    without = _crash(vault.core, tmp_path / "without", "without keys")
    assert without, "the same crash leaves a core where nothing forbids it"
    for core in without:
        core.unlink()
    assert _crash(vault.core, tmp_path / "command", "command") == []
    assert _crash(vault.core, tmp_path / "library", "library") == []


def test_a_running_watcher_can_leave_no_core_and_cannot_allow_itself_one(
    vault: Vault, tmp_path: Path
) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "crystal_node", "sync", "--watch"],
        env=vault.core.environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=_allow_cores,  # noqa: PLW1509  it makes two calls of the system and takes no lock
    )
    try:
        until(lambda: is_held(vault.core.home / "state" / "watch.lock"))
        assert resource.prlimit(process.pid, resource.RLIMIT_CORE) == (0, 0)
        process.send_signal(signal.SIGABRT)
        assert process.wait(30) == -signal.SIGABRT
    finally:
        process.kill()
        process.wait()
    assert list(folder.glob("core*")) == []


_UNPRIVILEGED = (
    ("setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace") if not os.geteuid() else ()
)
"""Root traces every process by a right of its own. Without that right it is to its processes what any user is to theirs."""

_HOLD = """
import sys
from crystal_node.device.device import opened
from crystal_node.base.settings import resolve
if sys.argv[1] == "with keys":
    with opened(resolve()) as device:
        assert device.identity.to_bytes()
        print("ready", flush=True)
        sys.stdin.read()
else:
    resolve()
    print("ready", flush=True)
    sys.stdin.read()
"""

_LOOK = """
import ctypes, sys
pid = int(sys.argv[1])
try:
    with open(f"/proc/{pid}/mem", "rb"):
        print("mem")
except PermissionError:
    pass
PTRACE_SEIZE = 0x4206
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
if libc.ptrace(PTRACE_SEIZE, pid, None, None) == 0:
    print("ptrace")
"""


_EMBED = """
import sys
from crystal_node.models.embedding.worker import WorkerEmbedder
with WorkerEmbedder(threads=1) as embedder:
    embedder.embed_query("ready")
    print(embedder.process.pid, flush=True)
    sys.stdin.read()
"""

_READ = """
import sys
import msgspec
from crystal_node.base.settings import resolve
from crystal_node.capture.read_ahead import ReadAhead
from crystal_node.capture.reading import ReadRequest
from crystal_node.device.privacy import Privacy
with ReadAhead(resolve(), [], 1) as ahead:
    child = ahead._children[0]
    request = ReadRequest("claude-code", b"/none", None, "a", -1, Privacy(), 0)
    assert child.ask(msgspec.msgpack.encode(request))
    assert child.answer() is None and child.lives
    print(child.process.pid, flush=True)
    sys.stdin.read()
"""

_EXTRACT = """
import sys
from crystal_core.cutting import PassageKind
from crystal_node.derive.sources.extraction import Extractor
with Extractor() as extractor:
    extractor.extract(PassageKind.HTML, b"<p>a page</p>")
    print(extractor._child.pid, flush=True)
    sys.stdin.read()
"""


def _seen(machine: Machine, code: str, *arguments: str) -> list[str]:
    """What another program of the same user can see of a process: the one whose number the code prints, or the code's own if
    it prints "ready"."""
    process = subprocess.Popen(
        [*_UNPRIVILEGED, sys.executable, "-c", code, *arguments],
        env=machine.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        named = process.stdout.readline().strip()
        number = str(process.pid) if named == "ready" else named
        looking = [*_UNPRIVILEGED, sys.executable, "-c", _LOOK, number]
        return subprocess.run(looking, capture_output=True, text=True, timeout=60, check=True).stdout.split()
    finally:
        process.communicate("")


_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="no other system offers it")
_SETPRIV = pytest.mark.skipif(
    shutil.which("setpriv") is None, reason="root cannot give up its right to trace without it"
)


@_LINUX
@_SETPRIV
def test_no_other_program_of_the_user_reads_the_memory_of_a_process_with_keys(vault: Vault) -> None:
    assert "mem" in _seen(vault.core, _HOLD, "without keys"), (
        "any program of the user reads it where nothing forbids it"
    )
    assert _seen(vault.core, _HOLD, "with keys") == []


@_LINUX
@_SETPRIV
@pytest.mark.parametrize(
    "code",
    [_EMBED, _READ, _EXTRACT],
    ids=["the embedding model's", "a transcripts' reader", "a document's reader"],
)
def test_no_other_program_of_the_user_reads_the_memory_of_a_process_that_gets_texts(
    vault: Vault, code: str
) -> None:
    assert _seen(vault.core, code) == []
