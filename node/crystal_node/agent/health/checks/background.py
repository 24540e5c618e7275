"""Hooks, the service, jobs, staging, backups. A device without them is well; one with half of them is not."""

import shlex
from collections.abc import Iterator

from crystal_crypto.errors import CrystalError
from crystal_node.agent.health.facts import background, other_facts
from crystal_node.agent.health.findings import Finding, Severity, job_findings, staging_findings, warned
from crystal_node.agent.hooks.every_tool import Hooks, hooks_of
from crystal_node.agent.jobs.database import put_aside
from crystal_node.agent.service import ServiceState, manager_for
from crystal_node.base.clock import now_ms
from crystal_node.base.settings import Settings
from crystal_node.base.wording import ago
from crystal_node.device.activity import Activity, read_moments
from crystal_node.device.device import Device

BACKUPS_LATE = 3
"""Intervals without a backup before a warning: machines sleep now and then."""


def hooks(settings: Settings) -> Iterator[Finding]:
    """Hooks in AI tools. Transcripts are watched without them, too."""
    for tool in hooks_of(settings):
        yield from _of_tool(tool)


def _of_tool(hooks: Hooks) -> Iterator[Finding]:
    try:
        found = hooks.look()
    except CrystalError as error:
        yield warned("hooks", error)
        return
    if not found.there or found.absent:
        return
    if found.disabled:
        what = f"{found.file} turns all hooks off"
        yield Finding(
            "hooks", Severity.WARNING, what, "Take `disableAllHooks` out of it, or `crystal hooks uninstall`."
        )
    elif found.installed:
        yield Finding("hooks", Severity.OK, f"all of them are in {found.file}")
    else:

        def install() -> str:
            hooks.install()
            return f"put the hooks that lacked into {found.file}"

        lacking = ", ".join(event for event, state in found.states.items() if state.value != "installed")
        what = f"{found.file} has only some of them; {lacking} lack or are of another version"
        yield Finding("hooks", Severity.WARNING, what, "crystal hooks install", mend=install)


def service(settings: Settings) -> Iterator[Finding]:
    """The background service, where it was installed. Asks the service manager, which may take a moment."""
    try:
        manager = manager_for(settings)
    except CrystalError as error:
        yield warned("service", error)
        return

    def start() -> str:
        manager.start()
        return f"started the background service by {manager.name}"

    match manager.state():
        case ServiceState.ABSENT:
            return
        case ServiceState.RUNNING:
            yield Finding("service", Severity.OK, f"{manager.name} runs the background service")
        case ServiceState.STOPPED:
            what = f"{manager.name} has the background service, and it is stopped"
            yield Finding("service", Severity.WARNING, what, "crystal agent start", mend=start)
        case ServiceState.FAILED:
            what = f"the background service failed again and again, and {manager.name} gave it up"
            yield Finding(
                "service",
                Severity.WARNING,
                what,
                "`crystal agent logs` tells why; then: crystal agent start",
                mend=start,
            )
        case ServiceState.UNREACHABLE:
            what = f"the service's file is there ({manager.file}), and no {manager.name} that could be asked"
            yield Finding(
                "service", Severity.WARNING, what, "Log in again, or run it by hand: crystal agent run"
            )


def jobs(settings: Settings) -> Iterator[Finding]:
    """Jobs whose last run failed, jobs that are paused, and a jobs.db that was damaged."""
    found = background(settings.home)
    old = put_aside(settings.home.jobs_database)
    if old.exists():
        what = "the record of the jobs was damaged and begun anew: none is paused any more, and all of them run again"
        fix = f"Pause again what shall rest, then: rm {shlex.quote(str(old))}"
        yield Finding("jobs", Severity.WARNING, what, fix)
    if found.fault:
        yield Finding("jobs", Severity.WARNING, f"nothing is known of the jobs: {found.fault}")
    for each in job_findings(found):
        yield each.named("jobs")
    if found.paused:
        yield Finding(
            "jobs", Severity.WARNING, f"paused: {', '.join(found.paused)}", "crystal jobs resume NAME"
        )


def staging(settings: Settings) -> Iterator[Finding]:
    """Agents that wait for a person, on a Core."""
    for each in staging_findings(other_facts(settings.home)):
        yield each.named("staging")


def backups(settings: Settings, device: Device) -> Iterator[Finding]:
    """Age of the newest backup; nothing where no backups are set up."""
    folder = settings.backup.folder
    if folder is None:
        return
    made = read_moments(device.journal).get(Activity.BACKUP, 0)
    if not made:
        what = f"none was made yet, though they were set up to go to {folder}"
        yield Finding("backups", Severity.WARNING, what, "crystal backup")
        return
    age = max(now_ms() - made, 0) / 1000
    late = age > BACKUPS_LATE * settings.backup.every_hours * 3600 > 0
    state = Severity.WARNING if late else Severity.OK
    fix = (
        "`crystal backup` makes one now; `crystal jobs list` tells why none was made by itself."
        if late
        else ""
    )
    yield Finding("backups", state, f"the newest is {ago(age)} old, in {folder}", fix)
