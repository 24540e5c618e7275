"""The routes of `/api`, by subject: search, conversations, status, jobs, memories.

They do what the commands do, by the same functions. Questions come in bodies: an address is kept in too many places.
"""

from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from crystal_core.memories import MemoryScope, MemoryStatus
from crystal_mirror.operations import Forget
from crystal_node.agent.daemon.job_requests import pause_job, want_job
from crystal_node.agent.forget_report import note_files
from crystal_node.agent.health.status import device_status, status_document
from crystal_node.agent.jobs.status import agent_status, job_statuses
from crystal_node.base.clock import now_ms
from crystal_node.base.decoding import from_fields
from crystal_node.base.jobs import JobStatus
from crystal_node.base.lookup import find_text
from crystal_node.base.settings import Settings
from crystal_node.base.text_ids import ID_CHARS_MAX, ID_DIGITS_MIN
from crystal_node.base.wording import iso
from crystal_node.derive.sources.results import SourcesStatus
from crystal_node.derive.sources.service import sources_status
from crystal_node.device.device import Device
from crystal_node.search.conversation_documents import (
    CONVERSATION_DIGITS,
    ActivityDocument,
    ConversationFilter,
    ConversationRequest,
    ConversationsDocument,
    ConversationsRequest,
    ConversationTextDocument,
)
from crystal_node.search.finding.documents import (
    SearchDocument,
    SearchRequest,
    ShowDocument,
    ShowRequest,
    StatusFilter,
)
from crystal_node.search.memories.changes import change_memory, remember_text
from crystal_node.search.memories.documents import (
    HistoryDocument,
    MemoriesDocument,
    MemoryDocument,
    MemoryEdit,
    RememberedDocument,
)
from crystal_node.search.memories.queries import history_of, list_memories, memory_document
from crystal_node.search.projects import NO_PROJECT, ProjectsDocument, list_projects, project_here, scopes_of
from crystal_node.search.recall.report import RecallReport, recall_report
from crystal_node.surfaces.gateway.backend import Backend
from crystal_node.surfaces.gateway.documents import (
    ConversationQuery,
    ForgetRequest,
    ForgottenDocument,
    JobDocument,
    JobsDocument,
    MemoriesQuery,
    MemoryRequest,
    ShowQuery,
)
from crystal_node.surfaces.gateway.errors import InvalidRequest, NoAgent
from crystal_node.surfaces.gateway.openapi import ApiRoute
from crystal_node.surfaces.gateway.replies import DocumentReply
from crystal_node.surfaces.gateway.requests import json_of, no_query, query_of
from crystal_node.sync.files.artefacts import is_made_here
from crystal_node.sync.files.text_search import files_with


def api_routes(backend: Backend) -> list[ApiRoute]:
    """All of them."""
    return [
        *SearchRoutes(backend).routes,
        *ConversationRoutes(backend).routes,
        *StatusRoutes(backend).routes,
        *JobRoutes(backend).routes,
        *MemoryRoutes(backend).routes,
    ]


