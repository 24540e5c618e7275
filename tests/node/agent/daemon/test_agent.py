"""`crystal agent` as a person meets it: one process a home, seen, asked, stopped, killed."""

import json
import os
import signal
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.node.agent.daemon.running import (
    END_SECONDS_MAX,
    agent,
    agent_without_notes,
    children,
    descriptors,
    embedders,
    ended,
    is_running,
)
from tests.support.machine import Machine, Vault, transcript
from tests.support.watchers import until

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="looks into /proc")


def test_it_records_and_sends_what_is_said_and_says_so_in_its_log(vault: Vault) -> None:
    core = vault.core
    with agent(core, "--quiet") as process:
        transcript(core, "the walrus sleeps on the ice")
        until(lambda: core.found("walrus") == ["the walrus sleeps on the ice"], "the text")
        log = core.home / "logs" / "agent.log"
        until(lambda: '"captured"' in log.read_text(), "a line of the log")
        shown = core.call("agent", "logs", "-n", "100", "--json")
        events = [json.loads(line)["event"] for line in shown.out.splitlines()]
        assert {"progress", "captured"} <= set(events)
        assert "walrus" not in log.read_text()
        assert stat.S_IMODE(log.stat().st_mode) == 0o600
        assert children(process.pid) == []
        process.send_signal(signal.SIGTERM)
        assert ended(process) == (0, "", "")


def test_a_file_of_lines_that_are_not_understood_is_named_in_the_log_once(vault: Vault) -> None:
    core = vault.core
    strange = core.projects / "-work" / "strange.jsonl"
    strange.parent.mkdir(parents=True)
    with agent(core, "--quiet"):
        for word in ("walrus", "heron"):
            with strange.open("a") as file:
                file.write('{"kind":"turn"}\n')
            transcript(core, f"the {word} sleeps")
            until(lambda: core.found(word) == [f"the {word} sleeps"], "the text")  # noqa: B023  called at once
            until(lambda: all(not tool["waiting_bytes"] for tool in _tools(core)), "all of it")
        log = (core.home / "logs" / "agent.log").read_text()
    assert log.count("of no kind that is known here") == 1
    assert str(strange) in log


def _tools(machine: Machine) -> list[dict[str, int]]:
    tools: list[dict[str, int]] = machine.call("capture", "status", "--json").json["tools"]
    return tools


def test_a_second_agent_on_a_home_says_who_runs_and_leaves_it_alone(vault: Vault) -> None:
    core = vault.core
    with agent(core) as first:
        second = core.call("agent", "run", check=False)
        assert second.code == 9
        assert f"process {first.pid} (crystal agent)" in second.err
        watcher = core.call("sync", "--watch", check=False)
        assert watcher.code == 9
        assert f"process {first.pid} (crystal agent)" in watcher.err
        assert is_running(core, first)


def test_stop_ends_the_agent_that_was_started_by_hand_and_waits_for_it(vault: Vault) -> None:
    core = vault.core
    with agent(core) as process:
        stopped = core.call("agent", "stop", "--json").json
        assert (stopped["ran"], stopped["by"]) == (True, None)
        assert process.wait(END_SECONDS_MAX) == 0
    assert core.call("agent", "stop", "--json").json["ran"] is False
    assert core.call("agent", "status", "--json").json["running"] is False


def test_stop_leaves_a_persons_own_watcher_alone(vault: Vault) -> None:
    core = vault.core
    process = core.start("sync", "--watch")
    try:
        until(lambda: core.call("agent", "status", "--json").json["watching"], "a watcher")
        refused = core.call("agent", "stop", check=False)
        assert refused.code == 9
        assert f"process {process.pid} (crystal sync --watch)" in refused.err
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()


def test_jobs_are_listed_paused_resumed_and_run_by_the_agent(vault: Vault) -> None:
    core = vault.core
    with agent(core):
        listed = core.call("jobs", "list", "--json").json
        assert listed["running"] is True
        assert {"snapshot", "idle-model"} <= {job["name"] for job in listed["jobs"]}
        assert core.call("jobs", "pause", "snapshot", "--json").json["paused"] is True
        done = core.call("jobs", "run", "snapshot", "--json").json
        assert (done["by"], done["finished"], done["paused"]) == ("agent", True, True)
        assert done["outcome"] in ("done", "nothing")
        assert core.call("jobs", "resume", "snapshot", "--json").json["paused"] is False
        assert core.call("jobs", "run", "sing", check=False).code == 10


