"""Making backups: while others write, on disks that fail, and never at the cost of anybody's files."""

import hashlib
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from crystal_core.inspection import open_unchanging
from crystal_mirror.operations import Remember, decode_operation
from crystal_node.base.errors import UsageError
from crystal_node.base.home import write_private
from crystal_node.device.device import opened
from crystal_node.safekeeping.backup.creation import BackedUp, Subject, back_up
from crystal_node.safekeeping.backup.keys import copy_keys
from crystal_node.safekeeping.backup.manifest import read_manifest
from crystal_node.safekeeping.backup.verification import open_journal, verify_backup
from tests.support.backups import backed_up
from tests.support.invited import settings_of
from tests.support.machine import Machine, transcript
from tests.support.recovery import home_bytes


def test_a_backup_holds_all_of_a_home_but_its_keys_and_nobody_else_can_read_it(
    lived: Machine, tmp_path: Path
) -> None:
    for place in ("memory/.env", "notes/.env"):
        (lived.home / place).write_text("OPENAI_API_KEY=sk-secret")
    (lived.home / "link").symlink_to("/etc/passwd")
    made = lived.call("backup", "--to", str(tmp_path / "destination"), "--json").json
    folder = Path(made["folder"])
    there = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {"home/config.json", "home/notes/plan.md", "home/notes/run.sh"} <= there
    assert {"home/memory/crystal.db", "home/state/state.db", "home/state/files.db"} <= there
    assert not any("secrets" in path or path.endswith((".env", "-wal", "-shm", "link")) for path in there)
    assert {each["path"] for each in made["left_out"]} == {"notes/.env", "link"}
    assert made["unsent"] == 1
    assert made["digest"] == lived.call("verify", "--json").json["digest"]
    for path in folder.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
    assert (folder / "home/notes/run.sh").stat().st_mode & 0o100
    with_keys = backed_up(lived, tmp_path / "destination", "--with-keys")
    assert (with_keys / "home/state/secrets/identity").stat().st_mode & 0o777 == 0o600
    told = lived.call("backup", "--to", str(tmp_path / "destination"), "--with-keys").out
    assert "KEYS ARE IN IT" in told


def test_no_keys_are_put_where_everybody_may_read(lived: Machine, tmp_path: Path) -> None:
    """A folder that stays open to others, as on a disk without modes."""
    (tmp_path / "home" / "state" / "secrets").mkdir(mode=0o755, parents=True)
    with pytest.raises(UsageError, match="lets everybody read"):
        copy_keys(settings_of(lived), tmp_path / "home")
    assert list((tmp_path / "home" / "state" / "secrets").iterdir()) == []


def test_a_backup_can_be_checked_without_crystal(lived: Machine, tmp_path: Path) -> None:
    folder = backed_up(lived, tmp_path / "destination")
    tool = shutil.which("sha256sum")
    if tool is None:
        pytest.skip("there is no sha256sum here")
    done = subprocess.run([tool, "--check", "--quiet", "SHA256SUMS"], cwd=folder, check=False)
    assert done.returncode == 0


def test_a_backup_is_never_written_to_by_reading_it(lived: Machine, tmp_path: Path) -> None:
    folder = backed_up(lived, tmp_path / "destination")
    before = home_bytes(folder)
    lived.call("backup", "list", "--to", str(tmp_path / "destination"))
    told = lived.call("backup", "verify", str(folder), "--json").json
    assert (told["ok"], told["digest_checked"]) == (True, True)
    assert home_bytes(folder) == before


def test_a_backup_is_one_moment_while_many_write(lived: Machine, tmp_path: Path) -> None:
    """The journal is never newer than the memory: what was accepted before is in the outbox or in the rows."""
    settings = settings_of(lived)
    (lived.home / "log.md").write_bytes(b"")
    ends = threading.Event()
    failures: list[BaseException] = []
    accepted = [0]

    def remember() -> None:
        try:
            number = 0
            while not ends.is_set():
                number += 1
                lived_in_thread.call("remember", f"Memory number {number} of the writer.")
                accepted[0] = number
                if not number % 3:
                    lived_in_thread.call("sync")
        except BaseException as error:  # noqa: BLE001  told by the test
            failures.append(error)

    def write_files() -> None:
        number = 0
        while not ends.is_set():
            number += 1
            with (lived.home / "log.md").open("ab") as file:
                file.write(b"%d\n" % number)
            write_private(lived.home / "notes" / "plan.md", b"%d " % number * 20_000)

    with opened(settings) as device:
        subject = Subject.of(device)
    lived_in_thread = _Processes(lived)
    threads = [threading.Thread(target=remember), threading.Thread(target=write_files)]
    for thread in threads:
        thread.start()
    try:
        made: list[tuple[int, BackedUp]] = []
        while accepted[0] < 7:
            made.append((accepted[0], back_up(settings, subject, tmp_path / "destination")))
    finally:
        ends.set()
        for thread in threads:
            thread.join()
    assert not failures
    assert len(made) > 2
    for before, each in made:
        there = _texts(each.folder)
        assert {f"Memory number {number} of the writer." for number in range(1, before + 1)} <= there
        assert verify_backup(each.folder, lambda _: subject.secret).problems == {}
        words = set((each.folder / "home/notes/plan.md").read_bytes().split())
        assert len(words) == 1 or words == {b"First", b"the", b"roof."}, "replaced whole, so copied whole"
    assert lived.call("verify", "--json").json["ok"] is True


