"""How long copies of sessions are kept, of which projects they are exact, and what the list says of them."""

from pathlib import Path

from msgspec import structs

from tests.node.derive.sessions.support import head_of, lines, write
from tests.support.machine import core_that_heard
from tests.support.relay_process import RelayProcess

DAY = 24 * 3_600_000


def test_retention_is_shown_with_sizes_and_changed_on_the_core(relay: RelayProcess, tmp_path: Path) -> None:
    core = core_that_heard(relay, tmp_path / "devices", "The greenhouse opens late.")
    for session in ("one", "two"):
        head = structs.replace(head_of("a", [lines(0, 3)], at=1000), session=session)
        write(core.home, head, [lines(0, 3)])
    before = core.call("sessions", "retention", "--json").json
    assert (before["on"], before["keep_days"], before["max_gb"]) == (True, 0, 0)
    assert (before["sessions"], before["removed_next"]) == (2, 0)
    assert before["bytes"] > 0
    changed = core.call("sessions", "retention", "--keep-days", "30", "--max-gb", "5", "--json").json
    assert (changed["keep_days"], changed["max_gb"], changed["removed_next"]) == (30, 5, 2)
    assert "30 days" in core.call("sessions", "retention").out
    assert core.call("sessions", "retention", "--off", "--json").json["keep_days"] == 0
    refused = core.call("sessions", "retention", "--off", "--max-gb", "1", "--json", check=False)
    assert refused.code == 2


def test_exact_copies_are_a_choice_with_a_warning(relay: RelayProcess, tmp_path: Path) -> None:
    core = core_that_heard(relay, tmp_path / "devices", "The greenhouse opens late.")
    project = core.root / "work"
    project.mkdir()
    turned = core.call("sessions", "exact", str(project), "on")
    assert "readable on each of your machines" in turned.err
    listed = core.call("sessions", "exact", "example.org/me/library", "on", "--json").json
    assert listed["all"] == [str(project.resolve()), "example.org/me/library"]
    assert core.call("sessions", "exact", str(project), "off", "--json").json["all"] == [
        "example.org/me/library"
    ]
    refused = core.call("sessions", "exact", "nowhere", "on", "--json", check=False)
    assert (refused.code, "no folder here" in refused.error["error"]) == (2, True)


def test_the_list_says_where_a_session_grew_last(relay: RelayProcess, tmp_path: Path) -> None:
    core = core_that_heard(relay, tmp_path / "devices", "The greenhouse opens late.")
    [plain] = core.call("sessions", "list", "--json").json["conversations"]
    assert plain["copy"] is None
    head = structs.replace(head_of("a", [lines(0, 3)], at=2000), session=plain["session"])
    write(core.home, head, [lines(0, 3)])
    fork = structs.replace(head_of("b", [lines(5, 9)], at=1000), session=plain["session"])
    write(core.home, fork, [lines(5, 9)])
    [copied] = core.call("sessions", "list", "--json").json["conversations"]
    assert (copied["copy"]["device"], copied["copy"]["forks"]) == ("a" * 32, 1)
    assert "copied, grew last on aaaaaaaa, 1 fork" in core.call("sessions", "list").out
