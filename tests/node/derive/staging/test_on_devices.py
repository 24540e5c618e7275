"""Staging and files as a person meets them: two machines, a relay, and the commands."""

import asyncio
import json
import os
from pathlib import Path
from unittest import mock

from crystal_node.base.events import WatchEvent
from crystal_node.base.settings import resolve
from crystal_node.derive.artefacts import job as artefacts_job
from crystal_node.derive.staging import job as staging_job
from crystal_node.device.device import opened
from crystal_node.sync.job_context import JobContext
from tests.support.machine import Machine, Vault, transcript

LAPTOP = "laptop-agent"


def run_jobs(machine: Machine) -> list[str]:
    """The agent's two duties, once each where they are due. What they said."""

    async def work() -> list[str]:
        told: list[str] = []

        def report(event: WatchEvent, text: str) -> None:
            if event is WatchEvent.NEWS:
                told.append(text)

        with mock.patch.dict(os.environ, machine.environment, clear=True), opened(resolve()) as device:
            # Neither duty touches the network.
            agent = JobContext(device, None, report)  # type: ignore[arg-type]
            duties = [*artefacts_job.jobs(agent), *staging_job.jobs(agent)]
            return [await duty.run() for duty in duties if duty.due()] + told

    return asyncio.run(work())


def below(machine: Machine, folder: str) -> list[str]:
    return sorted(
        path.relative_to(machine.home).as_posix()
        for path in (machine.home / folder).rglob("*")
        if path.is_file()
    )


def test_a_laptops_agent_is_staged_asked_about_woven_and_its_files_travel(vault: Vault) -> None:
    laptop = vault.add()
    laptop.extra["CRYSTAL_AGENT_ID"] = LAPTOP
    transcript(laptop, "The importer retries eleven times.", "Why eleven?")
    laptop.call("capture")
    vault.settle()
    assert vault.core.found("importer retries")
    assert any("is new here" in line for line in run_jobs(vault.core))
    (listed,) = vault.core.call("staging", "list", "--json").json["agents"]
    assert (listed["agent"], listed["state"], listed["waits_for_a_person"]) == (LAPTOP, "asking", True)
    assert f"crystal staging run {LAPTOP}" in vault.core.call("staging", "list").out
    refused = laptop.call("staging", "run", LAPTOP, check=False)
    assert refused.code != 0
    assert "the Core" in refused.err
    done = vault.core.call("staging", "run", LAPTOP, "--weave", "extractive", "--json").json
    assert done["state"] == "live"
    assert below(vault.core, "staging") == []
    assert vault.core.call("staging", "list").out == "No agent waits in staging.\n"
    assert [path.rpartition("/")[0] for path in below(vault.core, f"agents/{LAPTOP}/memory/transcripts")] == [
        f"agents/{LAPTOP}/memory/transcripts"
    ]
    vault.settle()
    assert below(laptop, f"agents/{LAPTOP}/memory") == below(vault.core, f"agents/{LAPTOP}/memory")
    assert run_jobs(laptop) == []  # neither is a Node's duty


def test_a_forget_reaches_the_files_of_all_machines(vault: Vault) -> None:
    laptop = vault.add()
    transcript(vault.core, "The door code is 4711.", "Noted.")
    vault.core.call("capture")
    vault.settle()
    run_jobs(vault.core)
    vault.settle()
    hits = laptop.call("search", "--json", "door code").json["results"]
    forgotten = laptop.call("forget", *[hit["id"] for hit in hits if "4711" in hit["text"]])
    assert "yours to change" not in forgotten.err
    assert forgotten.err.count("the Core makes it again without") == 3
    vault.settle()
    run_jobs(vault.core)
    vault.settle()
    for machine in vault.machines:
        files = [machine.home / path for path in below(machine, "agents")]
        assert files
        assert not any("4711" in path.read_text(encoding="utf-8") for path in files)


def test_a_conversation_of_which_all_was_forgotten_is_in_no_machines_trash_either(vault: Vault) -> None:
    laptop = vault.add()
    transcript(vault.core, "The door code is 4711.")
    vault.core.call("capture")
    vault.settle()
    run_jobs(vault.core)
    vault.settle()
    held = below(laptop, "agents")
    assert len(held) == 3
    own = laptop.home / held[0]
    own.write_text(own.read_text(encoding="utf-8") + "a line of my own\n", encoding="utf-8")
    (hit,) = laptop.call("search", "--json", "door code").json["results"]
    laptop.call("forget", hit["id"])
    vault.settle()
    run_jobs(vault.core)
    vault.settle()
    assert below(vault.core, "agents") == []
    left = [path for path in laptop.home.rglob("*") if path.is_file() and b"4711" in path.read_bytes()]
    assert [path for path in left if "a line of my own" not in path.read_text(encoding="utf-8")] == []


