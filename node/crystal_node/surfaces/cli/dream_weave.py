"""``crystal dream-weave``: weave an agent's conversations, on the Core or by asking it."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import Annotated

import typer

from crystal_mirror.commands.messages import Action, Arguments, CommandState
from crystal_node.agent.commands.client import ask_core
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import CommandFailed, NoAnswer, UsageError
from crystal_node.base.settings import Settings, resolve
from crystal_node.base.timespans import parse_since
from crystal_node.base.wording import counted, iso, one_line, size
from crystal_node.derive.weaving import WeaveMode, WeaveRequest, WeaveResult
from crystal_node.derive.weaving.weave import weave
from crystal_node.device.device import Device, opened
from crystal_node.models.llm.discovery import find_llm
from crystal_node.surfaces.cli.console.options import Json, Yes
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.surfaces.cli.console.prompts import ask
from crystal_node.surfaces.cli.console.terminal import is_terminal

WAIT_SECONDS = 24 * 3600.0
"""A Core may be asleep, and a full run takes hours."""


class Provider(StrEnum):
    """The provider of the language model."""

    AUTO = "auto"
    NONE = "none"
    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    OLLAMA = "ollama"
    MLX = "mlx"
    COMPATIBLE = "openai-compatible"
    CLAUDE = "claude-cli"


Whose = Annotated[
    str, typer.Option("--agent", metavar="ID", help="Whose conversations; this device's agent.")
]
How = Annotated[
    WeaveMode, typer.Option("--mode", help="What no run has read yet, or everything from the beginning.")
]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="WHEN", help="Only newer: 24h, yesterday, last week, 2026-01-31."),
]
Whom = Annotated[
    Provider | None,
    typer.Option("--provider", help="Whose model writes; `none` takes sentences over as they are."),
]
Budget = Annotated[
    int | None,
    typer.Option(
        "--budget",
        metavar="TOKENS",
        min=1_000,
        max=10**9,
        help="Stop before more tokens are used; weave_tokens_max.",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only say what there is to read, and what it may cost.")
]


def run(
    agent: Whose = "",
    mode: How = WeaveMode.INCREMENTAL,
    since: Since = None,
    provider: Whom = None,
    budget: Budget = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Weave an agent's conversations into journals, pages and memories.

    The pages are identity, soul, context and reference. The conversations go to the configured language model; if it is not
    on this machine, the cost is estimated and confirmed first. A budget stops it before it is exceeded. Interrupted
    anywhere, it continues when run again, and no answer that was kept is paid for twice. Without a model it is an extract,
    and says so. On a Node it runs on the Core, with the Core's settings.

    Example:

        crystal dream-weave --dry-run
        crystal dream-weave --mode full --budget 500000
    """
    settings = resolve()
    request = WeaveRequest(
        agent,
        mode,
        parse_since(since, now_ms(), settings.capture.nameless_zone()) if since is not None else 0,
        dry_run,
        "" if provider is None else provider.value,
        budget or 0,
    )
    with opened(settings) as device:
        if device.member.is_core:
            _here(device, request, yes=yes, as_json=as_json)
            return
    _at_core(settings, request, as_json=as_json)


def _here(device: Device, request: WeaveRequest, *, yes: bool, as_json: bool) -> None:
    budget = request.budget or device.settings.dreams.tokens_max
    estimate = asyncio.run(weave(device, replace(request, dry_run=True)))
    if request.dry_run:
        if as_json:
            emit(estimate.document())
        else:
            _print_estimate(estimate, budget)
        return
    llm = find_llm(device.settings, request.provider)
    far = llm is not None and not llm.identity.local
    if far and llm is not None and not yes and estimate.sessions_left:
        if not is_terminal():
            raise UsageError(
                f"the conversations would go to {llm.identity.host}, which nobody has agreed to",
                hint="Look with --dry-run, then add --yes, or choose another model with --provider.",
            )
        _print_estimate(estimate, budget, out=note)
        if not ask(f"Send these conversations to {llm.identity.host}? [y/N] "):
            raise UsageError("not confirmed, nothing was done", hint="Add --yes to be asked nothing.")

    last = ""

    def progress(text: str, done: int, total: int) -> None:
        nonlocal last
        line = f"{text}, {done * 100 // max(total, 1)} %"
        if line != last and not as_json:
            note(line)
        last = line

    result = asyncio.run(weave(device, request, progress))
    if as_json:
        emit(result.document())
        return
    _print(result)


