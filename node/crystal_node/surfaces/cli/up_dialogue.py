"""What ``crystal up``, ``down`` and ``uninstall`` ask and say: sentences for people, a JSON document a line for programs."""

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from enum import StrEnum

from crystal_crypto.errors import CrystalError
from crystal_node.base.errors import BadConfig, ExitCode, UsageError
from crystal_node.base.locking import is_held
from crystal_node.base.settings import Settings
from crystal_node.base.settings.checks import checked_url
from crystal_node.base.wording import counted, one_line, printable, size
from crystal_node.device.device import opened
from crystal_node.surfaces.cli.console.output import emit_line, note, say
from crystal_node.surfaces.cli.console.prompts import SECRET_CHARS_MAX, tell_wrong
from crystal_node.surfaces.cli.console.relay_link import split_link
from crystal_node.surfaces.cli.console.terminal import is_terminal
from crystal_node.surfaces.cli.recovery import offer_kit
from crystal_node.surfaces.mcp.clients.installation import ClientState, McpClients
from crystal_node.surfaces.setup.steps import SetupStep, StepOutcome, StepState, exit_code
from crystal_node.surfaces.setup.tools import AiTool

ALL, NONE = "all", "none"
WORTH_A_WORD_BYTES = 64 * 1024 * 1024
"""Of transcripts: some seconds."""


def tell_tools(tools: Sequence[AiTool], *, as_json: bool) -> None:
    """Say which tools were found on this machine."""
    if as_json:
        emit_line({"event": "found", "tools": [tool.document() for tool in tools]})
        return
    say("Found on this machine:")
    for tool in tools:
        if tool.there:
            say(f"  {tool.name:<12} {counted(tool.transcripts, 'transcript')}, {size(tool.size)}")
    missing = [tool.name for tool in tools if not tool.there]
    if missing:
        say(f"  {'not here':<12} {', '.join(missing)}")
    say()


@contextmanager
def stopping() -> Generator[None]:
    """Say how to go on, if the person stops it at a terminal."""
    try:
        yield
    except KeyboardInterrupt as error:
        if is_terminal():
            note("")
        raise Stopped from error


class Stopped(CrystalError):
    """Ctrl-C."""

    exit_code = ExitCode.INTERRUPTED
    hint = "Run `crystal up` again: it goes on, and does nothing twice."

    def __init__(self) -> None:
        super().__init__("stopped")


class PlanAnswer(StrEnum):
    """What a person answers to a plan, beside no."""

    YES = "yes"
    JOIN = "join"
    NAME = "name"
    CHOOSE = "choose"


def ask_name(default: str) -> str:
    """Ask for this machine's name in the vault."""
    return _typed(f"This machine's name ({default}): ", as_typed=True) or default


def ask_relay(default: str = "") -> tuple[str, str]:
    """Ask for the relay's address, "" for none; Enter is the default. Returns it, and the enrolment token of a link."""
    enter = default or "none, while this is the only machine"
    while True:
        typed = _typed(
            f"The relay's address, such as https://relay.example.org (Enter: {enter}): ", as_typed=True
        )
        try:
            url, token = split_link(typed or default)
            return checked_url(url, "your answer"), token
        except BadConfig as error:
            tell_wrong(error)


def ask_tools(known: Sequence[str]) -> str:
    """Ask which tools to record, until all names are known."""
    while True:
        typed = (
            _typed(f"Record the conversations of which tools? [{ALL}/{NONE}/names with commas] ({ALL}) ")
            or ALL
        )
        unknown = [name for name in names_in(typed, known) if name not in known]
        if not unknown:
            return typed
        say(f"There is no {unknown[0]}. There are: {', '.join(known)}.")


def ask_history(tools: Sequence[AiTool]) -> bool:
    """Ask whether to record old conversations."""
    count, total = sum(tool.transcripts for tool in tools), sum(tool.size for tool in tools)
    return ask(f"Record what was said before now, too ({counted(count, 'transcript')}, {size(total)})?")


def ask(question: str) -> bool:
    """Ask a question whose default is yes."""
    while True:
        typed = _typed(f"{question} [yes/no] (yes) ")
        if typed in ("", "y", "yes"):
            return True
        if typed in ("n", "no"):
            return False


def ask_mcp(settings: Settings) -> bool | None:
    """Ask whether to install the MCP server; None if there is no client to install it in."""
    agents = McpClients(settings)
    try:
        states = [agents.look(client).state for client in agents.named(())]
    except CrystalError:
        return None  # the step says what is wrong with it
    if ClientState.MISSING not in states and ClientState.OUTDATED not in states:
        return None
    return ask("Give the agents on this machine your memory, as an MCP server?")


def names_in(text: str, known: Sequence[str]) -> tuple[str, ...]:
    """The tools meant by "all", "none" or a list of names. Unknown names are kept, to be checked by the caller.

    Raises:
        UsageError: there is no name.
    """
    if not text.replace(",", "").strip():
        raise UsageError("no tool is named", hint="Say all, none, or names with commas.")
    if text.strip().lower() == ALL:
        return tuple(known)
    if text.strip().lower() == NONE:
        return ()
    return tuple(dict.fromkeys(name.strip().lower() for name in text.split(",") if name.strip()))


def has_work(plan: Sequence[SetupStep]) -> bool:
    """Whether a step is left to do. A step that cannot be checked yet counts."""
    return any(not step.why_not and not _is_so(step) for step in plan)


