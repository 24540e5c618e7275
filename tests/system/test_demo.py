"""`crystal demo`: it works, it leaves nothing, and it fails when what it shows is not so."""

import re
from contextlib import nullcontext
from pathlib import Path

import pytest

from crystal_node.surfaces.demo import machines, source
from crystal_node.surfaces.demo.steps import FILE, LAPTOP, Demo, DemoFailed, describe_step
from tests.support.machine import Machine, transcript


@pytest.fixture
def person(tmp_path: Path) -> Machine:
    (tmp_path / "person").mkdir()
    (tmp_path / "tmp").mkdir()
    return Machine(
        tmp_path / "person", {"TMPDIR": str(tmp_path / "tmp"), "CRYSTAL_HOME": str(tmp_path / "none")}
    )


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_demo_shows_each_step_with_its_time_and_leaves_nothing(person: Machine, tmp_path: Path) -> None:
    outcome = person.run("demo")
    steps = [line for line in outcome.out.splitlines() if line.startswith("  ✓ ")]
    assert len(steps) == 19
    assert all(line.endswith(")") and " s" in line for line in steps)
    assert re.search(r"laptop recorded \d+ messages", outcome.out)
    assert "blanked out 1 credential" in outcome.out
    assert re.search(r"was told the digits that they showed: \d{6} and \d{6}\.", outcome.out)
    assert re.search(r"laptop finds it for \"what did we decide.*: Decided, then: .*nine tries", outcome.out)
    assert "desktop revoked tablet" in outcome.out
    assert "tablet keeps what it had" in outcome.out
    assert "Next, for real:" in outcome.out
    assert list((tmp_path / "tmp").iterdir()) == []
    assert list(person.root.iterdir()) == []
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_demo_takes_this_machines_own_transcripts_and_only_reads_them(
    person: Machine, tmp_path: Path
) -> None:
    path = transcript(person, "The orchard gate is locked after eight in the evening, says the note on it.")
    before = (path.read_bytes(), path.stat().st_mtime_ns, path.parent.stat().st_mtime_ns)
    result = person.run("demo", "--mine", "--keep", "--json").json
    assert result["ok"] is True
    assert any("orchard gate" in step["text"] for step in result["steps"])
    assert (path.read_bytes(), path.stat().st_mtime_ns, path.parent.stat().st_mtime_ns) == before
    folder = Path(result["folder"])
    assert folder.parent == tmp_path / "tmp"
    assert {"desktop", "laptop", "tablet", "relay"} <= {found.name for found in folder.iterdir()}


def test_without_own_transcripts_it_says_so(person: Machine) -> None:
    outcome = person.call("demo", "--mine", "--json", check=False)
    assert outcome.code == 10
    assert "without --mine" in outcome.error["hint"]


class _Forgetful(machines.DemoDevice):
    """A device whose search finds nothing. Only the one that is revoked cannot sync."""

    revoked = ""

    def run(self, *arguments: str, typed: str = "", token: str = "") -> dict[str, object]:
        canned: dict[str, dict[str, object]] = {
            "init": {},
            "devices": {"generation": 2},
            "remember": {},
            "capture": {"messages": 3, "redacted": 0},
            "sync": {
                "pending": 0,
                "pushed_bytes": 5,
                "collected": 5,
                "applied": 5,
                "bytes_up": 5,
                "bytes_down": 5,
            },
            "verify": {"digest": "d" * 64},
            "snapshot": {},
            "demote": {},
            "role": {"role": "core"},
            "run": {"state": "done"},
            "search": {"results": []},
        }
        if arguments[0] == "devices":
            _Forgetful.revoked = arguments[2]
        if arguments[0] == "sync" and self.home.name == _Forgetful.revoked:
            raise machines.DemoCommandFailed("revoked")
        written = self.home.parent / LAPTOP / FILE
        if arguments[0] == "sync" and written.exists():
            (self.home / FILE).parent.mkdir(parents=True, exist_ok=True)
            (self.home / FILE).write_bytes(written.read_bytes())
        return canned[arguments[0]]


def _paired(_here: object, _there: object, name: str) -> str:
    return name


def test_it_fails_when_a_device_does_not_find_what_another_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crystal_node.surfaces.demo.steps.DemoDevice", _Forgetful)
    monkeypatch.setattr("crystal_node.surfaces.demo.steps.pair", _paired)
    monkeypatch.setattr("crystal_node.surfaces.demo.steps.agents", _no_agents)
    monkeypatch.setattr("crystal_node.surfaces.demo.steps.until_found", _at_once)
    told: list[str] = []
    demo = Demo(source.sample(), lambda step: told.append(describe_step(step)), tmp_path)
    with pytest.raises(DemoFailed, match="desktop does not find"):
        demo.run()
    assert len(told) == 16


def test_a_relay_that_stores_in_clear_would_be_seen(tmp_path: Path) -> None:
    relay = machines.DemoRelay(tmp_path)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "object").write_bytes(bytes(1024 * 1024 - 4) + b"pelican")
    assert relay.look_for(["pelican", "heron"]) == (1024 * 1024 + 3, ["pelican"])


def test_a_relay_that_does_not_start_is_an_error_with_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(machines.DemoCommandFailed, match="did not start") as caught:
        machines.DemoRelay(tmp_path / "relay").start()
    assert "relay" in caught.value.hint


def _no_agents(*_: object) -> nullcontext[None]:
    return nullcontext()


def _at_once(*_: object) -> float:
    return 0.1