def _print_estimate(result: WeaveResult, budget: int, out: Callable[[str], None] = say) -> None:
    estimate = result.estimate
    assert estimate is not None
    out(f"{one_line(result.agent, 64)}, {result.mode.value}, by {one_line(result.model, 100)}.")
    if not estimate.pieces:
        out("Nothing new to read.")
        return
    out(
        f"To read: {counted(estimate.sessions, 'conversation')}, {counted(estimate.pieces, 'message')}, "
        f"{size(estimate.size)}."
    )
    if not estimate.calls:
        out("No model is asked, so nothing is sent and nothing costs anything.")
        return
    out(
        f"About {estimate.tokens_in + estimate.tokens_out:,} tokens in {counted(estimate.calls, 'call')}; "
        f"the budget is {budget:,}."
    )
    if estimate.dollars is None:
        out("What this model costs is not known here.")
    elif estimate.dollars:
        out(f"About {estimate.dollars:.2f} US dollars by the list prices of {estimate.prices_of}.")
    else:
        out("The model is on this machine: nothing is sent elsewhere, and nothing costs anything.")


def _print(result: WeaveResult) -> None:
    say(one_line(result.text, 400))
    if result.tokens_in or result.tokens_out:
        cost = "unknown cost" if result.dollars is None else f"about {result.dollars:.2f} US dollars"
        say(f"{result.tokens_in + result.tokens_out:,} tokens, {cost}.")
    if result.maybe_paid:
        say(
            f"{counted(result.maybe_paid, 'answer')} got lost on the way and may have been paid: "
            f"{result.tokens_maybe_paid:,} tokens at most."
        )
    if result.quotations_cut:
        say(f"{counted(result.quotations_cut, 'quotation')} taken out that stood in no conversation.")
    if result.unread:
        say(f"{counted(result.unread, 'answer')} of the model could not be used; the journals say where.")
    for name in result.journals[-10:]:
        say(f"  {name}")


def _at_core(settings: Settings, request: WeaveRequest, *, as_json: bool) -> None:
    """Raises CommandFailed, NoAnswer."""
    if request.provider:
        raise UsageError(
            "whose model writes is the Core's own setting",
            hint="Set llm_provider there with `crystal config set`, or run this command there.",
        )
    arguments = Arguments(
        agent=request.agent,
        mode=request.mode.value,
        since=iso(request.since) or "",
        dry_run=request.dry_run,
        limit=request.budget,
    )
    outcome = asyncio.run(
        ask_core(
            settings,
            Action.DREAM_WEAVE,
            arguments,
            wait=WAIT_SECONDS,
            progress=None if as_json else note,
        )
    )
    if as_json:
        emit(outcome.document())
    elif outcome.state is CommandState.DONE:
        say(f"On the Core: {one_line(outcome.text, 500)}")
        for name in ("model", "journals_written", "memories_extracted", "sessions_left"):
            value = outcome.result.get(name)
            if isinstance(value, int | str):
                say(f"  {name.replace('_', ' ')}: {one_line(str(value), 100)}")
    if outcome.ended and outcome.state is not CommandState.DONE:
        raise CommandFailed(f"the Core did not weave: {outcome.text or outcome.state.value}")
    if not outcome.ended:
        raise NoAnswer(
            f"no result yet: {outcome.state.value}",
            hint=f"`crystal commands show {outcome.id[:8]}` tells later; it runs only while `crystal agent` runs there.",
        )