def ask_plan(
    plan: Sequence[SetupStep],
    *,
    name: str,
    may_join: bool,
    may_choose: bool,
    about: Sequence[str] = (),
    enter_is_yes: bool = True,
) -> PlanAnswer:
    """Show the plan, and ask until the answer is one. ``name``: this machine's, "" where the vault has it. ``about``: what
    stands above the plan. Enter is yes, unless something would be lost.

    Raises UsageError for no.
    """
    say()
    for line in about:
        say(printable(line))
    say("This is going to be done:")
    for step in plan:
        if not step.why_not and not _is_so(step):
            say(f"  - {step.what}")
    say()
    if name:
        say(f"This machine will be called {one_line(name, 60)}. To change that, answer name.")
    if may_join:
        say(
            "If you have a memory on another machine already, answer join: this machine becomes a part of it."
        )
    if may_choose:
        say("To decide about each of these, answer choose.")
    answers = [
        PlanAnswer.YES,
        *([PlanAnswer.JOIN] if may_join else []),
        *([PlanAnswer.NAME] if name else []),
        *([PlanAnswer.CHOOSE] if may_choose else []),
    ]
    while True:
        typed = _typed(f"Go on? [{'/'.join([*answers, 'no'])}] {'(yes) ' if enter_is_yes else ''}")
        if not typed and not enter_is_yes:
            continue
        if typed in ("n", "no"):
            raise UsageError("nothing was done", hint="Run `crystal up` again at any time.")
        typed = "yes" if typed in ("", "y") else typed
        if typed in answers:
            return PlanAnswer(typed)


def tell_size(tools: Sequence[AiTool]) -> None:
    """Warn if recording will take a while."""
    waiting = sum(tool.waiting for tool in tools if tool.wanted)
    if waiting > WORTH_A_WORD_BYTES:
        note(
            f"There are {size(waiting)} to read: that takes a while. It can be stopped with Ctrl-C, and goes on the next time."
        )


def tell_step(outcome: StepOutcome) -> None:
    """Print how a step ended. Why it failed, or what it waits for, stands at the end, where ``tell_end`` puts it."""
    if outcome.state in (StepState.COULD_NOT, StepState.LATER):
        say(f"{outcome.state:<9}  {outcome.what}")
    elif not outcome.waits:
        for line in outcome.lines():
            say(line)


def _tell_later(outcomes: Sequence[StepOutcome]) -> None:
    for each in outcomes:
        if each.state is StepState.LATER:
            say()
            note(f"crystal: {printable(each.text)}")
            note(f"  {printable(each.hint)}")


def _tell_failures(outcomes: Sequence[StepOutcome]) -> None:
    failed = [each for each in outcomes if each.state is StepState.COULD_NOT]
    if not failed:
        return
    waiting = [each.name for each in outcomes if each.waits]
    say()
    if waiting:
        say(f"Not done because of that: {', '.join(waiting)}.")
    say("Run `crystal up` again when that is mended: it goes on where it stopped.")
    for each in failed:
        note(f"crystal: could not {each.what}: {printable(each.text)}")
        if each.hint:
            note(f"  {printable(each.hint)}")


def tell_end(settings: Settings, outcomes: Sequence[StepOutcome], *, fresh_core: bool, as_json: bool) -> None:
    """Print the status of this machine at the end, and what comes next."""
    running = is_held(settings.home.watch_lock)
    role, name = _role_and_name(settings)
    if as_json:
        emit_line(
            {
                "event": "up",
                "home": str(settings.home.root),
                "vault": settings.config.vault or None,
                "role": role or None,
                "name": name,
                "relay": settings.relay_url or None,
                "agent": running,
                "capture": settings.capture.on,
                "without": sorted(settings.capture.without),
                "exit_code": int(exit_code(outcomes)),
            }
        )
        return
    if role:
        _tell_standing(settings, role, name, running=running)
    if role == "core" and fresh_core and not settings.relay_is_local:
        say()  # with the relay in the home, a kit would bring nothing back
        offer_kit(settings)
    _tell_later(outcomes)
    _tell_failures(outcomes)


def _tell_standing(settings: Settings, role: str, name: str, *, running: bool) -> None:
    say()
    where = "on this machine" if settings.relay_is_local else f"at {settings.relay_url}"
    say(f"{one_line(name, 60)} is a {role.capitalize()} of vault {settings.config.vault[:8]}, {where}.")
    if running:
        reaches = "" if settings.relay_is_local else ", and reaches your other machines"
        say(f"The background service runs: what is said on this machine is recorded{reaches}.")
        if settings.sessions.on and settings.capture.on:
            say(
                "So do copies of raw sessions, without credentials: `crystal config set sessions no` turns that off."
                if reaches
                else "Raw sessions are copied, too, without credentials: `crystal config set sessions no` turns that off."
            )
    else:
        say(
            "The background service is not running: nothing is recorded automatically. Start it here: `crystal agent run`"
        )
    say('Find things again: `crystal search "what did we decide about …"`')
    if role == "core":
        say("To bring another machine in: `crystal pair` here, `crystal up` there.")


def _role_and_name(settings: Settings) -> tuple[str, str]:
    """core, node, or "" for a machine in no vault; and its name there."""
    try:
        with opened(settings) as device:
            return ("core" if device.member.is_core else "node"), device.name
    except CrystalError:
        return "", settings.name.value


def _is_so(step: SetupStep) -> bool:
    try:
        return step.is_so()
    except (CrystalError, OSError):
        return False


def _typed(question: str, *, as_typed: bool = False) -> str:
    sys.stderr.write(question)
    sys.stderr.flush()
    line = sys.stdin.readline(SECRET_CHARS_MAX)
    if not line:
        raise UsageError(
            "nothing was typed, nothing was done", hint="`crystal up --help` shows how to say it by options."
        )
    return line.strip() if as_typed else line.strip().lower()