def test_a_job_is_run_without_an_agent_by_the_command_itself(vault: Vault) -> None:
    core = vault.core
    assert core.call("jobs", "list", "--json").json == {"running": False, "jobs": []}
    done = core.call("jobs", "run", "snapshot", "--json").json
    assert (done["by"], done["finished"]) == ("here", True)
    others = [job for job in core.call("jobs", "list", "--json").json["jobs"] if job["name"] != "snapshot"]
    assert others
    assert all(job["last_ended"] is None for job in others)


def test_another_setting_is_heard_of_without_a_restart_and_a_damaged_one_changes_nothing(
    vault: Vault,
) -> None:
    core = vault.core
    log = core.home / "logs" / "agent.log"
    with agent(core, "--quiet") as process:
        core.call("config", "set", "pause_on_battery", "yes")
        until(lambda: log.exists() and "the settings were read again" in log.read_text(), "new settings")
        config = core.home / "config.json"
        whole = config.read_text()
        config.write_text(whole[:-3])
        until(lambda: "the settings from before hold on" in log.read_text(), "the complaint")
        config.write_text(json.dumps(json.loads(whole) | {"bandwidth_up": 4096}))
        until(lambda: log.read_text().count("the background service runs as process") == 2, "a new beginning")
        transcript(core, "said after that")
        until(lambda: core.found("said after that") != [], "the text")
        assert process.poll() is None


def test_an_agent_that_cannot_note_its_jobs_records_all_the_same(vault: Vault) -> None:
    core = vault.core
    (core.home / "state" / "jobs.db").mkdir()
    with agent_without_notes(core) as process:
        transcript(core, "recorded without notes")
        until(lambda: core.found("recorded without notes") != [], "the text")
        shown = core.call("agent", "status", "--json").json
        assert (shown["running"], shown["pid"]) == (True, process.pid)
        assert "cannot be used" in shown["problem"]
        process.send_signal(signal.SIGTERM)
        code, _, err = ended(process)
        assert (code, "nothing is noted" in err) == (0, True)


def test_what_was_started_to_outlive_its_terminal_does(vault: Vault) -> None:
    core = vault.core
    process = subprocess.Popen(
        [sys.executable, "-c", _IGNORING_HANGUPS, "agent", "run", "--quiet"],
        env=core.environment,
        stdin=subprocess.DEVNULL,
    )
    try:
        until(lambda: core.call("agent", "status", "--json").json["started_at"] is not None, "an agent")
        process.send_signal(signal.SIGHUP)
        transcript(core, "still there after the hangup")
        until(lambda: core.found("still there after the hangup") != [], "the text")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


def test_agents_that_are_killed_over_and_over_lose_and_double_nothing_and_leave_nothing_in_the_way(
    vault: Vault,
) -> None:
    node = vault.add()
    texts: list[str] = []
    for life in range(3):
        with agent(node) as process:
            for number in range(3):
                texts.append(f"remark {number} of life {life} about the tide gauge")
                transcript(node, texts[-1])
            if life == 1:
                until(lambda: bool(node.found(texts[-1])), "the last text")
            process.kill()
            process.wait()
        assert node.call("agent", "status", "--json").json["running"] is False
    texts.append("a last remark about the tide gauge")
    transcript(node, texts[-1])
    with agent(node):
        until(lambda: set(node.found("tide gauge", "--limit", "50")) >= set(texts), "all texts")
    vault.settle()
    vault.settle()  # a file that changed again is offered once its former offer has gone round
    found = vault.core.found("remark about the tide gauge", "--limit", "100")
    assert sorted(found) == sorted(texts)
    assert len(vault.digests()) == 1


