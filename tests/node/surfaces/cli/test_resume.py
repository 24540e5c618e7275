"""`crystal resume`: a session of another machine goes on here. A program that says how it was started stands for the tool."""

import os
import signal
import stat
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from crystal_node.base.errors import ExitCode
from crystal_node.derive.resume.rows import read_index
from crystal_node.derive.sessions.layout import HEAD_NAME, Head, segment_path
from crystal_node.sync.files.marker import read_marker
from tests.support.machine import Machine, Vault, turn
from tests.support.openclaw_store import Store
from tests.support.relay_process import RelayProcess
from tests.support.session_copies import DESKTOP, LAPTOP, written_copy, written_long_ago
from tests.support.terminal import terminal

TIDE = "5e1c0f7a-0000-4000-8000-000000000001"
GULLS = "6f2d1a8b-0000-4000-8000-000000000002"
LINES = (
    turn("Why does the export start late?", session=TIDE) + turn("After the backup.", session=TIDE)
).encode()
REPOSITORY = "example.org/ada/tide-gauge"
TOOL = """#!/bin/sh
echo "started $0 in $PWD with $*"
cat "$HOME"/.claude/projects/*/*.jsonl | wc -l
"""


@pytest.fixture(scope="module")
def prepared(relay: RelayProcess, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    machine = Vault(relay, tmp_path_factory.mktemp("resume")).core
    machine.call("sync")
    return machine


@pytest.fixture
def machine(prepared: Machine, tmp_path: Path) -> Machine:
    """A machine of a vault with a clone of the project and the tool."""
    subprocess.run(["cp", "-a", prepared.root, tmp_path / "ada"], check=True)
    here = Machine(tmp_path / "ada", {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"})
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "claude"
    program.write_text(TOOL)
    program.chmod(0o755)
    clone(here.root / "work" / "tide-gauge")
    return here


def clone(folder: Path, repository: str = REPOSITORY) -> None:
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "config").write_text(f'[remote "origin"]\n\turl = https://{repository}.git\n')


def copy(
    machine: Machine, session: str = TIDE, data: bytes = LINES, device: str = LAPTOP, **about: Any
) -> Head:
    """A copy of a session that another machine has sent."""
    known: dict[str, Any] = {
        "cwd": "~/work/tide-gauge",
        "repository": REPOSITORY,
        "title": "Why does the export start late?",
        "last_words": "After the backup.",
        "updated_at": 1_795_000_000_000,
    }
    return written_copy(machine.home, "claude-code", session, data, device, **(known | about))


def place(machine: Machine, session: str = TIDE, folder: str = "work/tide-gauge") -> Path:
    slug = "".join(char if char.isalnum() else "-" for char in str(machine.root / folder))
    return machine.projects / slug / f"{session}.jsonl"


def test_it_says_what_it_would_do_and_does_nothing(machine: Machine) -> None:
    copy(machine, branch="tides", commit="a" * 40, changed=("gauge.py", "\x1b[2Jx"))
    shown = machine.call("resume", TIDE[:8], "--print")
    assert f"write {len(LINES)} B to {place(machine)}" in shown.out
    assert f"cd {machine.root}/work/tide-gauge && claude --resume {TIDE}" in shown.out
    assert "it had seen branch tides, commit aaaaaaaaaaa…, 2 uncommitted files" in shown.err
    assert "\x1b" not in shown.err
    document = machine.call("resume", "--last", "--json").json
    assert document["command"] == ["claude", "--resume", TIDE]
    assert document["writes"] == [{"file": str(place(machine)), "bytes": len(LINES)}]
    assert (document["relation"], document["device"]) == ("absent", LAPTOP)
    assert not machine.projects.exists()


def test_the_tool_is_started_in_the_projects_folder(machine: Machine) -> None:
    copy(machine)
    with terminal(machine, "resume", TIDE) as shown:
        assert shown.end() == 0
        assert f"in {machine.root}/work/tide-gauge with --resume {TIDE}" in shown.shown
    assert place(machine).read_bytes() == LINES
    assert stat.S_IMODE(place(machine).stat().st_mode) == 0o600


def test_a_session_is_chosen_from_the_list_by_typing(machine: Machine) -> None:
    copy(machine)
    copy(machine, GULLS, title="Count the \x1b[31mgulls", updated_at=1_795_000_100_000)
    with terminal(machine, "resume") as shown:
        shown.until("2 of 2")
        assert "\x1b[31m" not in shown.shown
        assert shown.shown.index("Count the") < shown.shown.index("Why does")
        shown.type("expo")
        shown.until("1 of 2")
        shown.type("\r")
        assert shown.end() == 0
        assert f"--resume {TIDE}" in shown.shown
    with terminal(machine, "resume") as shown:
        shown.until("2 of 2")
        shown.type("\x1b")
        assert shown.end() == 0
        assert "started" not in shown.shown


def test_without_a_session_there_is_no_empty_list_but_a_word(machine: Machine) -> None:
    for term in ("xterm", "dumb"):
        with terminal(machine, "resume", TERM=term) as shown:
            assert shown.end() == 10
            assert "there is no session yet" in shown.shown
            assert "crystal sync" in shown.shown
    assert "there is no session yet" in machine.call("resume", "--last", check=False).err
    copy(machine)
    with terminal(machine, "resume", "--project", "another") as shown:
        assert shown.end() == 10
        assert "there is no such session" in shown.shown


def test_a_dumb_terminal_gets_a_numbered_list(machine: Machine) -> None:
    copy(machine)
    with terminal(machine, "resume", TERM="dumb") as shown:
        shown.until("Which one")
        assert "  1  " in shown.shown
        shown.type("1\n")
        assert shown.end() == 0
        assert f"--resume {TIDE}" in shown.shown


def test_without_a_terminal_the_error_names_the_command(machine: Machine) -> None:
    copy(machine)
    refused = machine.call("resume", check=False)
    assert refused.code == 2
    assert "`crystal resume ID`" in refused.err


def test_a_project_that_is_not_known_is_asked_for_once(machine: Machine, tmp_path: Path) -> None:
    copy(machine, cwd="/srv/elsewhere", repository="example.org/ada/other")
    refused = machine.call("resume", TIDE, "--print", check=False)
    assert refused.code == 10
    assert "git clone https://example.org/ada/other" in refused.err
    clone(tmp_path / "my other", "example.org/ada/other")
    with terminal(machine, "resume", TIDE) as shown:
        shown.until("Its folder here")
        shown.type(f"{tmp_path}/my other\n")
        assert shown.end() == 0
        assert f"in {tmp_path}/my other with" in shown.shown
    copy(machine, GULLS, cwd="/srv/elsewhere", repository="example.org/ada/other")
    assert machine.call("resume", GULLS, "--json").json["folder"] == f"{tmp_path}/my other"


def test_a_hostile_address_is_no_clone_command(machine: Machine) -> None:
    copy(machine, cwd="/srv/elsewhere", repository="example.org/a; rm -rf ~/$(id)")
    refused = machine.call("resume", TIDE, "--print", check=False)
    assert "git clone" not in refused.err


def test_a_session_that_is_live_elsewhere_is_asked_about(machine: Machine) -> None:
    copy(machine, updated_at=int(time.time() * 1000))
    refused = machine.call("resume", TIDE, check=False)
    assert refused.code == 2
    assert "may still go on there" in refused.err
    with terminal(machine, "resume", TIDE) as shown:
        shown.until("Go on here? [y/N]")
        shown.type("n\n")
        shown.end()
        assert "started" not in shown.shown
    with terminal(machine, "resume", TIDE, "--yes") as shown:
        assert shown.end() == 0


def test_on_return_the_first_machine_goes_on_with_both_halves(machine: Machine) -> None:
    own = place(machine)
    own.parent.mkdir(parents=True)
    own.write_bytes(LINES)
    written_long_ago(own)
    copy(machine, data=LINES + turn("Move it", session=TIDE).encode(), device=DESKTOP)
    with terminal(machine, "resume", "--last") as shown:
        assert shown.end() == 0
        assert "3\r\n" in shown.shown
    assert own.read_bytes().startswith(LINES)
    assert own.read_bytes().count(b"\n") == 3


@pytest.mark.parametrize("repository", [REPOSITORY, ""])
def test_a_session_that_went_on_in_another_folder_elsewhere_comes_back_to_its_own_here(
    machine: Machine, repository: str
) -> None:
    """Though another machine has more of it; so does another session of the same repository."""
    marker = read_marker(machine.home)
    assert marker is not None
    copy(machine, device=marker.device, repository=repository)
    more = LINES + turn("Move it", session=TIDE).encode()
    copy(machine, data=more, device=DESKTOP, cwd="~/src/elsewhere", repository=repository)
    assert machine.call("resume", TIDE, "--json").json["folder"] == f"{machine.root}/work/tide-gauge"
    copy(machine, GULLS, device=DESKTOP, cwd="~/src/elsewhere", repository=repository)
    other = machine.call("resume", GULLS, "--json", check=False)
    assert other.code == (0 if repository else 10)
    if repository:
        assert other.json["folder"] == f"{machine.root}/work/tide-gauge"


def test_sessions_that_went_on_separately_are_both_kept(machine: Machine) -> None:
    own = place(machine)
    own.parent.mkdir(parents=True)
    own.write_bytes(mine := LINES + turn("mine", session=TIDE).encode())
    copy(machine, data=LINES + turn("theirs", session=TIDE).encode())
    shown = machine.call("resume", TIDE, "--print")
    assert "went on separately" in shown.err
    with terminal(machine, "resume", TIDE) as started:
        assert started.end() == 0
    assert own.read_bytes() == mine
    (fork,) = [path for path in own.parent.iterdir() if path != own]
    assert b"theirs" in fork.read_bytes()
    assert TIDE.encode() not in fork.read_bytes()


def test_a_session_that_is_being_written_here_is_left_alone(machine: Machine) -> None:
    own = place(machine)
    own.parent.mkdir(parents=True)
    own.write_bytes(LINES)
    copy(machine, data=LINES + turn("Move it", session=TIDE).encode())
    refused = machine.call("resume", TIDE, check=False)
    assert refused.code == ExitCode.BUSY
    assert "was written to a moment ago" in refused.err
    assert "Wait until the tool has answered and leave it" in refused.err
    assert own.read_bytes() == LINES


def test_a_tool_that_is_not_installed_is_named(machine: Machine) -> None:
    copy(machine)
    refused = machine.call("resume", TIDE, check=False, PATH="/nonexistent")
    assert refused.code == 10
    assert "Claude Code (`claude`) is not installed" in refused.err
    assert not machine.projects.exists()


@pytest.mark.parametrize("damage", ["away", "another"])
def test_a_copy_that_is_not_all_here_or_damaged_writes_nothing(machine: Machine, damage: str) -> None:
    head = copy(machine)
    segment = segment_path(head.place.folder(machine.home), head.main, head.main.segments[0])
    if damage == "away":
        segment.unlink()
    else:
        segment.write_bytes(b"\0" * 20)
    refused = machine.call("resume", TIDE, check=False)
    assert refused.code == 8
    assert ("has not arrived" if damage == "away" else "cannot be read") in refused.err
    assert not machine.projects.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("resume", "5e1"), "too short"),
        (("resume", "ffffffff"), "no session's id begins with"),
        (("resume", "--last", "--tool", "abacus"), "no sessions of abacus"),
        (("resume", "--last", "--project", "nowhere"), "no such session"),
        (("resume", TIDE, "--in", "/nowhere/at/all"), "is no folder"),
    ],
)
def test_what_is_not_there_is_said(machine: Machine, arguments: tuple[str, ...], said: str) -> None:
    copy(machine)
    refused = machine.call(*arguments, check=False)
    assert refused.code in (2, 10)
    assert said in refused.err