def _texts(folder: Path) -> set[str]:
    """What a backup holds in its rows and in its outbox."""
    memory = open_unchanging(folder / "home" / "memory" / "crystal.db")
    found = {str(text) for (text,) in memory.execute("SELECT text FROM chunks WHERE provisional = 0")}
    memory.close()
    journal = open_journal(folder / "home" / "state" / "state.db")
    for name in journal.names():
        row = journal.row(name.incarnation, name.sequence)
        operation = decode_operation(row.operation) if row is not None else None
        found |= {operation.text} if isinstance(operation, Remember) else set[str]()
    journal.close()
    return found


class _Processes:
    """`Machine.call` patches this process: beside other threads it must not."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def call(self, *arguments: str) -> None:
        self._machine.run(*arguments)


@pytest.mark.parametrize(
    "place",
    [
        "home/notes/plan.md",
        "home/memory/crystal.db",
        "home/state/state.db",
        "home/state/files.db",
        "home/config.json",
        "manifest.json",
        "SHA256SUMS",
    ],
)
def test_a_flipped_bit_is_found_and_its_file_named(lived: Machine, tmp_path: Path, place: str) -> None:
    folder = backed_up(lived, tmp_path / "destination")
    path = folder / place
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    found = lived.call("backup", "verify", str(folder), "--json", check=False)
    assert found.code == 8
    assert place in found.error["error"]
    path.unlink()
    found = lived.call("backup", "verify", str(folder), "--json", check=False)
    assert found.code == 8
    assert path.name in found.error["error"]


def test_a_forget_names_the_backups_that_still_hold_the_text(lived: Machine, tmp_path: Path) -> None:
    lived.call("backup", "setup", "--to", str(tmp_path / "destination"))
    before = Path(lived.call("backup", "--json").json["folder"]).name
    found = lived.call("search", "--json", "boiler serviced in October").json["results"][0]
    lived.call("forget", str(found["id"]))
    lived.call("sync")
    after = Path(lived.call("backup", "--json").json["folder"]).name
    told = lived.call("forget", "--report").out
    assert before in told
    assert after not in told


def test_a_manifest_that_names_what_lies_elsewhere_is_refused(lived: Machine, tmp_path: Path) -> None:
    folder = backed_up(lived, tmp_path / "destination")
    manifest = read_manifest(folder)
    for path in ("../../escaped", "/tmp/escaped", "notes/../../escaped", "state/sync.lock", ".crystal-root"):
        _forge(folder, path)
        machine = Machine(tmp_path / f"fresh-{hashlib.sha256(path.encode()).hexdigest()[:6]}")
        machine.root.mkdir()
        refused = machine.call("backup", "restore", str(folder), "--json", "--yes", check=False)
        assert refused.code == 8, (path, refused.err)
        assert not machine.home.exists()
    assert manifest.items


def _forge(folder: Path, path: str) -> None:
    """A manifest that is consistent in itself, with a file of that name."""
    import msgspec

    from crystal_node.safekeeping.backup.manifest import BackupManifest, encoded, sums
    from crystal_node.safekeeping.file_copy import CopiedFile

    manifest = msgspec.json.decode((folder / "manifest.json").read_bytes(), type=BackupManifest)
    kept = tuple(item for item in manifest.items if item.path in _REAL)
    extra = folder / "home" / path
    data = b"x"
    if not extra.exists() and ".." not in path and not path.startswith("/"):
        extra.write_bytes(data)
    item = CopiedFile(path, 1, hashlib.sha256(data).hexdigest())
    forged = msgspec.structs.replace(manifest, items=(*kept, item))
    (folder / "manifest.json").write_bytes(encoded(forged))
    (folder / "SHA256SUMS").write_bytes(sums(forged, encoded(forged)))


_REAL = {"config.json", "memory/crystal.db", "state/state.db", "state/files.db", "notes/plan.md"}


def test_conversations_that_wait_to_be_taken_in_are_in_the_backup(lived: Machine, tmp_path: Path) -> None:
    transcript(lived, "What was said here is recorded first.")
    lived.call("capture")
    waiting = ("drop/helper/one.md", "drop/state/one.md", "staging/logs/transcripts/one.jsonl")
    for place in waiting:
        (lived.home / place).parent.mkdir(parents=True)
        (lived.home / place).write_text("waiting\n")
    folder = backed_up(lived, tmp_path / "destination")
    for place in waiting:
        assert (folder / "home" / place).is_file()


def test_a_name_that_not_every_system_takes_is_backed_up_all_the_same(lived: Machine, tmp_path: Path) -> None:
    for name in ("what: now?.md", "con.md", "ends with a dot."):
        (lived.home / "notes" / name).write_text(name)
    folder = backed_up(lived, tmp_path / "destination", "--with-keys")
    new = Machine(tmp_path / "new")
    new.root.mkdir()
    shutil.rmtree(lived.home)
    new.call("backup", "restore", str(folder), "--yes")
    for name in ("what: now?.md", "con.md", "ends with a dot."):
        assert (new.home / "notes" / name).read_text() == name


def test_what_lies_in_folders_of_such_names_is_backed_up_too(lived: Machine, tmp_path: Path) -> None:
    """Else it would be in no backup, and each backup would take it for a file that cannot be read, and delete no older one."""
    places = ("notes/Q: why?/deep. /one.md", "drop/helper /two.md", "con/.env")
    for place in places:
        (lived.home / place).parent.mkdir(parents=True)
        (lived.home / place).write_text(place)
    (lived.home / "notes" / "Q: why?" / "link").symlink_to("/etc")
    destination = tmp_path / "destination"
    older = backed_up(lived, destination)
    made = lived.call("backup", "--to", str(destination), "--keep", "1", "--with-keys", "--json").json
    assert {each["path"] for each in made["left_out"]} == {"notes/Q: why?/link"}
    assert made["deleted"] == [str(older)]
    plain = backed_up(lived, tmp_path / "plain")
    assert not list(plain.rglob(".env"))
    shutil.rmtree(lived.home)
    new = Machine(tmp_path / "new")
    new.root.mkdir()
    new.call("backup", "restore", made["folder"], "--yes")
    for place in places:
        assert (new.home / place).read_text() == place


def test_keys_come_back_closed_or_from_the_keyring_as_files(
    lived: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    word = tmp_path / "word"
    word.write_text("a passphrase of some length\n")
    word.chmod(0o600)
    lived.call("keys", "passphrase", CRYSTAL_PASSPHRASE_FILE=str(word))
    sealed = lived.call(
        "backup",
        "--to",
        str(tmp_path / "destination"),
        "--with-keys",
        "--json",
        CRYSTAL_PASSPHRASE_FILE=str(word),
    ).json
    assert sealed["keys"] == "sealed"
    new = Machine(tmp_path / "new")
    new.root.mkdir()
    shutil.copytree(lived.home, tmp_path / "kept", symlinks=True)
    new.call("backup", "restore", sealed["folder"], "--yes", CRYSTAL_PASSPHRASE_FILE=str(word))
    new.call("sync", CRYSTAL_PASSPHRASE_FILE=str(word))
    refused = new.call("sync", check=False)
    assert refused.code != 0, "the passphrase closes them there, too"
    keyring = {
        "PYTHON_KEYRING_BACKEND": "tests.support.kept_keyring.Keyring",
        "KEPT_KEYRING": str(tmp_path / "keyring.json"),
        "CRYSTAL_KEY_STORE": "auto",
    }
    lived.call("keys", "passphrase", "--remove", CRYSTAL_PASSPHRASE_FILE=str(word))
    lived.extra |= keyring
    lived.call("keys", "move", "--to", "keyring")
    without, plain = (
        lived.call("backup", "--to", str(tmp_path / "destination"), "--json", *more).json
        for more in ((), ("--with-keys",))
    )
    assert (without["keys"], plain["keys"]) == ("none", "plain")
    shutil.rmtree(lived.home)
    told = lived.call("backup", "restore", without["folder"], "--json").json
    assert told["keys"] == "keyring", "this home's keys are in this machine's keyring"
    lived.call("sync")
    other = Machine(tmp_path / "other")
    other.root.mkdir()
    assert other.call("backup", "restore", plain["folder"], "--json", "--yes").json["keys"] == "file"
    other.call("sync")