class SearchRoutes:
    """Over a backend."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def routes(self) -> list[ApiRoute]:
        return [
            ApiRoute("POST", "/api/search", self.search, "Find texts", SearchDocument, SearchRequest),
            ApiRoute(
                "GET",
                "/api/show/{id}",
                self.show,
                "A text with its surroundings",
                ShowDocument,
                query=ShowQuery,
                names=("id",),
            ),
        ]

    async def search(self, request: Request) -> Response:
        """Find texts."""
        no_query(request)
        asked = await json_of(request, SearchRequest)
        return DocumentReply(await self._backend.find(lambda finding: finding.search(asked)))

    async def show(self, request: Request) -> Response:
        """A text whole, with what stands around it."""
        given = str(request.path_params["id"])
        if not ID_DIGITS_MIN <= len(given) <= ID_CHARS_MAX:
            raise InvalidRequest(f"an id and its place have {ID_DIGITS_MIN} to {ID_CHARS_MAX} characters")
        around = query_of(request, ShowQuery)
        asked = ShowRequest(
            id=given, before=around.before, after=around.after, turn=around.turn, folder=around.folder
        )
        return DocumentReply(await self._backend.find(lambda finding: finding.show(asked)))


class ConversationRoutes:
    """Over a backend."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def routes(self) -> list[ApiRoute]:
        return [
            ApiRoute(
                "GET",
                "/api/conversations",
                self.conversations,
                "The conversations",
                ConversationsDocument,
                query=ConversationsRequest,
            ),
            ApiRoute(
                "GET",
                "/api/conversations/{conversation}",
                self.conversation,
                "A conversation's messages",
                ConversationTextDocument,
                query=ConversationQuery,
                names=("conversation",),
            ),
            ApiRoute(
                "GET",
                "/api/activity",
                self.activity,
                "What conversations there are, by project, device, tool, agent and day",
                ActivityDocument,
                query=ConversationFilter,
            ),
        ]

    async def conversations(self, request: Request) -> Response:
        """Some conversations, the latest first."""
        asked = query_of(request, ConversationsRequest)
        return DocumentReply(await self._backend.find(lambda memory: memory.conversations(asked)))

    async def conversation(self, request: Request) -> Response:
        """Messages of one conversation, in order."""
        part = query_of(request, ConversationQuery)
        given = str(request.path_params["conversation"])
        try:
            asked = from_fields(
                {"id": given, "limit": part.limit, "offset": part.offset}, ConversationRequest
            )
        except msgspec.ValidationError as error:
            raise InvalidRequest(
                f"a conversation's id has {CONVERSATION_DIGITS} digits, 0 to 9 and a to f"
            ) from error
        return DocumentReply(await self._backend.find(lambda memory: memory.conversation(asked)))

    async def activity(self, request: Request) -> Response:
        """What conversations can be filtered by, and when something was said."""
        asked = query_of(request, ConversationFilter)
        return DocumentReply(await self._backend.find(lambda memory: memory.activity(asked)))


class StatusRoutes:
    """Over a backend."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def routes(self) -> list[ApiRoute]:
        return [
            ApiRoute("GET", "/api/status", self.status, "How this device stands"),
            ApiRoute("GET", "/api/sources", self.sources, "The sources of documents", SourcesStatus),
            ApiRoute("GET", "/api/recall/report", self.recall_report, "What recall was worth", RecallReport),
        ]

    async def status(self, request: Request) -> Response:
        """How this device stands, its devices and channels."""
        no_query(request)
        return DocumentReply(await self._backend.with_device(_status))

    async def sources(self, request: Request) -> Response:
        """The sources of documents, and how each stands."""
        no_query(request)
        return DocumentReply(await self._backend.with_device(sources_status))

    async def recall_report(self, request: Request) -> Response:
        """What recall was worth in the last week."""
        no_query(request)
        return DocumentReply(await self._backend.with_device(_recall_report))


def _recall_report(device: Device) -> RecallReport:
    return recall_report(device.settings, device.replica.database, now_ms())


def _status(device: Device) -> dict[str, object]:
    return status_document(device, device_status(device))


class JobRoutes:
    """Over a backend."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def routes(self) -> list[ApiRoute]:
        return [
            ApiRoute("GET", "/api/jobs", self.jobs, "The agent's jobs", JobsDocument),
            ApiRoute(
                "POST",
                "/api/jobs/{name}/run",
                self.run,
                "Have a job run now",
                JobDocument,
                names=("name",),
                status=202,
            ),
            ApiRoute(
                "POST",
                "/api/jobs/{name}/pause",
                self.pause,
                "Have it not run by itself",
                JobDocument,
                names=("name",),
            ),
            ApiRoute(
                "POST",
                "/api/jobs/{name}/resume",
                self.resume,
                "Have it run by itself again",
                JobDocument,
                names=("name",),
            ),
        ]

    async def jobs(self, request: Request) -> Response:
        """All jobs."""
        no_query(request)
        return DocumentReply(await self._backend.thread(lambda: _jobs(self._backend.settings)))

    async def run(self, request: Request) -> Response:
        """Have the agent run one now; how it ends is seen in the list."""
        no_query(request)
        name = str(request.path_params["name"])
        return DocumentReply(await self._backend.thread(lambda: _run(self._backend.settings, name)), 202)

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
            return _job(pause_job(self._backend.settings, name, paused=paused))

        return DocumentReply(await self._backend.thread(work))


def _jobs(settings: Settings) -> JobsDocument:
    jobs = [_job(job) for job in job_statuses(settings.home)]
    return JobsDocument(running=agent_status(settings.home).running, jobs=jobs)


