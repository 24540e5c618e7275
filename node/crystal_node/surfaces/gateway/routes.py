"""The page's routes of memories: listed, remembered, changed, put aside, forgotten, and how each came to be what it is.

They do what `crystal memories`, `crystal remember` and `crystal forget` do, by the same functions.
"""

from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from crystal_core.memories import MemoryStatus
from crystal_mirror.operations import Forget
from crystal_node.agent.forget_report import note_files
from crystal_node.base.lookup import find_text
from crystal_node.device.device import Device
from crystal_node.search.memories import (
    MemoriesDocument,
    MemoryDocument,
    RememberedDocument,
    amend_memory,
    edit_memory,
    history_of,
    list_memories,
    memory_document,
    remember_text,
    revive_memory,
)
from crystal_node.surfaces.gateway.backend import Backend
from crystal_node.surfaces.gateway.documents import (
    ForgetRequest,
    ForgottenDocument,
    MemoriesQuery,
    MemoryChange,
    MemoryRequest,
    WhichMemories,
)
from crystal_node.surfaces.gateway.errors import InvalidRequest
from crystal_node.surfaces.gateway.replies import DocumentReply
from crystal_node.surfaces.gateway.requests import json_of, no_query, query_of
from crystal_node.sync.files.artefacts import is_made_here
from crystal_node.sync.files.text_search import files_with


class MemoryRoutes:
    """Over a desk."""

    def __init__(self, desk: Backend) -> None:
        self._desk = desk

    def routes(self) -> list[Route]:
        return [
            Route("/api/memories", self.memories, methods=["GET"]),
            Route("/api/memories", self.remember, methods=["POST"]),
            Route("/api/memories/{id}", self.change, methods=["PATCH"]),
            Route("/api/memories/{id}/history", self.history, methods=["GET"]),
            Route("/api/forget", self.forget, methods=["POST"]),
        ]

    async def memories(self, request: Request) -> Response:
        """The memories, the newest first."""
        asked = query_of(request, MemoriesQuery)
        return DocumentReply(await self._desk.with_device(partial(_listed, asked)))

    async def remember(self, request: Request) -> Response:
        """Keep a sentence. What is almost the same stays, and is named in the answer."""
        no_query(request)
        asked = await json_of(request, MemoryRequest)
        return DocumentReply(await self._desk.with_device(partial(_remember, asked)), 201)

    async def change(self, request: Request) -> Response:
        """Change a memory. Other words make a new one that takes its place."""
        no_query(request)
        asked = await json_of(request, MemoryChange)
        work = partial(_change, str(request.path_params["id"]), asked)
        return DocumentReply(await self._desk.with_device(work))

    async def history(self, request: Request) -> Response:
        """How a memory came to be what it is."""
        no_query(request)
        given = str(request.path_params["id"])
        return DocumentReply(await self._desk.with_device(lambda device: history_of(device, given)))

    async def forget(self, request: Request) -> Response:
        """Remove texts everywhere, for good."""
        no_query(request)
        asked = await json_of(request, ForgetRequest)
        return DocumentReply(await self._desk.with_device(partial(_forget, asked)))


def _listed(asked: MemoriesQuery, device: Device) -> MemoriesDocument:
    return list_memories(
        device,
        category=asked.category or None,
        status=None if asked.status is WhichMemories.ANY else MemoryStatus(asked.status.value),
        limit=asked.limit,
        offset=asked.offset,
    )


def _remember(asked: MemoryRequest, device: Device) -> RememberedDocument:
    return remember_text(
        device,
        asked.text,
        category=asked.category.value,
        confidence=asked.confidence,
        supersedes=asked.supersedes,
        keep_both=asked.keep_both,
    )


def _change(given: str, asked: MemoryChange, device: Device) -> MemoryDocument:
    category = None if asked.category is None else asked.category.value
    if asked.status is None:
        found = edit_memory(device, given, text=asked.text, category=category, confidence=asked.confidence)
    elif asked.text is not None:
        raise InvalidRequest("a memory gets other words, or another status, not both at once")
    elif asked.status == "active" and category is None and asked.confidence is None:
        found = revive_memory(device, given)
    else:
        found = amend_memory(
            device, given, category=category, confidence=asked.confidence, status=asked.status
        )
    return memory_document(device, found)


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
