"""Names that are commands to a terminal: of files that a tool left, and of agents that other devices tell of."""

import os

import pytest

from crystal_mirror.operations import Capture, Piece
from crystal_node.agent.watcher import reporter
from crystal_node.base.events import WatchEvent
from crystal_node.device.device import opened
from tests.support.invited import settings_of
from tests.support.machine import Machine, Vault, transcript

EVIL = "\x1b]0;pwned\x07\x9b2J\u202e`$(id)`"
_COMMANDS = {"\x1b", "\x07", "\x9b", "\u202e"}


def said(machine: Machine, *arguments: str) -> str:
    outcome = machine.call(*arguments, check=False, CRYSTAL_WEAVE_EVERY_HOURS="1")
    text = outcome.out + outcome.err
    assert not _COMMANDS & set(text), (arguments, text)
    return text


def test_no_name_of_a_file_or_an_agent_reaches_a_terminal_as_a_command(vault: Vault) -> None:
    core = vault.core
    folder = core.home / "drop" / f"ag{EVIL}"
    folder.mkdir(parents=True)
    (folder / f"one{EVIL}.md").write_text("Hello.\n")
    os.mkfifo(folder / f"two{EVIL}.md")
    piece = Piece("Do it.", "user", 1_767_600_000_000, "m", 0)
    with opened(settings_of(core)) as device:
        device.accept([Capture("evil" + EVIL, f"../../{EVIL}", EVIL, EVIL, EVIL, (piece,))])
    assert "not a regular file" in said(core, "capture")
    said(core, "sync")
    assert "written" in said(core, "jobs", "run", "artefacts")
    said(core, "jobs", "run", "staging")
    assert "evil" in said(core, "jobs", "run", "dream-weave")
    for arguments in (("staging", "list", "--all"), ("jobs", "list"), ("status",), ("backfill", "--dry-run")):
        said(core, *arguments)
    inside = [path.relative_to(core.home / "agents") for path in (core.home / "agents").rglob("*")]
    assert any(path.parts[0].startswith("evil") for path in inside)
    assert all(part.isascii() and part.isprintable() for path in inside for part in path.parts)


@pytest.mark.parametrize("as_json", [False, True])
def test_what_an_agent_tells_as_it_runs_is_no_terminals_command(
    capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    tell = reporter(as_json)
    for event in (WatchEvent.FAILED, WatchEvent.PROGRESS):
        tell(event, f"{EVIL} cannot be read")
    told = capsys.readouterr()
    for text in (told.out, told.err):
        assert "cannot be read" in text
        assert not _COMMANDS & set(text)


def test_a_pipe_in_the_place_of_a_page_keeps_nobody_waiting(vault: Vault) -> None:
    core = vault.core
    transcript(core, "Let us keep a list of all ships.")
    core.call("capture")
    core.call("sync")
    page = core.home / "agents" / "claude-code" / "CONTEXT.md"
    page.parent.mkdir(parents=True)
    os.mkfifo(page)
    failed = core.call("dream-weave", "--provider", "none", check=False)
    assert failed.code == 8
    assert "is no file" in failed.err
    page.unlink()
    core.call("dream-weave", "--provider", "none")