def _run(settings: Settings, name: str) -> JobDocument:
    if not agent_status(settings.home).running:
        raise NoAgent("no background service runs that could do it")
    return _job(want_job(settings, name))


def _job(job: JobStatus) -> JobDocument:
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


class MemoryRoutes:
    """Over a backend."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def routes(self) -> list[ApiRoute]:
        return [
            ApiRoute(
                "GET", "/api/memories", self.memories, "The memories", MemoriesDocument, query=MemoriesQuery
            ),
            ApiRoute(
                "POST",
                "/api/memories",
                self.remember,
                "Keep a sentence",
                RememberedDocument,
                MemoryRequest,
                status=201,
            ),
            ApiRoute(
                "PATCH",
                "/api/memories/{id}",
                self.change,
                "Change a memory",
                MemoryDocument,
                MemoryEdit,
                names=("id",),
            ),
            ApiRoute(
                "GET",
                "/api/memories/{id}/history",
                self.history,
                "How it came to be what it is",
                HistoryDocument,
                names=("id",),
            ),
            ApiRoute("GET", "/api/projects", self.projects, "The projects", ProjectsDocument),
            ApiRoute(
                "POST",
                "/api/forget",
                self.forget,
                "Remove texts everywhere",
                ForgottenDocument,
                ForgetRequest,
            ),
        ]

    async def memories(self, request: Request) -> Response:
        """The memories, the newest first."""
        asked = query_of(request, MemoriesQuery)
        return DocumentReply(await self._backend.with_device(partial(_listed, asked)))

    async def remember(self, request: Request) -> Response:
        """Keep a sentence. What is almost the same stays, and is named in the answer."""
        no_query(request)
        asked = await json_of(request, MemoryRequest)
        return DocumentReply(await self._backend.with_device(partial(_remember, asked)), 201)

    async def change(self, request: Request) -> Response:
        """Change a memory. Other words make a new one that takes its place."""
        no_query(request)
        asked = await json_of(request, MemoryEdit)
        work = partial(_change, str(request.path_params["id"]), asked)
        return DocumentReply(await self._backend.with_device(work))

    async def history(self, request: Request) -> Response:
        """How a memory came to be what it is."""
        no_query(request)
        given = str(request.path_params["id"])
        return DocumentReply(await self._backend.with_device(lambda device: history_of(device, given)))

    async def projects(self, request: Request) -> Response:
        """The projects that something was recorded in, those last used first."""
        no_query(request)
        return DocumentReply(await self._backend.with_device(list_projects))

    async def forget(self, request: Request) -> Response:
        """Remove texts everywhere, for good."""
        no_query(request)
        asked = await json_of(request, ForgetRequest)
        return DocumentReply(await self._backend.with_device(partial(_forget, asked)))


def _listed(asked: MemoriesQuery, device: Device) -> MemoriesDocument:
    return list_memories(
        device,
        category=asked.category or None,
        status=None if asked.status is StatusFilter.ANY else MemoryStatus(asked.status.value),
        scopes=scopes_of(
            device, MemoryScope(asked.scope) if asked.scope else None, asked.project, NO_PROJECT
        ),
        limit=asked.limit,
        offset=asked.offset,
    )


def _remember(asked: MemoryRequest, device: Device) -> RememberedDocument:
    place = project_here(device, asked.folder) if asked.folder and not asked.project else NO_PROJECT
    return remember_text(device, asked, keep_both=asked.keep_both, place=place)


def _change(given: str, asked: MemoryEdit, device: Device) -> MemoryDocument:
    return memory_document(device, change_memory(device, given, asked))


def _forget(asked: ForgetRequest, device: Device) -> ForgottenDocument:
    database = device.replica.database
    found = {text.forget_hash: text for text in (find_text(database, each) for each in asked.ids)}
    texts = [text.words for text in found.values()]
    device.accept([Forget(tuple(found))])
    holding = files_with(device, texts)
    paths = [path for path in holding if not is_made_here(path)]
    if paths:
        note_files(device, paths)
    made = [path for path in holding if is_made_here(path)]
    return ForgottenDocument(
        forgotten=[text.id.hex() for text in found.values()], files=paths, files_made_anew=made
    )
