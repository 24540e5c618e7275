"""``crystal agent``: the background service, which records, syncs and runs the jobs of one home."""

import os
import sys
from contextlib import suppress
from datetime import datetime
from importlib.metadata import version as installed_version
from typing import Annotated, Any

import typer

from crystal_node.agent.daemon.logs import follow as following
from crystal_node.agent.daemon.logs import last_lines
from crystal_node.agent.jobs.status import AgentStatus, agent_status, job_statuses
from crystal_node.agent.service import Manager, ServiceState, manager_for
from crystal_node.agent.service.control import install_and_start, stop_agent
from crystal_node.agent.service.control import start as start_service
from crystal_node.base.errors import describe, passes
from crystal_node.base.jobs import JobStatus
from crystal_node.base.settings import Settings, resolve
from crystal_node.base.wording import clock_time, iso, printable
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit, emit_line, note, say

group = typer.Typer(
    help="Run and control the background service.",
    no_args_is_help=True,
    add_completion=False,
)

Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing; it is in the log file.")]
With = Annotated[
    list[str] | None,
    typer.Option(
        "--with", metavar="NAME=VALUE", help="A variable, where a service manager knows none.", hidden=True
    ),
]
Count = Annotated[
    int, typer.Option("-n", "--lines", metavar="N", min=1, max=100_000, help="Show the last N lines.")
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Follow new lines, until Ctrl-C.")]


@group.command("run")
def run(quiet: Quiet = False, variables: With = None, as_json: Json = False) -> None:
    """Run the background service in this terminal, until it is stopped.

    One runs per home; a second one says which process runs. Ctrl-C or SIGTERM stops it. It records conversations as they
    grow, sends and fetches at once, and runs the home's jobs (`crystal jobs list`). It may be killed at any moment without
    loss. Its log is logs/agent.log: `crystal agent logs`.

    Example:

        crystal agent run
    """
    from crystal_node.surfaces.cli import (
        agent_run,
    )  # lazy: it loads a web server, which other verbs do not need

    for pair in variables or []:
        name, _, value = pair.partition("=")
        os.environ[name] = value
    agent_run.run(quiet=quiet, as_json=as_json)


@group.command("install")
def install(as_json: Json = False) -> None:
    """Install the background service, and start it now.

    The system then starts it at each login: systemd --user, launchd or the Task Scheduler. It writes one file that only you
    can read, without any secret. Run it again after an update, to rewrite that file.

    Example:

        crystal agent install
    """
    settings = _settings()
    manager = manager_for(settings)
    said = install_and_start(settings, manager)
    if as_json:
        emit(_service_document(manager) | {"said": said})
        return
    say(f"The background service is installed with {manager.name}. {said}")


@group.command("start")
def start(as_json: Json = False) -> None:
    """Start the installed background service.

    Example:

        crystal agent start
    """
    settings = _settings()
    manager = manager_for(settings)
    said = start_service(settings, manager)
    if as_json:
        emit(_service_document(manager) | {"said": said or None})
        return
    say(said or f"The background service runs ({manager.name}).")


@group.command("stop")
def stop(as_json: Json = False) -> None:
    """Stop the background service, and wait until it has ended.

    It stops however it was started. If it is installed, it starts again at the next login.

    Example:

        crystal agent stop
    """
    settings = _settings()
    if not as_json and agent_status(settings.home).running:
        note("Stopping the background service: what it is doing ends first.")
    stopped = stop_agent(settings, manager_for(settings))
    if as_json:
        emit({"ran": stopped.ran, "by": stopped.by or None, "seconds": round(stopped.seconds, 3)})
    elif stopped.ran:
        say(f"The background service has ended ({stopped.by or 'it was asked to'}, {stopped.seconds:.1f} s).")
    else:
        say("The background service was not running.")


@group.command("status")
def status(as_json: Json = False) -> None:
    """Show whether the background service runs, and its jobs.

    Also since when it runs and how it is installed. No network.

    Example:

        crystal agent status
    """
    settings = _settings()
    found = agent_status(settings.home)
    problem, jobs = "", list[JobStatus]()
    try:
        jobs = job_statuses(settings.home)
    except Exception as error:
        if not passes(error):
            raise
        problem = describe(error).message
    manager = manager_for(settings)
    state = manager.state()
    failing = [job.name for job in jobs if job.failing]
    if as_json:
        emit(
            _agent_document(found)
            | _service_document(manager, state)
            | {
                "jobs": len(jobs),
                "failing": failing,
                "paused": [job.name for job in jobs if job.paused],
                "problem": problem or None,
                "log": str(settings.home.log_file),
            }
        )
        return
    _print(found, manager, state)
    if problem:
        say(f"! of its jobs nothing is known: {problem}")
    if failing:
        say(f"! failing: {', '.join(failing)}. `crystal jobs list` says why.")
    say(f"log      {settings.home.log_file}")


@group.command("logs")
def logs(count: Count = 50, follow: Follow = False, as_json: Json = False) -> None:
    """Show the last lines of the background service's log.

    With --follow it goes on with new lines.

    Example:

        crystal agent logs -n 20 --follow
    """
    path = _settings().home.log_file
    show = emit_line if as_json else _print_line
    for line in last_lines(path, count):
        show(line)
    if follow:
        for line in following(path):
            show(line)
    elif not path.exists() and not as_json:
        note("Nothing is there yet: the background service has not run on this home.")


@group.command("uninstall")
def uninstall(as_json: Json = False) -> None:
    """Stop the background service, and remove it from the system.

    What was recorded stays.

    Example:

        crystal agent uninstall
    """
    manager = manager_for(_settings())
    was = manager.state()
    manager.uninstall()
    if as_json:
        emit(_service_document(manager) | {"was": was.value})
    elif was is ServiceState.ABSENT:
        say("No service was installed.")
    else:
        say(f"The service is removed ({manager.name}).")


def _settings() -> Settings:
    return resolve()


def _agent_document(found: AgentStatus) -> dict[str, object]:
    holder = found.holder
    return {
        "running": found.running,
        "watching": holder is not None,
        "pid": None if holder is None else holder.pid,
        "purpose": None if holder is None else holder.purpose or None,
        "started_at": iso(found.started) if found.started else None,
        "version": found.version or None,
        "put_off": found.put_off or None,
    }


def _service_document(manager: Manager, state: ServiceState | None = None) -> dict[str, Any]:
    return {
        "service": manager.name,
        "state": (manager.state() if state is None else state).value,
        "file": str(manager.file),
    }


def _print(found: AgentStatus, manager: Manager, state: ServiceState) -> None:
    holder = found.holder
    if holder is None:
        say("agent    not running")
    else:
        who = holder.purpose or "some process"
        pid = "" if holder.pid is None else f", process {holder.pid}"
        since = f", since {clock_time(found.started)}" if found.started else ""
        say(f"agent    {'running' if found.running else f'not running, but {who} watches'}{pid}{since}")
    if found.version and found.version != installed_version("memory-crystal"):
        say(f"! it is still version {found.version}: `crystal agent stop`, then start it again.")
    if found.put_off:
        say(f"         heavy work waits: {found.put_off}")
    say(f"service  {_STATES[state.value]} ({manager.name}, {manager.file})")


_STATES = {
    "absent": "not installed: `crystal agent install`",
    "stopped": "installed, stopped: `crystal agent start`",
    "running": "installed, running",
    "failed": "installed, and given up after failures: `crystal agent logs` says why",
    "unreachable": "installed, but its manager does not answer",
}


def _print_line(line: dict[str, Any]) -> None:
    moment = str(line.get("at") or "")
    with suppress(ValueError):  # a line that was damaged is shown as it is
        moment = clock_time(round(datetime.fromisoformat(moment).timestamp() * 1000))
    say(f"{moment}  {line.get('event') or line.get('level')}: {printable(str(line.get('text', '')))}")
    for part in str(line.get("trace", "")).splitlines():
        say(f"    {printable(part)}")
    sys.stdout.flush()
