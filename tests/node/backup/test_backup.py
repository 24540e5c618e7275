"""Making backups: while others write, on disks that fail, and never at the cost of anybody's files."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from crystal_node.backup.making import Subject, back_up
from crystal_node.backup.manifest import read_manifest
from crystal_node.backup.verifying import verify_backup
from crystal_node.device import opened
from crystal_node.home import write_private
from tests.support.invited import settings_of
from tests.support.machine import Machine, Vault, transcript
from tests.support.recovery import home_bytes


@pytest.fixture
def lived(vault: Vault) -> Machine:
    """A Core with memories, files, and something that it has not sent."""
    core = vault.core
    core.call("remember", "The boiler is serviced in October.")
    (core.home / "notes").mkdir()
    (core.home / "notes" / "plan.md").write_text("First the roof.\n")
    script = core.home / "notes" / "run.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    core.call("sync")
    core.call("remember", "Recorded, and not sent yet.")
    return core


def _made(machine: Machine, shelf: Path, *more: str) -> Path:
    return Path(machine.call("backup", "--to", str(shelf), "--json", *more).json["folder"])


def test_a_backup_holds_all_of_a_home_but_its_keys_and_nobody_else_can_read_it(
    lived: Machine, tmp_path: Path
) -> None:
    for place in ("memory/.env", "notes/.env"):
        (lived.home / place).write_text("OPENAI_API_KEY=sk-secret")
    (lived.home / "link").symlink_to("/etc/passwd")
    made = lived.call("backup", "--to", str(tmp_path / "shelf"), "--json").json
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
    with_keys = _made(lived, tmp_path / "shelf", "--with-keys")
    assert (with_keys / "home/state/secrets/identity").stat().st_mode & 0o777 == 0o600
    told = lived.call("backup", "--to", str(tmp_path / "shelf"), "--with-keys").out
    assert "KEYS ARE IN IT" in told


def test_a_backup_can_be_checked_without_crystal(lived: Machine, tmp_path: Path) -> None:
    folder = _made(lived, tmp_path / "shelf")
    tool = shutil.which("sha256sum")
    if tool is None:
        pytest.skip("there is no sha256sum here")
    done = subprocess.run([tool, "--check", "--quiet", "SHA256SUMS"], cwd=folder, check=False)
    assert done.returncode == 0


def test_a_backup_is_never_written_to_by_reading_it(lived: Machine, tmp_path: Path) -> None:
    folder = _made(lived, tmp_path / "shelf")
    before = home_bytes(folder)
    lived.call("backup", "list", "--to", str(tmp_path / "shelf"))
    told = lived.call("backup", "verify", str(folder), "--json").json
    assert (told["ok"], told["digest_checked"]) == (True, True)
    assert home_bytes(folder) == before


def test_a_backup_is_one_moment_while_many_write(lived: Machine, tmp_path: Path) -> None:
    """The journal is never newer than the memory: an operation that has left the outbox is in the rows."""
    settings = settings_of(lived)
    (lived.home / "log.md").write_bytes(b"")
    ends = threading.Event()
    failures: list[BaseException] = []

    def remember() -> None:
        try:
            number = 0
            while not ends.is_set():
                number += 1
                lived_in_thread.call("remember", f"Memory number {number} of the writer.")
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
        made = [back_up(settings, subject, tmp_path / "shelf") for _ in range(8)]
    finally:
        ends.set()
        for thread in threads:
            thread.join()
    assert not failures
    for each in made:
        assert verify_backup(each.folder, lambda _: subject.secret).problems == {}
        words = set((each.folder / "home/notes/plan.md").read_bytes().split())
        assert len(words) == 1 or words == {b"First", b"the", b"roof."}, "replaced whole, so copied whole"
    assert lived.call("verify", "--json").json["ok"] is True


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
    folder = _made(lived, tmp_path / "shelf")
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


def test_rows_that_were_wrong_before_make_no_backup_and_cost_no_older_one(
    lived: Machine, tmp_path: Path
) -> None:
    shelf = tmp_path / "shelf"
    older = _made(lived, shelf)
    with opened(settings_of(lived)) as device, device.replica.database.transaction():
        device.replica.database.run("UPDATE memories SET agent = 'somebody-else'")
    failed = lived.call("backup", "--to", str(shelf), "--keep", "1", "--json", check=False)
    assert failed.code == 8
    assert "memory/crystal.db is damaged" in failed.error["error"]
    assert "crystal repair" in failed.error["hint"]
    assert [path.name for path in shelf.iterdir()] == [older.name]


def test_keep_deletes_nothing_that_is_not_a_complete_backup_of_this_very_device(
    vault: Vault, lived: Machine, tmp_path: Path
) -> None:
    shelf = tmp_path / "shelf"
    laptop = vault.add()
    others = _made(laptop, shelf)
    plain, incomplete, annotated, rotten = (_made(lived, shelf) for _ in range(4))
    (incomplete / "home" / "notes" / "plan.md").unlink()
    (annotated / "home" / "why.txt").write_text("I keep this one.")
    (rotten / "manifest.json").write_bytes((rotten / "manifest.json").read_bytes() + b" ")
    foreign = shelf / "crystal-0a0b0c0d-20260101T000000Z"
    foreign.mkdir()
    (foreign / "diary.txt").write_text("Mine.")
    linked = shelf / f"crystal-{plain.name.split('-')[1]}-20250101T000000Z"
    linked.symlink_to(tmp_path / "elsewhere")
    shutil.copytree(plain, tmp_path / "elsewhere")
    hidden = shelf / f".crystal-{'0a0b0c0d' * 4}-20260101T000000Z.partial"
    hidden.mkdir()
    (hidden / "thesis.txt").write_text("Mine.")
    untouched = (others, incomplete, annotated, rotten, foreign, hidden, tmp_path / "elsewhere")
    before = {path: home_bytes(path) for path in untouched}
    made = lived.call("backup", "--to", str(shelf), "--keep", "1", "--json").json
    assert made["deleted"] == [str(plain)]
    assert not plain.exists()
    assert set(made["spared"]) == {str(incomplete), str(annotated)}
    assert {path: home_bytes(path) for path in untouched} == before
    assert linked.is_symlink()
    assert Path(made["folder"]).is_dir()


def test_the_newest_stays_when_the_clock_goes_back(
    lived: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, shelf = settings_of(lived), tmp_path / "shelf"
    with opened(settings) as device:
        subject = Subject.of(device)
    clock = iter((1_900_000_000_000, 1_600_000_000_000, 1_700_000_000_000))
    times: list[int] = []

    def told() -> int:
        times.append(times[-1] if len(times) % 2 else next(clock))  # once for the name, once for the manifest
        return times[-1]

    monkeypatch.setattr("crystal_node.backup.making.now_ms", told)
    first = back_up(settings, subject, shelf, count=2)
    second = back_up(settings, subject, shelf, count=2)
    third = back_up(settings, subject, shelf, count=2)
    assert (second.gone, third.gone) == ((), (first.folder,))
    assert third.folder.is_dir()


def test_a_full_disk_leaves_nothing_half_named(lived: Machine, tmp_path: Path) -> None:
    shelf = tmp_path / "shelf"
    older = _made(lived, shelf)
    (lived.home / "notes" / "large.bin").write_bytes(os.urandom(256 * 1024) * 12)
    # The kernel refuses to write more than this to any one file: for SQLite and for us, that is a disk that is full.
    for limit in (8, 100, 2048):
        done = subprocess.run(
            [
                *("/bin/sh", "-c", f'trap "" XFSZ; ulimit -f {limit}; exec "$@"', "sh"),
                *(*_command(lived), "backup", "--to", str(shelf), "--keep", "1", "--json"),
            ],
            env=lived.environment | {"PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 8, done.stderr
        assert json.loads(done.stderr[done.stderr.index("{") :])["exit_code"] == 8
        assert [path.name for path in shelf.iterdir()] == [older.name]
    assert lived.call("backup", "verify", str(older), "--json").json["ok"] is True


def _command(machine: Machine) -> list[str]:
    return [*machine.prefix, sys.executable, "-m", "crystal_node"]


def test_a_file_that_cannot_be_read_is_told_and_costs_no_older_backup(lived: Machine, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    shelf = tmp_path / "shelf"
    older = _made(lived, shelf)
    (lived.home / "notes" / "plan.md").chmod(0)
    made = lived.call("backup", "--to", str(shelf), "--keep", "1", "--json").json
    assert [each["path"] for each in made["left_out"]] == ["notes/plan.md"]
    assert (made["deleted"], older.is_dir()) == ([], True)


def test_a_forget_names_the_backups_that_still_hold_the_text(lived: Machine, tmp_path: Path) -> None:
    lived.call("backup", "setup", "--to", str(tmp_path / "shelf"))
    before = Path(lived.call("backup", "--json").json["folder"]).name
    found = lived.call("search", "--json", "boiler serviced in October").json["results"][0]
    lived.call("forget", str(found["id"]))
    lived.call("sync")
    after = Path(lived.call("backup", "--json").json["folder"]).name
    told = lived.call("forget", "--report").out
    assert before in told
    assert after not in told


def test_a_backup_into_the_home_itself_is_refused(lived: Machine, tmp_path: Path) -> None:
    (tmp_path / "way").symlink_to(lived.home)
    for place in (lived.home / "backups", tmp_path / "way" / "backups", lived.home / "memory"):
        refused = lived.call("backup", "--to", str(place), check=False)
        assert refused.code == 2, refused.err
    assert not (lived.home / "backups").exists()


def test_a_disk_that_is_away_is_not_taken_for_an_empty_one(lived: Machine, tmp_path: Path) -> None:
    shelf = tmp_path / "disk"
    told = lived.call("backup", "setup", "--to", str(shelf), "--keep", "2", "--every-hours", "6").out
    assert "every 6 hours" in told
    made = [lived.call("backup", "--json").json for _ in range(3)]
    assert [len(each["deleted"]) for each in made] == [0, 0, 1]
    shelf.rename(tmp_path / "away")
    shelf.mkdir()
    refused = lived.call("backup", "--json", check=False)
    assert refused.code == 8
    assert list(shelf.iterdir()) == []
    assert lived.call("backup", "setup", "--off", "--json").json["folder"] is None


def test_a_manifest_that_names_what_lies_elsewhere_is_refused(lived: Machine, tmp_path: Path) -> None:
    folder = _made(lived, tmp_path / "shelf")
    manifest = read_manifest(folder)
    for path in ("../../escaped", "/tmp/escaped", "notes/../../escaped", "state/sync.lock", ".crystal-root"):
        _forge(folder, path)
        machine = Machine(tmp_path / f"fresh-{hashlib.sha256(path.encode()).hexdigest()[:6]}")
        machine.root.mkdir()
        refused = machine.call("backup", "restore", str(folder), "--json", "--yes", check=False)
        assert refused.code == 8, (path, refused.err)
        assert not machine.home.exists()
    assert manifest.items


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_process_killed_at_any_step_leaves_whole_backups_and_whole_homes_only(
    lived: Machine, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.node.backup.killed_backups", str(lived.home), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=230,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert int(done.stdout) >= 100


def _forge(folder: Path, path: str) -> None:
    """A manifest that is consistent in itself, with a file of that name."""
    import msgspec

    from crystal_node.backup.manifest import Item, Manifest, encoded, sums

    manifest = msgspec.json.decode((folder / "manifest.json").read_bytes(), type=Manifest)
    kept = tuple(item for item in manifest.items if item.path in _REAL)
    extra = folder / "home" / path
    data = b"x"
    if not extra.exists() and ".." not in path and not path.startswith("/"):
        extra.write_bytes(data)
    item = Item(path, 1, hashlib.sha256(data).hexdigest())
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
    folder = _made(lived, tmp_path / "shelf")
    for place in waiting:
        assert (folder / "home" / place).is_file()


def test_a_name_that_not_every_system_takes_is_backed_up_all_the_same(lived: Machine, tmp_path: Path) -> None:
    for name in ("what: now?.md", "con.md", "ends with a dot."):
        (lived.home / "notes" / name).write_text(name)
    folder = _made(lived, tmp_path / "shelf", "--with-keys")
    new = Machine(tmp_path / "new")
    new.root.mkdir()
    shutil.rmtree(lived.home)
    new.call("backup", "restore", str(folder), "--yes")
    for name in ("what: now?.md", "con.md", "ends with a dot."):
        assert (new.home / "notes" / name).read_text() == name


def test_keys_come_back_closed_or_from_the_keyring_as_files(
    lived: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    word = tmp_path / "word"
    word.write_text("a passphrase of some length\n")
    word.chmod(0o600)
    lived.call("keys", "passphrase", CRYSTAL_PASSPHRASE_FILE=str(word))
    sealed = lived.call(
        "backup", "--to", str(tmp_path / "shelf"), "--with-keys", "--json", CRYSTAL_PASSPHRASE_FILE=str(word)
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
        lived.call("backup", "--to", str(tmp_path / "shelf"), "--json", *more).json
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