def test_an_id_of_the_list_of_conversations_is_taken_too(machine: Machine) -> None:
    folder = machine.projects / "-home-someone-work"
    folder.mkdir(parents=True)
    (folder / f"{TIDE}.jsonl").write_bytes(LINES)
    machine.call("capture")
    copy(machine)
    (listed,) = machine.call("sessions", "list", "--json").json["conversations"]
    assert machine.call("resume", listed["id"][:12], "--json").json["session"] == TIDE


def test_a_conversation_without_a_copy_is_told_from_one_that_is_unknown(machine: Machine) -> None:
    """As of OpenClaw's database, which `crystal capture` reads into the memory; the background service copies it."""
    with closing((store := Store(machine.root / ".openclaw")).database):
        store.say("main-session", 1, "Where does the heron nest?")
    machine.call("capture")
    (listed,) = machine.call("sessions", "list", "--json").json["conversations"]
    assert listed["tool"] == "openclaw"
    refused = machine.call("resume", listed["id"][:12], check=False)
    assert refused.code == 10
    assert "no copy of its session is here" in refused.err
    assert "crystal sessions show" in refused.err
    assert "heron" in machine.call("sessions", "show", listed["id"]).out


def test_a_session_of_openclaws_database_says_who_writes_it(machine: Machine) -> None:
    folder = machine.root / "work" / "tide-gauge"
    with closing((store := Store(machine.root / ".openclaw")).database):
        store.say("another", 0, "Where does the heron nest?")
        written_copy(machine.home, "openclaw", TIDE, b'{"type":"session"}\n', LAPTOP, cwd="~/work/tide-gauge")
        shown = machine.call("resume", TIDE, "--in", str(folder), "--print")
    assert "OpenClaw's own import adds it to its database" in shown.err
    assert f"openclaw-agent.sqlite/{TIDE}.jsonl" in shown.out
    assert f"openclaw tui --local --session agent:main:{TIDE}" in shown.out