def test_a_rejected_agent_can_be_forgotten_with_all_that_it_alone_has_said(vault: Vault) -> None:
    laptop = vault.add()
    laptop.extra["CRYSTAL_AGENT_ID"] = LAPTOP
    transcript(laptop, "Words of a stranger.", "Yes.")
    transcript(vault.core, "Yes.", name="another")
    laptop.call("capture")
    vault.core.call("capture")
    vault.settle()
    run_jobs(vault.core)
    asked = vault.core.call("staging", "reject", LAPTOP, "--forget", check=False, typed="no\n")
    assert asked.code == 2
    assert vault.core.call("staging", "list", "--json").json["agents"][0]["state"] == "asking"
    done = vault.core.call("staging", "reject", LAPTOP, "--forget", "--yes", "--json").json
    assert (done["state"], done["forgotten"], done["kept_for_others"]) == ("rejected", 1, 1)
    vault.settle()
    assert "Words of a stranger." not in laptop.found("stranger")
    assert laptop.found("Yes") == ["Yes."]
    assert below(vault.core, f"agents/{LAPTOP}") == below(vault.core, "staging") == []


def test_many_files_of_a_refused_agent_go_from_all_machines_without_another_question(vault: Vault) -> None:
    laptop = vault.add()
    laptop.extra["CRYSTAL_AGENT_ID"] = LAPTOP
    for number in range(9):
        transcript(laptop, f"Talk {number}.", name=f"talk-{number}")
    laptop.call("capture")
    vault.settle()
    run_jobs(vault.core)
    vault.settle()
    assert len(below(laptop, "agents")) == 9 + 9 + 1
    vault.core.call("staging", "reject", LAPTOP)
    vault.settle()
    assert below(vault.core, "agents") == below(laptop, "agents") == []
    assert below(laptop, ".trash") == []
    (laptop.home / "notes.md").write_text("mine", encoding="utf-8")
    vault.settle()
    (laptop.home / "notes.md").unlink()
    vault.settle()  # what went before is not counted against it
    assert not (vault.core.home / "notes.md").exists()


def test_a_model_that_was_asked_for_and_is_not_there_is_a_failure_and_another_answer_helps(
    vault: Vault,
) -> None:
    laptop = vault.add()
    laptop.extra["CRYSTAL_AGENT_ID"] = LAPTOP
    transcript(laptop, "Words.")
    laptop.call("capture")
    vault.settle()
    run_jobs(vault.core)
    vault.core.extra["CRYSTAL_SUMMARY_PROVIDER"] = "none"
    failed = vault.core.call("staging", "run", LAPTOP, "--weave", "llm", "--json", check=False)
    assert failed.code == 12
    assert (failed.json["state"], failed.json["step"]) == ("failed", "weaving")
    assert "no language model" in failed.json["failure"]
    assert below(vault.core, "staging")
    run_jobs(vault.core)
    assert vault.core.call("staging", "list", "--json").json["agents"][0]["state"] == "failed"
    done = vault.core.call("staging", "run", LAPTOP, "--weave", "never", "--json", check=False).json
    assert done["state"] == "live"
    assert below(vault.core, "staging") == []
    assert not [path for path in below(vault.core, "agents") if "journals" in path]


def test_every_verb_reports_a_name_that_is_none(vault: Vault) -> None:
    for arguments in (("run", "nobody"), ("reject", "nobody", "--yes")):
        outcome = vault.core.call("staging", *arguments, "--json", check=False)
        assert outcome.code == 10
        assert "nobody" in json.dumps(outcome.error)


def test_an_agent_of_any_name_is_listed_and_can_be_answered_for(vault: Vault, tmp_path: Path) -> None:
    laptop = vault.add()
    laptop.extra["CRYSTAL_AGENT_ID"] = "A.b_C"
    transcript(laptop, "Words.")
    laptop.call("capture")
    vault.settle()
    run_jobs(vault.core)
    (listed,) = vault.core.call("staging", "list", "--json").json["agents"]
    assert (
        vault.core.call("staging", "run", listed["folder"], "--weave", "never", "--json").json["state"]
        == "live"
    )
