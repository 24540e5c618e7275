"""``crystal up``: set everything up after installing, and report each step."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

import typer

from crystal_crypto.pairing import decode
from crystal_mirror.requests import StoreFailure
from crystal_node.agent.hooks.every_tool import hooks_of
from crystal_node.base.errors import BadConfig, UsageError
from crystal_node.base.locking import is_held
from crystal_node.base.settings import LOCAL_RELAY, Flags, Settings, SettingSource, enrolment_token, resolve
from crystal_node.capture.history import History, decided
from crystal_node.device.device import name_in_vault, opened
from crystal_node.device.enrolment import EnrolmentResult, found_vault, join_vault
from crystal_node.device.registration import WrongEnrolmentToken
from crystal_node.surfaces.cli import up_dialogue as people
from crystal_node.surfaces.cli.console.options import DeviceName, Json, MachineRole, Relay, Yes
from crystal_node.surfaces.cli.console.output import emit_line
from crystal_node.surfaces.cli.console.prompts import read_secret, tell_wrong, until_right
from crystal_node.surfaces.cli.console.relay_link import relay_and_token
from crystal_node.surfaces.cli.console.terminal import is_terminal
from crystal_node.surfaces.cli.pair import (
    WRONG_CODES,
    enter,
    first_sync,
    note_name,
    with_relay,
)
from crystal_node.surfaces.cli.pair_code import (
    ask_code,
    check_argument,
    explain_old_code,
    is_invite,
    read_invite,
)
from crystal_node.surfaces.cli.up_dialogue import PlanAnswer
from crystal_node.surfaces.cli.up_merge import own_memory
from crystal_node.surfaces.setup.steps import SetupStep, StepOutcome, carry_out, exit_code
from crystal_node.surfaces.setup.tools import AiTool, check_names, find_tools, read_states
from crystal_node.surfaces.setup.up import SetupWish, up_plan

Role = Annotated[
    MachineRole | None,
    typer.Option("--role", help="core: the first machine of a new vault. node: one that joins."),
]
EnrolToken = Annotated[
    str | None,
    typer.Option(
        "--enroll-token",
        metavar="T",
        help="For a Core: the relay's enrolment token; - reads it. Default: CRYSTAL_RELAY_ENROLL_TOKEN.",
    ),
]
Code = Annotated[
    str | None,
    typer.Option("--code", metavar="CODE", help="For a Node: the invite; - reads it, or an offline code."),
]
Capture = Annotated[
    str | None,
    typer.Option("--capture", metavar="TOOLS", help="Tools to record: all, none, or names with commas."),
]
Past = Annotated[
    bool | None,
    typer.Option("--history/--from-now", help="Record old conversations, too; or only new ones."),
]
Hooks = Annotated[bool | None, typer.Option("--hooks/--no-hooks", help="Install hooks in AI tools.")]
Mcp = Annotated[bool | None, typer.Option("--mcp/--no-mcp", help="Give agents the memory as an MCP server.")]
Service = Annotated[
    bool | None, typer.Option("--service/--no-service", help="Install the background service.")
]


@people.stopping()
def run(
    role: Role = None,
    relay: Relay = None,
    enroll_token: EnrolToken = None,
    code: Code = None,
    name: DeviceName = None,
    capture: Capture = None,
    history: Past = None,
    hooks: Hooks = None,
    mcp: Mcp = None,
    service: Service = None,
    yes: Yes = False,
    as_json: Json = False,
) -> int:
    """Set up this machine: vault, capture, hooks, MCP and background service.

    It looks for AI tools, says what it found, shows what it is going to do, and does it after one Enter. The first machine
    needs no relay elsewhere: `crystal pair` asks for one when you add the second. On the second machine, answer join, or give
    --code. If that machine has a memory of its own, the memory goes along, and its own vault ends; you are asked first. A
    machine is named after its host, unless you answer name. A wrong answer is asked for again. Run it again at any time,
    also after it was interrupted: nothing is done twice. Without a terminal nothing is asked, and everything that is found
    is recorded, unless options say otherwise. With --json each event is one line. The exit code is that of the first step
    that failed.

    Example:

        crystal up
        crystal up --code -
        crystal up --role core --relay https://relay.example.org --enroll-token - --yes
    """
    relay, enroll_token = relay_and_token(relay, enroll_token)
    flags = Flags(relay_url=relay, name=name)
    settings = resolve(flags)
    check_argument(code)
    if role is MachineRole.CORE and code is not None:
        raise UsageError(
            "a Core makes a new vault, it does not join one", hint="Use --role node with --code."
        )
    own = own_memory(settings, lambda: resolve(flags), code)
    settings = resolve(flags)
    _check_flags(settings, role, relay, code, enroll_token, merges=own is not None)
    tools = find_tools(settings, read_states(settings)[1])
    asks = is_terminal() and not yes and not as_json
    people.tell_tools(tools, as_json=as_json)
    chosen = ""
    if settings.vault is None:
        chosen = role.value if role else ("node" if code is not None else "core")
    wish = _wish(settings, tools, chosen, capture, history, hooks, mcp, service, asks=False)
    enrolment = Enrolment(flags, enroll_token, code, asks=asks, yes=yes, as_json=as_json)

    def planned() -> list[SetupStep]:
        steps = up_plan(wish, enrolment.latest, enrolment.of(chosen))
        return steps if own is None else own.into(steps, enrolment, quiet=as_json)

    if own is not None and not asks:
        own.refuse_unasked(yes=yes)
    plan = planned()
    may_join, may_choose = settings.vault is None and role is None and code is None, True
    while asks and people.has_work(plan):
        called = settings.name.value if settings.vault is None else ""
        answer = people.ask_plan(
            plan,
            name=called,
            may_join=may_join,
            may_choose=may_choose,
            about=[] if own is None else own.about,
            enter_is_yes=own is None or own.enter_is_yes,
        )
        if answer is PlanAnswer.YES:
            break
        if answer is PlanAnswer.JOIN:
            may_join, chosen = False, "node"
            wish = replace(wish, role=chosen)
        elif answer is PlanAnswer.NAME:
            enrolment.flags = replace(enrolment.flags, name=people.ask_name(called))
        else:
            may_choose = False
            if chosen == "core" and not settings.relay_url:
                enrolment.take_relay(people.ask_relay())
            wish = _wish(enrolment.latest(), tools, chosen, capture, history, hooks, mcp, service, asks=True)
        settings = enrolment.latest()
        plan = planned()
    if wish.history is History.RECORDED and not as_json:
        people.tell_size(tools)
    outcomes: list[StepOutcome] = []
    for outcome in carry_out(plan):
        if as_json:
            emit_line({"event": "step", **outcome.document()})
        else:
            people.tell_step(outcome)
        outcomes.append(outcome)
    people.tell_end(enrolment.latest(), outcomes, fresh_core=enrolment.founded, as_json=as_json)
    return exit_code(outcomes)


def _check_flags(
    settings: Settings,
    role: MachineRole | None,
    relay: str | None,
    code: str | None,
    token: str | None,
    *,
    merges: bool,
) -> None:
    """Refuse options that contradict each other, or what this machine is already. Raises UsageError."""
    if token is not None and (role is MachineRole.NODE or code is not None):
        raise UsageError(
            "a Node needs no enrolment token", hint="It joins with the code that `crystal pair` shows."
        )
    if settings.vault is None:
        if token is not None and not settings.relay_url:
            raise UsageError("an enrolment token was given, but no relay", hint="Add --relay URL.")
        return
    if merges and token is None:
        return
    if code is not None or token is not None:
        raise UsageError(
            "this machine is in a vault already",
            hint="To mend its access to the relay: `crystal pair --code -`, or on the Core `crystal init --role core`.",
        )
    if relay is not None and settings.config.relay_url and settings.relay_url != settings.config.relay_url:
        raise UsageError(
            f"this machine has its relay: {resolve().relay_words}",
            hint="To move it: `crystal pair --relay URL --enroll-token -`."
            if settings.config.relay_url == LOCAL_RELAY
            else "To move it: `crystal pair --code -` with an invite from there, or on the Core `crystal init --role core`.",
        )
    if settings.name.source is SettingSource.FLAG and settings.name.value != (
        called := name_in_vault(settings)
    ):
        raise UsageError(
            f"this machine has a name in its vault already: {called}",
            hint="`crystal devices rename` on the Core gives it another one, on all devices.",
        )
    if role is not None:
        with opened(settings) as device:
            is_core = device.member.is_core
        if is_core is not (role is MachineRole.CORE):
            raise UsageError(
                f"this machine is a {'Core' if is_core else 'Node'} of its vault",
                hint="`crystal demote` hands the role over."
                if is_core
                else "`crystal promote` makes it the Core.",
            )


def _wish(
    settings: Settings,
    tools: list[AiTool],
    role: str,
    capture: str | None,
    past: bool | None,
    hooks: bool | None,
    mcp: bool | None,
    service: bool | None,
    *,
    asks: bool,
) -> SetupWish:
    """What the options say, else the person, else the defaults."""
    known = [tool.name for tool in tools]
    decided_by = {settings.options[name].source for name in ("capture", "capture_without")}
    if capture is None and decided_by == {SettingSource.DEFAULT}:
        capture = people.ask_tools(known) if asks else "all"
    wanted = None if capture is None else people.names_in(capture, known)
    check_names(known, wanted or ())
    if past is None and asks and any(tool.transcripts for tool in tools):
        undecided = decided(settings.home.state_database) is None
        past = people.ask_history(tools) if undecided else None
    if hooks is None and asks:
        lacking = [each for each in hooks_of(settings) if each.there and not each.installed]
        if lacking:
            titles = ", ".join(each.tool.title for each in lacking)
            hooks = people.ask(f"Install hooks in {titles}, so that messages are recorded at once?")
    if mcp is None and asks:
        mcp = people.ask_mcp(settings)
    if service is None and asks and not is_held(settings.home.watch_lock):
        service = people.ask("Run the background service now, and whenever you log in?")
    return SetupWish(role, wanted, _history(past), hooks is not False, mcp is not False, service is not False)


def _history(past: bool | None) -> History:
    return History.STEPPED_OVER if past is False else History.RECORDED


_READ = "-"


class Enrolment:
    """Founds or joins the vault, with a token or code that is given or asked for. ``founded``: a vault was made.

    ``asks``: a person is there, and wrong answers are asked for again. ``flags`` change with the answers.
    """

    def __init__(
        self, flags: Flags, token: str | None, code: str | None, *, asks: bool, yes: bool, as_json: bool
    ) -> None:
        self.flags = flags
        self._token, self._code = token, code
        self._asks, self._yes, self._as_json = asks, yes, as_json
        self.founded = False

    def take_relay(self, typed: tuple[str, str]) -> None:
        """Use this relay, and the enrolment token of its link, if it is one."""
        url, token = typed
        self.flags = replace(self.flags, relay_url=url)
        self._token = token or self._token

    def latest(self) -> Settings:
        """The settings as they are now."""
        return resolve(self.flags)

    def of(self, role: str) -> Callable[[Settings], str]:
        """What founds or joins the vault, and returns a sentence about it. Raises what ``enrolment`` and ``pairing`` raise."""
        found_or_join = self._found if role == "core" else self.join
        return lambda settings: found_or_join(settings) if settings.vault is None else _at_own_relay(settings)

    def _found(self, settings: Settings) -> str:
        token = enrolment_token() if self._token is None else self._token
        while True:
            needed = bool(settings.relay_url) and not settings.relay_is_local
            if token == _READ or (needed and not token and is_terminal()):
                token = read_secret("The relay's enrolment token: ", what="enrolment token")
            try:
                enrolled = asyncio.run(found_vault(settings, token))
            except WrongEnrolmentToken as error:
                if not self._asks:
                    raise
                tell_wrong(error)
                token = ""
            except (BadConfig, StoreFailure) as error:
                if not self._asks or not needed:
                    raise
                tell_wrong(error)
                self.take_relay(people.ask_relay(settings.relay_url))
                token = self._token or token
                settings = self.latest()
            else:
                self.founded = True
                return f"vault {enrolled.vault.hex()[:8]}, this machine ({enrolled.name}) is its Core"

    def join(self, settings: Settings) -> str:
        """Join a vault with the code that was given or is asked for. Returns a sentence. Raises what ``pairing`` raises."""
        if self._code in (None, _READ) and self._asks:
            enrolled = until_right(lambda: self._joined(settings), WRONG_CODES)
        else:
            enrolled = self._joined(settings)
        if not self._as_json:
            note_name(enrolled)
        return f"vault {enrolled.vault.hex()[:8]}, this machine ({enrolled.name}) is a Node of it"

    def _joined(self, settings: Settings) -> EnrolmentResult:
        code = self._code or _READ
        if code == _READ:
            code = ask_code()
        if is_invite(code):
            invite = read_invite(settings, code, yes=self._yes)
            enrolled = enter(settings, invite, as_json=self._as_json, yes=self._yes, new_keys=False).enrolled
            first_sync(enrolled.settings)
            return enrolled
        offline = decode(code)
        settings = with_relay(settings, as_json=self._as_json or not self._asks)
        with explain_old_code(offline):
            return asyncio.run(join_vault(settings, offline.root, offline.vault))


def _at_own_relay(settings: Settings) -> str:
    asyncio.run(found_vault(settings.at_own_relay(), ""))
    return "the relay in this home had lost the vault, and has it again"