def test_a_database_of_another_agent_that_cannot_be_read_is_named(machine: Machine) -> None:
    def remarks() -> list[str]:
        given = machine.call("resume", TIDE, "--in", str(machine.root / "work" / "tide-gauge"), "--json")
        return [each for each in given.json["remarks"] if "cannot be read" in each]

    with closing((store := Store(machine.root / ".openclaw")).database):
        store.say(GULLS, 0, "Something else.")
        written_copy(machine.home, "openclaw", TIDE, b'{"type":"session"}\n', LAPTOP, cwd="~/work/tide-gauge")
        assert remarks() == []
        damaged = machine.root / ".openclaw" / "agents" / "work" / "agent" / store.path.name
        damaged.parent.mkdir(parents=True)
        damaged.write_bytes(b"SQLite format 3\0" + b"\xff" * 4096)
        (said,) = remarks()
        assert said.startswith(f"{damaged} cannot be read (its database says: ")
        assert "stays there" in said


def test_the_list_follows_the_copies(machine: Machine) -> None:
    copy(machine)
    assert machine.call("resume", "--last", "--json").json["title"] == "Why does the export start late?"
    head = copy(machine, title="Another title")
    assert machine.call("resume", "--last", "--json").json["title"] == "Another title"
    (head.place.folder(machine.home) / HEAD_NAME).unlink()
    assert machine.call("resume", "--last", "--json", check=False).code == 10
    listed = machine.home / "state" / "resume.db"
    listed.write_text("[" * 10_000)
    copy(machine)
    assert machine.call("resume", "--last", "--json").json["session"] == TIDE
    assert read_index(str(machine.home)).sessions.keys() == {f"claude-code/{TIDE}"}
    assert stat.S_IMODE(listed.stat().st_mode) == 0o600


