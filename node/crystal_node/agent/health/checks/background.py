"""What works by itself: hooks, the service, jobs. A device that has none of them is well; one that has half of them is not."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from crystal_crypto.errors import CrystalError
from crystal_node.agent.health.findings import Check, State, warned
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import ExitCode
from crystal_node.base.settings import Settings
from crystal_node.base.wording import ago, counted, one_line

if TYPE_CHECKING:
    from crystal_node.device.device import Device

BACKUPS_LATE = 3
"""Times of their interval: a machine sleeps now and then."""


def hooks(settings: Settings) -> Iterator[Check]:
    """Claude Code's. Without them the agent watches the transcripts all the same."""
    from crystal_node.agent.hooks.claude_code import ClaudeHooks

    of_claude = ClaudeHooks(settings)
    try:
        found = of_claude.look()
    except CrystalError as error:
        yield warned("hooks", error)
        return
    if not found.there or found.absent:
        return
    if found.disabled:
        what = f"{found.file} turns all hooks off"
        yield Check(
            "hooks", State.WARNING, what, "Take `disableAllHooks` out of it, or `crystal hooks uninstall`."
        )
    elif found.installed:
        yield Check("hooks", State.OK, f"all of them are in {found.file}")
    else:

        def install() -> str:
            of_claude.install()
            return f"put the hooks that lacked into {found.file}"

        lacking = ", ".join(str(event) for event, state in found.states.items() if state.value != "installed")
        what = f"{found.file} has only some of them; {lacking} lack or are of another version"
        yield Check("hooks", State.WARNING, what, "crystal hooks install", mend=install)


def service(settings: Settings) -> Iterator[Check]:
    """The agent's, where one was installed. The service manager is asked, which may take a moment."""
    from crystal_node.agent.service import ServiceState, manager_for

    try:
        manager = manager_for(settings)
    except CrystalError as error:
        yield warned("service", error)
        return

    def start() -> str:
        manager.start()
        return f"started the agent by {manager.name}"

    match manager.state():
        case ServiceState.ABSENT:
            return
        case ServiceState.RUNNING:
            yield Check("service", State.OK, f"{manager.name} runs the agent")
        case ServiceState.STOPPED:
            what = f"{manager.name} has the agent's service, and it is stopped"
            yield Check("service", State.WARNING, what, "crystal agent start", mend=start)
        case ServiceState.FAILED:
            what = f"the agent fell over again and again, and {manager.name} gave it up"
            yield Check(
                "service",
                State.WARNING,
                what,
                "`crystal agent logs` tells why; then: crystal agent start",
                mend=start,
            )
        case ServiceState.UNREACHABLE:
            what = f"the service's file is there ({manager.file}), and no {manager.name} that could be asked"
            yield Check(
                "service", State.WARNING, what, "Log in anew, or run the agent by hand: crystal agent run"
            )


def jobs(settings: Settings) -> Iterator[Check]:
    """Each job whose last run failed."""
    import shlex

    from crystal_node.agent.health.facts import background
    from crystal_node.agent.jobs.database import put_aside

    found = background(settings.home)
    old = put_aside(settings.home.jobs_database)
    if old.exists():
        what = "the record of the jobs was damaged and begun anew: none is paused any more, and all of them run again"
        yield Check(
            "jobs", State.WARNING, what, f"Pause again what shall rest, then: rm {shlex.quote(str(old))}"
        )
    if found.fault:
        yield Check("jobs", State.WARNING, f"nothing is known of the jobs: {found.fault}")
    for job in found.failing:
        if job.broken:
            what = f"{job.name} fell over by a mistake in Crystal: {one_line(job.text, 200)}"
            fix = "`crystal agent logs` has the trace: report it, please. The agent goes on without that job's work."
            yield Check("jobs", State.FAILED, what, fix, ExitCode.UNEXPECTED)
            continue
        what = f"{job.name} failed {counted(job.failures, 'time')} in a row: {one_line(job.text, 200)}"
        fix = f"It is tried again by itself. `crystal jobs run {job.name}` does it now; `crystal agent logs` tells more."
        yield Check("jobs", State.WARNING, what, fix)
    if found.paused:
        yield Check("jobs", State.WARNING, f"paused: {', '.join(found.paused)}", "crystal jobs resume NAME")


def staging(settings: Settings) -> Iterator[Check]:
    """Agents that wait for a person, on a Core."""
    from crystal_node.agent.health.facts import STAGED_MAX, others

    found = others(settings.home)
    if len(found.asking) > STAGED_MAX:
        what = f"{len(found.asking):,} new agents wait for you to say how their past is woven"
        yield Check("staging", State.WARNING, what, "crystal staging list")
    for each in found.staging:
        if len(found.asking) > STAGED_MAX and each in found.asking:
            continue
        fix = f"crystal staging run {each.folder}"
        yield Check("staging", State.WARNING, f"the new agent {each.agent} {each.words}", fix)


def backups(settings: Settings, device: "Device") -> Iterator[Check]:
    """How old the newest is; nothing where no backups were set up."""
    from crystal_node.device.activity import Activity, read_moments

    folder = settings.backup.folder
    if folder is None:
        return
    made = read_moments(device.journal).get(Activity.BACKUP, 0)
    if not made:
        what = f"none was made yet, though they were set up to go to {folder}"
        yield Check("backups", State.WARNING, what, "crystal backup")
        return
    age = max(now_ms() - made, 0) / 1000
    late = age > BACKUPS_LATE * settings.backup.every_hours * 3600 > 0
    state = State.WARNING if late else State.OK
    fix = (
        "`crystal backup` makes one now; `crystal jobs list` tells why none was made by itself."
        if late
        else ""
    )
    yield Check("backups", state, f"the newest is {ago(age)} old, in {folder}", fix)