def test_descriptors_stay_as_many_as_they_were_over_hundreds_of_events(vault: Vault) -> None:
    core = vault.core
    with agent(core, "--quiet") as process:
        counts: list[int] = []
        for burst in range(2):
            for number in range(150):
                transcript(core, f"text {number} of {burst}", name=f"session-{number % 7}")
                os.utime(core.home / "state" / "nudge" / "now")
            until(lambda burst=burst: core.found(f"text 149 of {burst}") != [], "the last text")  # type: ignore[misc]
            core.call("jobs", "run", "snapshot")
            counts.append(descriptors(process.pid))
        assert counts[1] <= counts[0] + 12, "more than the relay's connections that are kept"
        assert children(process.pid) == []


def test_the_embedding_model_is_a_process_beside_it_that_is_started_again_and_ends_with_it(
    vault: Vault,
) -> None:
    core = replace(vault.core, fresh=True)  # else it has the libraries that this process loaded
    with agent(core, "--quiet") as process:
        transcript(core, "the walrus sleeps on the ice")
        until(lambda: core.found("walrus") != [], "the text")

        def by_meaning() -> bool:
            answer = core.call("search", "--json", "a sea animal rests").json
            return answer["mode"] == "hybrid" and [each["text"] for each in answer["results"]] == [
                "the walrus sleeps on the ice"
            ]

        until(by_meaning, "an answer by meaning")
        assert "onnxruntime" not in Path(f"/proc/{process.pid}/maps").read_text()
        before = embedders(process.pid)
        assert before
        for each in before:
            os.kill(each, signal.SIGKILL)
        until(lambda: not any(Path(f"/proc/{each}").exists() for each in before), "no zombie is left")
        assert by_meaning()
        after = embedders(process.pid)
        assert len(after) == 1
        process.send_signal(signal.SIGTERM)
        assert ended(process) == (0, "", "")
        until(lambda: not Path(f"/proc/{after[0]}").exists(), "the model's process ended too")


_IGNORING_HANGUPS = """
import signal, sys
signal.signal(signal.SIGHUP, signal.SIG_IGN)
from crystal_node.surfaces.cli import main
sys.exit(main())
"""


def test_a_service_at_rest_has_no_command_line_and_no_other_systems_parsers_in_memory(vault: Vault) -> None:
    unneeded = {"typer", "uvicorn.supervisors", "plistlib", "xml", "crystal_core.weaver.engine", "numpy"}
    code = (
        "import sys, threading, time; "
        f"threading.Thread(target=lambda: (time.sleep(8), print(sorted({unneeded!r} & sys.modules.keys())), "
        "sys.stdout.flush()), daemon=True).start(); "
        "from crystal_node.surfaces.cli import main; sys.exit(main(['agent', 'run', '--quiet']))"
    )
    command = [sys.executable, "-P", "-c", code]
    with subprocess.Popen(command, env=vault.core.environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "[]\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(END_SECONDS_MAX) == 0
        finally:
            process.kill()


def test_a_home_without_a_vault_is_told_before_anything_is_begun(machine: Machine) -> None:
    for words in (("agent", "run"), ("agent", "install"), ("jobs", "run", "snapshot")):
        assert machine.call(*words, check=False).code == 3
    assert not (machine.home / "logs").exists()


_WITH_A_THREAD_THAT_DOES_NOT_END = """
import asyncio, sys, threading
from crystal_node.agent.daemon import process
from crystal_node.base.jobs import Job
process.END_SECONDS_MAX = 0.5

async def hang():
    print("in it", flush=True)
    await asyncio.to_thread(threading.Event().wait)

process.all_jobs = lambda work: [Job("hang", "Hangs.", 60, hang)]
from crystal_node.surfaces.cli import main
sys.exit(main())
"""


def test_a_thread_that_does_not_end_does_not_keep_the_agent_from_ending(vault: Vault) -> None:
    core = vault.core
    process = subprocess.Popen(
        [sys.executable, "-c", _WITH_A_THREAD_THAT_DOES_NOT_END, "agent", "run", "--quiet"],
        env=core.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    try:
        until(lambda: core.call("agent", "status", "--json").json["started_at"] is not None, "an agent")
        asked = core.start("jobs", "run", "hang")
        assert process.stdout is not None
        assert process.stdout.readline() == "in it\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        out, _ = asked.communicate(timeout=20)
        assert "goes on in the background service" in out
        (job,) = core.call("jobs", "list", "--json").json["jobs"]
        assert job["outcome"] == "stopped"
    finally:
        process.kill()
        process.communicate()