def words_in(folder: Path, words: str) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and words.encode() in path.read_bytes()]


def test_a_forget_leaves_nothing_of_what_resuming_wrote(machine: Machine) -> None:
    secret = "The key of the shed hangs behind the 3rd gull"
    machine.call("remember", "--keep-both", secret)
    head = copy(machine, data=turn(secret, session=TIDE).encode(), title=secret, last_words=secret)
    with terminal(machine, "handoff", TIDE, "--to", "claude") as shown:
        assert shown.end() == 0
    half = machine.home / "state" / "resume" / "torn" / "a-1.part"
    half.parent.mkdir(parents=True)
    half.write_text(secret)
    assert len(words_in(machine.home / "state" / "handoff", secret)) == 1
    machine.call("forget", secret, "--yes")
    names = ("handoff", "resume", "resume.db", "resume.db-wal")
    left = [
        path
        for path in words_in(machine.home / "state", secret)
        if path.relative_to(machine.home).parts[1] in names
    ]
    assert left == []
    # The copy has not lost it yet: a list that is made meanwhile loses it once the copy has.
    machine.call("resume", "--last", "--json")
    assert (machine.home / "state" / "resume.db") in words_in(machine.home / "state", secret)
    copy(machine, data=LINES, title="[forgotten]", last_words="[forgotten]", forgotten=1)
    assert head.title == secret
    assert "old part" in machine.call("jobs", "run", "resume-forget").out
    left = [path for path in words_in(machine.home / "state", secret) if path.name.startswith("resume.db")]
    assert left == []


