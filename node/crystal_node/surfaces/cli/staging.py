"""``crystal staging``: agents that are new to the Core, and what is made of their past."""

import asyncio
import shlex
from enum import StrEnum
from typing import Annotated

import typer

from crystal_node.base.clock import now_ms
from crystal_node.base.errors import ExitCode
from crystal_node.base.settings import resolve
from crystal_node.base.wording import counted, iso, one_line
from crystal_node.derive.artefacts.builder import artefact_builder
from crystal_node.derive.catalog.agents import (
    WAITING,
    Staged,
    StagingState,
    Weave,
    find_staged,
    staged_agents,
)
from crystal_node.derive.staging.service import StagingService, advance, dream_weaver, forget_agent
from crystal_node.device.device import opened
from crystal_node.surfaces.cli.console.options import Json, Yes
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.surfaces.cli.console.prompts import confirm
from crystal_node.sync.members.rights import check_is_core

group = typer.Typer(
    name="staging",
    help="""List agents that are new to the Core, and decide.

Their conversations are in the memory and found at once. What waits is what is made of them: transcripts, summaries and logs
below agents/, and weaving, which may cost money.
""",
    no_args_is_help=True,
)

WAIT_SECONDS = 120.0


class WeaveChoice(StrEnum):
    """How a past is woven."""

    EXTRACTIVE = "extractive"
    LLM = "llm"
    NEVER = "never"


Which = Annotated[str, typer.Argument(metavar="AGENT", help="As `crystal staging list` names it.")]
Every = Annotated[bool, typer.Option("--all", help="Also agents that are live or rejected.")]
How = Annotated[
    WeaveChoice | None,
    typer.Option("--weave", help="How its past is woven: without a model, with one, or not at all."),
]
ForgetIt = Annotated[
    bool, typer.Option("--forget", help="Forget everywhere, for good, what this agent alone has said.")
]


@group.command("list")
def list_(every: Every = False, as_json: Json = False) -> None:
    """List the agents in staging, and what they wait for.

    Example:

        crystal staging list
    """
    found = [one for one in staged_agents(resolve().home) if every or one.state in WAITING]
    if as_json:
        emit({"agents": [_document(one) for one in found]})
        return
    if not found:
        say("No agent waits in staging.")
    width = max([24, *(len(_shown(one)) for one in found)])
    for one in found:
        many = counted(one.conversations, "conversation")
        say(f"{_shown(one):<{width}} {many:<20} {one.words}")
        if one.waits_for_a_person:
            say(f"{'':<{width}} crystal staging run {_quoted(one)} --weave extractive|llm|never")


@group.command("run")
def run_(agent: Which, weave: How = None, as_json: Json = False) -> None:
    """Move an agent on: choose its weaving, or try again.

    It continues where it stopped.

    Example:

        crystal staging run codex --weave extractive
    """
    chosen = None if weave is None else Weave(weave.value)
    settings = resolve()
    with opened(settings) as device:
        check_is_core(device, "stages agents")
        progress = _say_nothing if as_json else note
        given = find_staged(staged_agents(settings.home), agent).agent

        def before(staging: StagingService) -> None:
            staging.hurry(given, now_ms(), chosen)

        asyncio.run(
            advance(
                device,
                settings,
                dream_weaver(device, progress),
                only=given,
                before=before,
                progress=progress,
                wait_seconds=WAIT_SECONDS,
            )
        )
    after = find_staged(staged_agents(settings.home), given)
    if as_json:
        emit(_document(after))
    else:
        say(f"{_shown(after)}: {after.words}")
        if after.state is StagingState.ASKING:
            say("Say how: --weave extractive (no model, no cost), --weave llm, or --weave never.")
    if after.failure:
        raise typer.Exit(ExitCode.MODEL if after.state is StagingState.WEAVING else ExitCode.STORAGE)


@group.command("reject")
def reject(agent: Which, forget: ForgetIt = False, yes: Yes = False, as_json: Json = False) -> None:
    """Reject an agent: make no files of it.

    Its conversations stay in the memory and are found. With --forget, what it alone has said is forgotten on all devices,
    for good. `crystal staging run AGENT` takes a rejected agent back.

    Example:

        crystal staging reject somebody
        crystal staging reject somebody --forget
    """
    settings = resolve()
    with opened(settings) as device:
        check_is_core(device, "stages agents")
        one = find_staged(staged_agents(settings.home), agent)
        if forget and not yes:
            about = (
                f"All that {_shown(one)} alone has said is forgotten on every device. There is no way back.\n"
            )
            confirm("Type forget to go on: ", expect="forget", about=about, as_json=as_json)

        async def work() -> tuple[int, int]:
            async with artefact_builder(device, settings, wait_seconds=WAIT_SECONDS) as builder:
                staging = StagingService(builder)
                staging.reject(one.agent, now_ms())
                await builder.make(now_ms())
                staging.clean()
                return forget_agent(device, builder, one.agent) if forget else (0, 0)

        forgotten, shared = asyncio.run(work())
    after = find_staged(staged_agents(settings.home), one.agent)
    if as_json:
        emit({**_document(after), "forgotten": forgotten, "kept_for_others": shared})
        return
    say(f"{_shown(after)}: {after.words}")
    if forget:
        say(f"Forgotten: {counted(forgotten, 'message')}. Other devices follow with their next sync.")
        if shared:
            say(
                f"{counted(shared, 'message')} stay: others said the same, or it is remembered or stands in a document."
            )


def _document(one: Staged) -> dict[str, object]:
    return {
        "agent": one.agent,
        "folder": one.folder,
        "state": "failed" if one.failure else one.state.value,
        "step": one.state.value,
        "failure": one.failure,
        "since": iso(one.since),
        "weave": one.weave or None,
        "waits_for_a_person": one.waits_for_a_person,
        "conversations": one.conversations,
        "open": one.open,
        "staged": one.staged,
        "made": one.made,
    }


def _shown(one: Staged) -> str:
    return one_line(one.agent, 60) or one.folder


def _quoted(one: Staged) -> str:
    """The agent as it can be pasted into a shell."""
    plain = one.agent.isprintable() and not one.agent.startswith("-") and len(one.agent) <= 60
    return shlex.quote(one.agent) if plain and one.agent else one.folder


def _say_nothing(_: str) -> None:
    """No progress, for programs."""
