"""``crystal jobs``: the background service's jobs, their last runs and results."""

from typing import Annotated

import typer

from crystal_node.agent.daemon.job_requests import pause_job, run_job
from crystal_node.agent.jobs.status import agent_status, job_statuses
from crystal_node.base.clock import now_ms
from crystal_node.base.jobs import JobStatus
from crystal_node.base.settings import Settings, resolve
from crystal_node.base.wording import ago, iso, one_line, printable
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit, note, say

group = typer.Typer(
    help="List, pause and run the background service's jobs.",
    no_args_is_help=True,
    add_completion=False,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A job, as `crystal jobs list` names it.")]
Seconds = Annotated[
    float, typer.Option("--seconds", metavar="N", min=0, help="Wait at most N seconds for its end.")
]
_SAID_CHARS = 200


@group.command("list")
def list_jobs(as_json: Json = False) -> None:
    """List the jobs: purpose, interval, last run and its result.

    No network.

    Example:

        crystal jobs list
    """
    settings = _settings()
    jobs = job_statuses(settings.home)
    running = agent_status(settings.home).running
    if as_json:
        emit({"running": running, "jobs": [_document(job) for job in jobs]})
        return
    if not jobs:
        say("No jobs are known yet: a running background service lists them (`crystal agent run`).")
        return
    width = max(len(job.name) for job in jobs)
    for job in jobs:
        _print(job, width, running)
    if not running:
        note("The background service is not running, so no job runs: `crystal agent start`.")


@group.command("pause")
def pause(name: Name, as_json: Json = False) -> None:
    """Pause a job until it is resumed.

    A run that has begun goes on.

    Example:

        crystal jobs pause snapshot
    """
    _pause(name, paused=True, as_json=as_json)


@group.command("resume")
def resume(name: Name, as_json: Json = False) -> None:
    """Resume a paused job.

    Example:

        crystal jobs resume snapshot
    """
    _pause(name, paused=False, as_json=as_json)


@group.command("run")
def run(name: Name, seconds: Seconds = 600.0, as_json: Json = False) -> int:
    """Run a job now, paused or not, and show its result.

    A running background service runs it, else this command does. With the background service, Ctrl-C and --seconds end the
    waiting, not the job. The exit code is 0 unless it failed.

    Example:

        crystal jobs run snapshot
    """
    done = run_job(_settings(), name, seconds=seconds, say=lambda text: None if as_json else note(text))
    if as_json:
        emit(_document(done.status) | {"by": done.by, "finished": done.finished})
    elif not done.finished:
        say(f"{name} goes on in the background service: `crystal jobs list` shows its end.")
    else:
        say(printable(f"{name}: {done.status.said or 'there was nothing to do'}"))
    return done.exit_code


def _settings() -> Settings:
    return resolve()


def _pause(name: str, *, paused: bool, as_json: bool) -> None:
    status = pause_job(_settings(), name, paused=paused)
    if as_json:
        emit(_document(status))
    else:
        say(f"{name} is paused." if paused else f"{name} runs by itself again.")


def _document(job: JobStatus) -> dict[str, object]:
    return {
        "name": job.name,
        "what": job.what,
        "every_seconds": job.every,
        "heavy": job.heavy,
        "paused": job.paused,
        "running_since": iso(job.started) if job.started else None,
        "last_ended": iso(job.ended) if job.ended else None,
        "last_worked": iso(job.worked) if job.worked else None,
        "outcome": job.outcome.value,
        "failing": job.failing,
        "failures": job.failures,
        "said": job.said or None,
        "next": iso(job.next) if job.next else None,
        "put_off": job.put_off or None,
    }


def _print(job: JobStatus, width: int, running: bool) -> None:
    mark = "!!" if job.failing else "--" if job.paused else "ok"
    how = "found nothing to do" if job.outcome == "nothing" else job.outcome
    ended = f"{how} {ago((now_ms() - job.ended) / 1000)} ago" if job.ended else "has not run yet"
    state = "running now" if job.started and running else "paused" if job.paused else ended
    late = f", waits {job.put_off}" if job.put_off else ""
    say(f"{mark}  {job.name:<{width}}  {state}{late}")
    say(f"    {'':<{width}}  {job.what}")
    if job.failing:
        times = f", {job.failures} times in a row" if job.failures > 1 else ""
        say(f"    {'':<{width}}  {one_line(job.said, _SAID_CHARS)}{times}")