def test_what_is_old_goes_and_without_a_forget_the_rest_stays(machine: Machine) -> None:
    copy(machine)
    with terminal(machine, "handoff", TIDE, "--to", "claude") as shown:
        assert shown.end() == 0
    (told,) = (machine.home / "state" / "handoff").iterdir()
    torn = machine.home / "state" / "resume" / "torn"
    torn.mkdir(parents=True)
    (torn / "new.part").write_text("half")
    (torn / "old.part").write_text("half")
    written_long_ago(torn / "old.part")
    machine.call("jobs", "run", "resume-forget")
    assert [path.name for path in torn.iterdir()] == ["new.part"]
    written_long_ago(told)
    machine.call("jobs", "run", "resume-forget")
    assert not told.exists()
    assert read_index(str(machine.home)).sessions


def test_the_list_of_an_earlier_version_is_removed(machine: Machine) -> None:
    former = machine.home / "state" / "resume" / "index.json"
    former.parent.mkdir(parents=True)
    for command in (("jobs", "run", "resume-forget"), ("resume", "--last", "--json")):
        copy(machine)
        former.write_text('{"sessions":{"claude-code/x":"what was said, readable by any program"}}')
        machine.call(*command)
        assert not former.exists()


def test_the_list_is_encrypted_where_the_homes_databases_are(machine: Machine) -> None:
    copy(machine)
    machine.call("resume", "--last", "--json")
    listed = machine.home / "state" / "resume.db"
    assert b"export start late" in listed.read_bytes()
    machine.call("keys", "encrypt")
    assert b"export start late" not in listed.read_bytes()
    with terminal(machine, "resume") as shown:
        shown.until("1 of 1")
        shown.type("\x1b")
        assert shown.end() == 0


def test_what_a_tool_deleted_is_restored(machine: Machine, tmp_path: Path) -> None:
    copy(machine)
    copy(machine, GULLS, cwd="~/gone/gulls", repository="")
    shown = machine.call("sessions", "restore", "--project", "tide-gauge")
    assert "Restored 1 session" in shown.err
    assert place(machine).read_bytes() == LINES
    place(machine).unlink()
    document = machine.call("sessions", "restore", "--all", "--json").json
    assert {each["session"] for each in document["restored"]} == {TIDE, GULLS}
    assert place(machine, GULLS, "gone/gulls").read_bytes() == LINES
    again = machine.call("sessions", "restore", "--all", "--json").json
    assert again["restored"] == []
    assert {each["why"] for each in again["left"]} == {"the tool has it"}
    machine.call("sessions", "restore", TIDE, "--to", f"{tmp_path}/out")
    assert [path.name for path in (tmp_path / "out" / "claude-code").rglob("*.jsonl")] == [f"{TIDE}.jsonl"]
    assert machine.call("sessions", "restore", check=False).code == 2


def test_a_restore_keeps_what_the_tool_has_of_its_own(machine: Machine) -> None:
    own = place(machine)
    own.parent.mkdir(parents=True)
    own.write_bytes(mine := LINES + turn("mine", session=TIDE).encode())
    copy(machine, data=LINES + turn("theirs", session=TIDE).encode())
    (left,) = machine.call("sessions", "restore", TIDE, "--json").json["left"]
    assert "another way" in left["why"]
    assert "1: this machine's own session went another way" in machine.call("sessions", "restore", TIDE).err
    assert [path.read_bytes() for path in machine.projects.rglob("*.jsonl")] == [mine]


def test_one_that_cannot_be_restored_keeps_no_other_from_it(machine: Machine) -> None:
    head = copy(machine)
    copy(machine, GULLS)
    segment_path(head.place.folder(machine.home), head.main, head.main.segments[0]).unlink()
    shown = machine.call("sessions", "restore", "--all", check=False)
    assert shown.code == 8
    assert GULLS in shown.out
    assert "has not arrived here yet" in shown.err
    assert "crystal sync" in shown.err


