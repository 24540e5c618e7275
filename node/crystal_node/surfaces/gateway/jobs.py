"""The page's routes of the agent's jobs: what each does, how it went, and what a person wants of it."""

from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from crystal_node.agent.daemon.job_requests import pause_job
from crystal_node.agent.jobs.database import JobStore
from crystal_node.agent.jobs.status import agent_standing, job_standings
from crystal_node.base.jobs import JobStatus
from crystal_node.base.settings import Settings
from crystal_node.base.wording import iso
from crystal_node.surfaces.gateway.backend import Backend
from crystal_node.surfaces.gateway.documents import JobDocument, JobsDocument
from crystal_node.surfaces.gateway.errors import NoAgent
from crystal_node.surfaces.gateway.replies import DocumentReply
from crystal_node.surfaces.gateway.requests import no_query


class JobRoutes:
    """Over a desk."""

    def __init__(self, desk: Backend) -> None:
        self._desk = desk

    def routes(self) -> list[Route]:
        return [
            Route("/api/jobs", self.jobs, methods=["GET"]),
            Route("/api/jobs/{name}/run", self.run, methods=["POST"]),
            Route("/api/jobs/{name}/pause", self.pause, methods=["POST"]),
            Route("/api/jobs/{name}/resume", self.resume, methods=["POST"]),
        ]

    async def jobs(self, request: Request) -> Response:
        """All jobs."""
        no_query(request)
        return DocumentReply(await self._desk.thread(lambda: _listed(self._desk.settings)))

    async def run(self, request: Request) -> Response:
        """Have the agent run one now; how it ends is seen in the list."""
        no_query(request)
        work = partial(_run, self._desk, str(request.path_params["name"]))
        return DocumentReply(await self._desk.thread(work), 202)

    async def pause(self, request: Request) -> Response:
        """Have one not run by itself any more."""
        return await self._paused(request, paused=True)

    async def resume(self, request: Request) -> Response:
        """Have it run by itself again."""
        return await self._paused(request, paused=False)

    async def _paused(self, request: Request, *, paused: bool) -> Response:
        no_query(request)
        name = str(request.path_params["name"])

        def work() -> JobDocument:
            return _document(pause_job(self._desk.settings, name, paused=paused))

        return DocumentReply(await self._desk.thread(work))


def _listed(settings: Settings) -> JobsDocument:
    jobs = [_document(job) for job in job_standings(settings.home)]
    return JobsDocument(running=agent_standing(settings.home).running, jobs=jobs)


def _run(desk: Backend, name: str) -> JobDocument:
    home = desk.settings.home
    if not agent_standing(home).running:
        raise NoAgent("no agent runs that could do it")
    with JobStore.open(home.jobs_database) as store:
        store.ask_for(name)
        return _document(store.one(name))


def _document(job: JobStatus) -> JobDocument:
    return JobDocument(
        name=job.name,
        what=job.what,
        every_seconds=job.every,
        heavy=job.heavy,
        paused=job.paused,
        running_since=iso(job.started),
        last_ended=iso(job.ended),
        last_worked=iso(job.worked),
        outcome=job.outcome.value,
        failing=job.failing,
        failures=job.failures,
        said=job.said or None,
        next=iso(job.next),
        put_off=job.put_off or None,
        waiting=job.wanted > job.served,
    )
