"""The steps of `crystal up`: from any state to a machine that records and syncs automatically.

::

    home ==> vault ==> capture ==> history ==> hooks, mcp, service     ==> nothing behind it is done without it

What to record is decided before the background service starts, so that it never records what is not wanted.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from crystal_crypto.errors import CrystalError
from crystal_node.agent.hooks.every_tool import hooks_of
from crystal_node.agent.hooks.jsondocument import DamagedDocument
from crystal_node.agent.service import Manager, ServiceState, manager_for
from crystal_node.agent.service.control import install_and_start
from crystal_node.base.errors import Failure, describe
from crystal_node.base.settings import Settings
from crystal_node.base.wording import counted
from crystal_node.capture import history
from crystal_node.capture.history import History
from crystal_node.capture.recorder import RecordReport
from crystal_node.capture.tools import TOOLS
from crystal_node.device.agent_name import waits
from crystal_node.device.device import Device, opened
from crystal_node.device.enrolment import own_relay_lost, prepare_node
from crystal_node.search.devices import keep_names
from crystal_node.surfaces.mcp.clients.installation import ClientState, McpClients
from crystal_node.surfaces.mcp.clients.places import McpClient
from crystal_node.surfaces.setup import tools as tool_choice
from crystal_node.surfaces.setup.steps import SetupStep, StepLater, for_each
from crystal_node.sync.syncer import syncing

_NOT_ASKED = "not asked for"
_VAULT = {
    "core": "make a vault, with this machine as its Core",
    "node": "join a vault that you have, as a Node",
}


@dataclass(frozen=True, slots=True)
class SetupWish:
    """What a person wants. ``role`` "" and ``tools`` None leave these as they are."""

    role: str
    tools: tuple[str, ...] | None
    history: History
    hooks: bool
    mcp: bool
    service: bool


def up_plan(
    wish: SetupWish, latest: Callable[[], Settings], enrol: Callable[[Settings], str]
) -> list[SetupStep]:
    """The plan. ``latest`` reads the current settings; ``enrol`` founds or joins the vault and returns a sentence."""
    return [
        _home(latest),
        SetupStep(
            "vault",
            _VAULT.get(wish.role, "be in a vault"),
            lambda: latest().vault is not None and not asyncio.run(own_relay_lost(latest())),
            lambda: enrol(latest()),
            ground=True,
        ),
        _capture(wish, latest),
        _history(wish, latest),
        _hooks(wish, latest),
        _mcp(wish, latest),
        _service(wish, latest),
    ]


def _home(latest: Callable[[], Settings]) -> SetupStep:
    def make() -> str:
        prepare_node(latest(), keep_relay=False)  # the person may have mistyped it
        return ""

    return SetupStep(
        "home",
        f"make the home {latest().home.root}",
        latest().home.config_file.exists,
        make,
        ground=True,
    )


def _capture(wish: SetupWish, latest: Callable[[], Settings]) -> SetupStep:
    wanted = wish.tools

    def choose() -> str:
        settings = latest()
        tool_choice.choose(settings, TOOLS, wanted or ())
        return ""

    what = "keep what is recorded as it is"
    if wanted is not None:
        what = f"record the conversations of {', '.join(wanted)}" if wanted else "record nothing"
    return SetupStep(
        "capture",
        what,
        lambda: wanted is None or tool_choice.is_chosen(latest(), TOOLS, wanted),
        choose,
        ground=True,
    )


def _history(wish: SetupWish, latest: Callable[[], Settings]) -> SetupStep:
    over = wish.history is History.STEPPED_OVER

    def is_decided() -> bool:
        return history.decided(latest().home.state_database) is not None

    def do() -> str:
        why_not: Failure | None = None
        with opened(latest()) as device:
            if over:
                return f"stepped over {counted(history.step_over(device), 'transcript')}"
            if waits(device.journal, device.settings.agent_id):
                why_not = asyncio.run(_bring_memory(device))
            report = asyncio.run(history.record(device))
            keep_names(device.member)  # a search before the first round shows them too
        if report.private:
            return "private mode is on: nothing was recorded"
        if report.off:
            return "recording is off: it waits until that is over"
        if report.waiting:
            raise _later(report, why_not)
        odd = f"; {counted(len(report.problems), 'transcript')} could not be read" if report.problems else ""
        return (report.words() or "there was nothing yet") + odd

    what = "leave out what was said before now" if over else "record what was said before now"
    return SetupStep("history", what, is_decided, do, ground=True)


async def _bring_memory(device: Device) -> Failure | None:
    """A first round, so that what was said before need not wait for the vault's memory. Returns why that failed."""
    try:
        async with syncing(device, "crystal up") as syncer:
            await syncer.round()
    except CrystalError as error:
        return describe(error)
    return None


def _later(report: RecordReport, why_not: Failure | None) -> StepLater:
    recorded = f"{report.words()}; " if report.operations else ""
    text = f"{recorded}{report.waiting_words()}"
    if why_not is None:
        return StepLater(text)
    return StepLater(
        f"{text}. That sync failed: {why_not.message}",
        hint=f"{why_not.hint} Then `crystal sync`, or the background service, goes on.".strip(),
    )


def _hooks(wish: SetupWish, latest: Callable[[], Settings]) -> SetupStep:
    hooks = [each for each in hooks_of(latest()) if each.there]

    def install() -> str:
        new = for_each(hooks, lambda each: each.install())
        return " ".join(
            [", ".join(str(each.file) for each in new), *(each.tool.asks for each in new)]
        ).strip()

    why_not = "" if wish.hooks else _NOT_ASKED
    if wish.hooks and not hooks:
        why_not = "there is no AI tool here that takes hooks"
    titles = ", ".join(each.tool.title for each in hooks)
    return SetupStep(
        "hooks",
        f"install hooks in {titles or 'AI tools'}",
        lambda: all(each.installed for each in hooks),
        install,
        why_not=why_not,
    )


def _mcp(wish: SetupWish, latest: Callable[[], Settings]) -> SetupStep:
    agents = McpClients(latest())
    there = agents.named(())

    def is_so() -> bool:
        with suppress(DamagedDocument):  # what is wrong, the installation says
            return all(
                agents.look(client).state in (ClientState.INSTALLED, ClientState.OTHER) for client in there
            )
        return False

    def installs(client: McpClient) -> bool:
        return agents.look(client).state is not ClientState.OTHER and agents.install(client)

    def install() -> str:
        return ", ".join(client.title for client in for_each(there, installs))

    why_not = "" if wish.mcp else _NOT_ASKED
    if wish.mcp and not there:
        why_not = "there is no program here that takes MCP servers"
    return SetupStep("mcp", "give agents the memory as an MCP server", is_so, install, why_not=why_not)


def _service(wish: SetupWish, latest: Callable[[], Settings]) -> SetupStep:
    def is_up() -> bool:
        manager = manager_for(latest())
        return manager.state() is ServiceState.RUNNING and _is_current(manager)

    def install() -> str:
        settings = latest()
        return install_and_start(settings, manager_for(settings))

    return SetupStep(
        "service",
        "install and start the background service",
        is_up,
        install,
        why_not="" if wish.service else _NOT_ASKED,
    )


def _is_current(manager: Manager) -> bool:
    try:
        return manager.file.read_bytes() == manager.render()
    except OSError:
        return False