def test_hostile_heads_keep_no_other_session_from_being_restored(machine: Machine) -> None:
    copy(machine, GULLS)
    copy(machine, "\x1b]0;x\x07; touch owned", updated_at=1, cwd="~/work/tide-gauge")
    copy(machine, TIDE, cwd="/" + "a" * 300, repository="", updated_at=2)
    late = written_copy(machine.home, "codex", TIDE, LINES, LAPTOP, cwd="~/work/tide-gauge", started_at=2**53)
    assert late.started_at
    shown = machine.call("sessions", "restore", "--all", check=False)
    assert GULLS in shown.out
    assert "\x1b" not in shown.out + shown.err
    assert "bug in Crystal" not in shown.err
    assert list(machine.root.glob(".codex/sessions/1970/01/01/*.jsonl"))


def test_an_id_that_no_tool_made_is_no_part_of_a_command_to_copy(machine: Machine) -> None:
    copy(machine, "gulls; touch owned", cwd="/srv/elsewhere", repository="")
    refused = machine.call("resume", "gulls; touch", "--print", check=False)
    assert refused.code == 10
    assert "`crystal resume ID --in FOLDER`" in refused.err
    assert "owned" not in refused.err


def test_showing_what_would_be_done_remembers_no_folder(machine: Machine, tmp_path: Path) -> None:
    copy(machine, cwd="/srv/elsewhere", repository="example.org/ada/other")
    clone(tmp_path / "other", "example.org/ada/other")
    for quiet in ("--print", "--json"):
        machine.call("resume", TIDE, "--in", str(tmp_path / "other"), quiet)
    assert machine.call("resume", TIDE, "--print", check=False).code == 10


def test_a_named_folder_is_kept_though_it_is_no_clone(machine: Machine, tmp_path: Path) -> None:
    copy(machine, cwd="/srv/elsewhere", repository="example.org/ada/other")
    (tmp_path / "unpacked").mkdir()
    with terminal(machine, "resume", TIDE, "--in", str(tmp_path / "unpacked")) as shown:
        assert shown.end() == 0
    again = machine.call("resume", TIDE, "--json").json
    assert again["folder"] == f"{tmp_path}/unpacked"
    assert any("is not a clone of" in each for each in again["remarks"])


def test_a_folder_for_a_session_of_no_project_is_no_other_sessions(machine: Machine, tmp_path: Path) -> None:
    copy(machine, cwd="", repository="")
    copy(machine, GULLS, cwd="", repository="")
    with terminal(machine, "resume", TIDE, "--in", str(tmp_path)) as shown:
        assert shown.end() == 0
    assert machine.call("resume", GULLS, "--print", check=False).code == 10


def test_the_tool_gets_pythons_ignored_signals_back(machine: Machine, tmp_path: Path) -> None:
    copy(machine)
    (tmp_path / "bin" / "claude").write_text("#!/bin/sh\ngrep SigIgn /proc/$$/status\n")
    with terminal(machine, "resume", TIDE) as shown:
        assert shown.end() == 0
        ignored = int(shown.shown.rpartition("SigIgn:")[2].split()[0], 16)
    assert not ignored & (1 << (signal.SIGPIPE - 1))


def test_another_tool_is_told_of_a_session(machine: Machine, tmp_path: Path) -> None:
    copy(machine)
    program = tmp_path / "bin" / "codex"
    program.write_text('#!/bin/sh\necho "told $2"\necho "$2" | sed "s/.* in //" | xargs cat\n')
    program.chmod(0o755)
    told = machine.call("handoff", TIDE, "--to", "codex", "--print").out
    assert "Why does the export start late?" in told
    document = machine.call("handoff", "--last", "--to", "gemini", "--json", "--tokens", "500").json
    assert (document["session"], document["to"]) == (TIDE, "gemini-cli")
    with terminal(machine, "handoff", TIDE, "--to", "codex") as shown:
        assert shown.end() == 0
        assert "told Go on with the session that is described in" in shown.shown
        assert "Why does the export start late?" in shown.shown
    (folder,) = (machine.home / "state" / "handoff").iterdir()
    (file,) = folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    written_long_ago(folder)
    with terminal(machine, "handoff", TIDE, "--to", "codex") as shown:
        assert shown.end() == 0
    (other,) = (machine.home / "state" / "handoff").iterdir()
    assert other != folder
    refused = machine.call("handoff", TIDE, "--to", "qwen", check=False, PATH="/nonexistent")
    assert "Qwen Code (`qwen`) is not installed" in refused.err
