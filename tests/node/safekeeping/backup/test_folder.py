"""The folder that backups are in: what is deleted there, what never is, and disks that fail or are away."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from crystal_node.device.device import opened
from crystal_node.safekeeping.backup.creation import Subject, back_up
from tests.support.backups import backed_up
from tests.support.invited import settings_of
from tests.support.machine import Machine, Vault
from tests.support.recovery import home_bytes
from tests.support.workbench import quick_folder


def test_keep_deletes_nothing_that_is_not_a_complete_backup_of_this_very_device(
    vault: Vault, lived: Machine, tmp_path: Path
) -> None:
    destination = tmp_path / "destination"
    laptop = vault.add()
    others = backed_up(laptop, destination)
    plain, incomplete, annotated, rotten = (backed_up(lived, destination) for _ in range(4))
    (incomplete / "home" / "notes" / "plan.md").unlink()
    (annotated / "home" / "why.txt").write_text("I keep this one.")
    (rotten / "manifest.json").write_bytes((rotten / "manifest.json").read_bytes() + b" ")
    foreign = destination / "crystal-0a0b0c0d-20260101T000000Z"
    foreign.mkdir()
    (foreign / "diary.txt").write_text("Mine.")
    linked = destination / f"crystal-{plain.name.split('-')[1]}-20250101T000000Z"
    linked.symlink_to(tmp_path / "elsewhere")
    shutil.copytree(plain, tmp_path / "elsewhere")
    hidden = destination / f".crystal-{'0a0b0c0d' * 4}-20260101T000000Z.partial"
    hidden.mkdir()
    (hidden / "thesis.txt").write_text("Mine.")
    untouched = (others, incomplete, annotated, rotten, foreign, hidden, tmp_path / "elsewhere")
    before = {path: home_bytes(path) for path in untouched}
    made = lived.call("backup", "--to", str(destination), "--keep", "1", "--json").json
    assert made["deleted"] == [str(plain)]
    assert not plain.exists()
    assert set(made["spared"]) == {str(incomplete), str(annotated)}
    assert {path: home_bytes(path) for path in untouched} == before
    assert linked.is_symlink()
    assert Path(made["folder"]).is_dir()


def test_the_newest_stays_when_the_clock_goes_back(
    lived: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, destination = settings_of(lived), tmp_path / "destination"
    with opened(settings) as device:
        subject = Subject.of(device)
    clock = iter((1_900_000_000_000, 1_600_000_000_000, 1_700_000_000_000))
    times: list[int] = []

    def told() -> int:
        times.append(times[-1] if len(times) % 2 else next(clock))  # once for the name, once for the manifest
        return times[-1]

    monkeypatch.setattr("crystal_node.safekeeping.backup.creation.now_ms", told)
    first = back_up(settings, subject, destination, count=2)
    second = back_up(settings, subject, destination, count=2)
    third = back_up(settings, subject, destination, count=2)
    assert (second.gone, third.gone) == ((), (first.folder,))
    assert third.folder.is_dir()


def test_a_full_disk_leaves_nothing_half_named(lived: Machine, tmp_path: Path) -> None:
    destination = tmp_path / "destination"
    older = backed_up(lived, destination)
    (lived.home / "notes" / "large.bin").write_bytes(os.urandom(256 * 1024) * 12)
    # The kernel refuses to write more than this to any one file: for SQLite and for us, that is a disk that is full.
    for limit in (8, 100, 2048):
        done = subprocess.run(
            [
                *("/bin/sh", "-c", f'trap "" XFSZ; ulimit -f {limit}; exec "$@"', "sh"),
                *(*_command(lived), "backup", "--to", str(destination), "--keep", "1", "--json"),
            ],
            env=lived.environment | {"PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 8, done.stderr
        assert json.loads(done.stderr[done.stderr.index("{") :])["exit_code"] == 8
        assert [path.name for path in destination.iterdir()] == [older.name]
    assert lived.call("backup", "verify", str(older), "--json").json["ok"] is True


def _command(machine: Machine) -> list[str]:
    return [*machine.prefix, sys.executable, "-m", "crystal_node"]


def test_a_file_that_cannot_be_read_is_told_and_costs_no_older_backup(lived: Machine, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root may read everything, and there is no setpriv to do without that")
        lived.prefix = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")
    destination = tmp_path / "destination"
    older = backed_up(lived, destination)
    for path in (lived.home / "notes" / "plan.md", lived.home / "notes"):
        path.chmod(0)
        try:
            made = lived.run("backup", "--to", str(destination), "--keep", "1", "--json").json
        finally:
            path.chmod(0o700)
        left_out = [str(lived.home / each["path"]).rstrip("/") for each in made["left_out"]]
        assert left_out == [str(path)]
        assert (made["deleted"], older.is_dir()) == ([], True)


def test_a_backup_into_the_home_itself_is_refused(lived: Machine, tmp_path: Path) -> None:
    (tmp_path / "way").symlink_to(lived.home)
    for place in (lived.home / "backups", tmp_path / "way" / "backups", lived.home / "memory"):
        refused = lived.call("backup", "--to", str(place), check=False)
        assert refused.code == 2, refused.err
    assert not (lived.home / "backups").exists()


def test_a_disk_that_is_away_is_not_taken_for_an_empty_one(lived: Machine, tmp_path: Path) -> None:
    destination = tmp_path / "disk"
    told = lived.call("backup", "setup", "--to", str(destination), "--keep", "2", "--every-hours", "6").out
    assert "every 6 hours" in told
    if Path("/proc").is_dir():  # where nobody can make a folder
        impossible = lived.call("backup", "setup", "--to", "/proc/backups", check=False)
        assert (impossible.code, "cannot be made" in impossible.err) == (8, True)
    refused = lived.call("backup", "setup", "--to", str(destination), "--keep", "99999999", check=False)
    assert (refused.code != 0, lived.call("config").code) == (True, 0)
    made = [lived.call("backup", "--json").json for _ in range(3)]
    assert [len(each["deleted"]) for each in made] == [0, 0, 1]
    destination.rename(tmp_path / "away")
    destination.mkdir()
    refused = lived.call("backup", "--json", check=False)
    assert refused.code == 8
    assert list(destination.iterdir()) == []
    assert lived.call("backup", "setup", "--off", "--json").json["folder"] is None


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_process_killed_at_any_step_leaves_whole_backups_and_whole_homes_only(lived: Machine) -> None:
    with tempfile.TemporaryDirectory(dir=quick_folder()) as folder:
        done = subprocess.run(
            [sys.executable, "-m", "tests.node.safekeeping.backup.killed_backups", str(lived.home), folder],
            capture_output=True,
            text=True,
            check=False,
            timeout=230,
        )
    assert done.returncode == 0, done.stderr[-4000:]
    assert int(done.stdout) >= 100


def test_rows_that_were_wrong_before_make_no_backup_and_cost_no_older_one(
    lived: Machine, tmp_path: Path
) -> None:
    destination = tmp_path / "destination"
    older = backed_up(lived, destination)
    with opened(settings_of(lived)) as device, device.replica.database.transaction():
        device.replica.database.run("UPDATE memories SET agent = 'somebody-else'")
    failed = lived.call("backup", "--to", str(destination), "--keep", "1", "--json", check=False)
    assert failed.code == 8
    assert "memory/crystal.db is damaged" in failed.error["error"]
    assert "crystal repair" in failed.error["hint"]
    assert [path.name for path in destination.iterdir()] == [older.name]
