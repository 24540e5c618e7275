"""`crystal doctor` on a device with something wrong: each thing is found, what is safe is mended, all else is left alone."""

import json
import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest

from crystal_core.embed.builtin import BuiltinEmbedder
from crystal_node.agent.health.facts import FREE_BYTES_MIN, free_space
from crystal_node.agent.jobs.database import JobStore
from crystal_node.base.home import Home
from crystal_node.base.jobs import Job, JobOutcome
from tests.node.sync.maintenance.relay_disk import change, lose
from tests.support.machine import Machine, Vault
from tests.support.user_manager import with_manager


def doctor(
    machine: Machine, *arguments: str, **variables: str
) -> tuple[int, dict[str, dict[str, Any]], list[str]]:
    """The exit code, the checks by their names, and what was mended."""
    done = machine.call("doctor", "--json", *arguments, check=False, **variables)
    found = done.json
    return done.code, {check["name"]: check for check in found["checks"]}, found["done"]


@pytest.fixture
def core(vault: Vault) -> Machine:
    for text in ("The pump was replaced on Monday.", "Tomatoes need more light."):
        vault.core.call("remember", text)
    vault.core.call("sync")
    return vault.core


def memory(machine: Machine) -> Path:
    return machine.home / "memory" / "crystal.db"


def _run(path: Path, statement: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(statement)
    connection.close()


def test_an_index_that_lost_a_text_is_written_anew(core: Machine) -> None:
    _run(
        memory(core),
        "INSERT INTO chunks_fts (chunks_fts, rowid, text) SELECT 'delete', rowid, text FROM chunks LIMIT 1",
    )
    code, checks, done = doctor(core, "--offline")
    assert (code, checks["indexes"]["state"], checks["indexes"]["fixable"], done) == (8, "failed", True, [])
    code, checks, done = doctor(core, "--offline", "--fix")
    assert (code, checks["indexes"]["state"]) == (0, "ok")
    assert done == ["wrote the indexes of the memory anew from its rows"]
    assert core.found("pump replaced")
    assert core.call("verify", "--json").json["ok"] is True


def test_vectors_that_are_gone_are_told_and_left_to_repair(core: Machine) -> None:
    _run(memory(core), "DELETE FROM vectors WHERE rowid = 1")
    code, checks, done = doctor(core, "--offline", "--fix")
    assert (code, checks["indexes"]["fixable"], done) == (8, False, [])
    assert "crystal repair" in checks["indexes"]["fix"]


def test_a_row_that_somebody_changed_is_found_by_deep_alone(core: Machine) -> None:
    _run(memory(core), "UPDATE memories SET category = 'other'")
    assert doctor(core, "--offline")[0] == 0
    code, checks, _ = doctor(core, "--offline", "--deep")
    assert (code, checks["indexes"]["fixable"]) == (8, False)
    assert "crystal repair" in checks["indexes"]["fix"]


@pytest.mark.parametrize(
    ("name", "says"), [("memory/crystal.db", "crystal restore"), ("state/state.db", "Do not delete it")]
)
def test_a_database_that_is_damaged_is_named_kept_and_the_rest_looked_at(
    name: str, says: str, core: Machine
) -> None:
    path = core.home / name
    for ending in ("-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
    path.write_bytes(damaged := b"SQLite format 3\0" + b"\x55" * 9_000)
    code, checks, done = doctor(core, "--fix", "--offline")
    assert (code, checks["databases"]["state"], done) == (8, "failed", [])
    assert says in checks["databases"]["fix"]
    assert path.read_bytes() == damaged
    assert checks["model"]["state"] == "ok"


def test_a_record_of_jobs_that_was_begun_anew_is_told_until_the_old_one_is_gone(core: Machine) -> None:
    path = core.home / "state" / "jobs.db"
    core.call("jobs", "list")
    core.call("jobs", "pause", "backup", check=False)
    for ending in ("-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
    path.write_bytes(b"no database at all" * 500)
    core.call("jobs", "list")
    check = doctor(core, "--offline")[1]["jobs"]
    assert (check["state"], "begun anew" in check["what"]) == ("warning", True)
    path.with_name("jobs.db.damaged").unlink()
    assert (
        "jobs" not in doctor(core, "--offline")[1]
        or "anew" not in doctor(core, "--offline")[1]["jobs"]["what"]
    )


def test_a_database_that_cannot_be_read_now_is_not_called_damaged(core: Machine) -> None:
    path = core.home / "state" / "files.db"
    for ending in ("", "-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
    path.mkdir()
    checks = doctor(core, "--fix", "--offline")[1]
    assert "cannot be read now" in checks["databases"]["what"]
    assert checks["databases"]["fix"].startswith("Touch nothing.")
    assert path.is_dir()


def test_what_others_can_use_is_closed_and_then_the_rest_is_seen(core: Machine) -> None:
    for path in ("state", "config.json", "state/secrets"):
        (core.home / path).chmod(0o755)
    code, checks, done = doctor(core, "--fix", "--offline")
    assert (code, checks["permissions"]["state"], checks["device"]["state"]) == (0, "ok", "ok")
    assert len(done) == 3
    assert (core.home / "config.json").stat().st_mode & 0o777 == 0o600
    assert (core.home / "state").stat().st_mode & 0o777 == 0o700
    assert doctor(core, "--fix", "--offline")[2] == []


def test_hooks_of_which_some_are_gone_come_back_and_none_are_put_where_none_were(core: Machine) -> None:
    (core.root / ".claude").mkdir(exist_ok=True)
    assert "hooks" not in doctor(core, "--offline", "--fix")[1]
    settings = core.root / ".claude" / "settings.json"
    core.call("hooks", "install")
    found = json.loads(settings.read_text())
    del found["hooks"]["Stop"]
    settings.write_text(json.dumps(found))
    assert doctor(core, "--offline")[1]["hooks"]["state"] == "warning"
    assert doctor(core, "--offline", "--fix")[1]["hooks"]["state"] == "ok"
    assert "Stop" in json.loads(settings.read_text())["hooks"]
    settings.write_text("{ this is no JSON")
    code, checks, _ = doctor(core, "--offline", "--fix")
    assert (code, checks["hooks"]["state"]) == (0, "warning")
    assert settings.read_text() == "{ this is no JSON"


def test_a_relay_that_lost_part_of_the_device_log_is_found_out(vault: Vault, core: Machine) -> None:
    assert doctor(core)[1]["relay holds"]["state"] == "ok"
    assert lose(vault.relay, core.call("status", "--json").json["vault"], lambda key: "/devlog/" in key)
    code, checks, _ = doctor(core)
    assert (code, checks["relay"]["state"]) == (6, "ok")
    assert "device log" in checks["relay holds"]["what"]


def test_a_mirror_whose_last_entry_is_damaged_is_found_out_and_put_back(vault: Vault, core: Machine) -> None:
    assert change(vault.relay, core.call("status", "--json").json["vault"], lambda key: "/mirror/" in key)
    code, checks, _ = doctor(core)
    assert code == 6
    assert "last entry of the mirror is damaged" in checks["relay holds"]["what"]
    assert "crystal repair" in checks["relay holds"]["fix"]
    core.call("repair")
    assert doctor(core)[1]["relay holds"]["state"] == "ok"


def test_a_relay_that_shows_another_mirror_is_found_out(vault: Vault, core: Machine, tmp_path: Path) -> None:
    """Both entries of that slot are the Core's own: it ran from two copies of its home."""
    named = core.call("status", "--json").json["vault"]
    copy = Machine(tmp_path / "copy")
    shutil.copytree(core.root, copy.root)
    before: set[str] = set()

    def kept(key: str) -> bool:
        before.add(key)
        return False

    lose(vault.relay, named, kept)
    core.call("remember", "the pump house has two keys")
    core.call("sync")
    assert lose(vault.relay, named, lambda key: key not in before)
    copy.call("remember", "the pump house has one key")
    copy.call("sync")
    code, checks, _ = doctor(core)
    assert code == 6
    assert "than it showed before" in checks["relay holds"]["what"]
    assert "do not trust" in checks["relay holds"]["fix"]


def test_a_relay_that_lost_the_mirrors_end_is_found_out(vault: Vault, core: Machine) -> None:
    assert lose(vault.relay, core.call("status", "--json").json["vault"], lambda key: "/mirror/" in key)
    code, checks, _ = doctor(core)
    assert (code, "lost mirror entries" in checks["relay holds"]["what"]) == (6, True)


def test_jobs_that_fail_or_fell_over_are_told_by_doctor_and_status(core: Machine) -> None:
    async def nothing() -> str:
        return ""

    with JobStore.open(core.home / "state" / "jobs.db") as store:
        store.register([Job(name, "Does it.", 60.0, nothing) for name in ("backup", "artefacts", "staging")])
        ended = {"failures": 2, "next_run": 0, "served": 0}
        store.ended("backup", 1_700_000_000_000, JobOutcome.FAILED, "no room on the disk", **ended)
        store.ended("artefacts", 1_700_000_000_000, JobOutcome.BROKEN, "KeyError: 1", **ended)
        store.pause("staging", paused=True)
    told = core.call("status", "--json").json
    assert [each["name"] for each in told["stuck"]] == ["job", "job"]
    assert told["background"]["paused"] == ["staging"]
    found = core.call("doctor", "--offline", "--json", check=False)
    rows = [(row["state"], row["what"]) for row in found.json["checks"] if row["name"] == "jobs"]
    assert [state for state, _ in rows] == ["failed", "warning", "warning"]
    assert found.code == 1
    assert "no room on the disk" in core.call("status").out


def test_a_jobs_database_that_cannot_be_read_hides_nothing_else(core: Machine) -> None:
    (core.home / "state" / "jobs.db").mkdir()
    assert core.call("status", "--json").json["background"]["fault"]
    code, checks, _ = doctor(core, "--offline")
    assert (code, checks["jobs"]["state"]) == (0, "warning")


def test_a_model_that_is_damaged_is_told(
    core: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = Path(str(BuiltinEmbedder.__init__.__globals__["__file__"])).parent / "model"
    shutil.copytree(whole, tmp_path / "model")
    weights = tmp_path / "model" / "weights.bin"
    weights.write_bytes(b"\0" + weights.read_bytes()[1:])
    monkeypatch.setattr(
        BuiltinEmbedder.__init__, "__kwdefaults__", {"threads": None, "directory": tmp_path / "model"}
    )
    code, checks, _ = doctor(core, "--offline")
    assert (checks["model"]["state"], code != 0) == ("failed", True)
    assert checks["device log"]["state"] == "ok"


@pytest.mark.skipif(
    not Path("/proc/self").exists(), reason="needs a file system that has no room, such as /proc"
)
def test_a_disk_without_room_is_low_and_one_with_room_is_not(tmp_path: Path) -> None:
    assert free_space(Home(Path("/proc")))[0].low
    found = free_space(Home(tmp_path))[0]
    assert found.low == (shutil.disk_usage(tmp_path).free < FREE_BYTES_MIN)


def test_a_service_that_is_stopped_is_started_and_none_is_made_where_none_was(core: Machine) -> None:
    manager = with_manager(core)
    try:
        assert "service" not in doctor(core, "--offline", "--fix")[1]
        core.call("agent", "install")
        core.call("agent", "stop", check=False)
        assert manager.running() == []
        assert doctor(core, "--offline")[1]["service"]["state"] == "warning"
        code, checks, done = doctor(core, "--offline", "--fix")
        assert (code, checks["service"]["state"], len(done)) == (0, "ok", 1)
        assert len(manager.running()) == 1
    finally:
        manager.stop_all()
