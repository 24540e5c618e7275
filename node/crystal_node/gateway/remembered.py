"""The page's routes of memories: listed, remembered, changed, put aside, forgotten, and how each came to be what it is.

They write as the commands do: into this device's outbox, at once to be seen here, and nothing while private mode is on but a
forget and what only changes what is there.
"""

from functools import partial
from hashlib import sha256

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from crystal_core.memories import Memory, MemoryEvent, MemoryStatus, memories, memory, memory_history
from crystal_mirror.operations import Amend, Forget, Remember
from crystal_mirror.status import device_name
from crystal_node.artefacts.places import is_made_here
from crystal_node.clock import now_ms
from crystal_node.device import Device
from crystal_node.errors import NoSuchEntry, Usage
from crystal_node.gateway.desk import Desk
from crystal_node.gateway.documents import (
    ForgetRequest,
    ForgottenDocument,
    HistoryDocument,
    MemoriesDocument,
    MemoriesQuery,
    MemoryChange,
    MemoryDocument,
    MemoryEventDocument,
    MemoryRequest,
    WhichMemories,
)
from crystal_node.gateway.errors import BadRequest
from crystal_node.gateway.replies import JsonReply
from crystal_node.gateway.requests import json_of, no_query, query_of
from crystal_node.lookup import find_text
from crystal_node.privacy import PrivateNow, read_privacy
from crystal_node.recording import clean_text
from crystal_node.replication.forgetting import note_files
from crystal_node.replication.searching import files_with
from crystal_node.wording import iso


class MemoryRoutes:
    """Over a desk."""

    def __init__(self, desk: Desk) -> None:
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
        return JsonReply(await self._desk.with_device(partial(_listed, asked)))

    async def remember(self, request: Request) -> Response:
        """Keep a sentence."""
        no_query(request)
        asked = await json_of(request, MemoryRequest)
        return JsonReply(await self._desk.with_device(partial(_remember, asked)), 201)

    async def change(self, request: Request) -> Response:
        """Change a memory. Other words make a new one that takes its place."""
        no_query(request)
        asked = await json_of(request, MemoryChange)
        work = partial(_change, str(request.path_params["id"]), asked)
        return JsonReply(await self._desk.with_device(work))

    async def history(self, request: Request) -> Response:
        """How a memory came to be what it is."""
        no_query(request)
        work = partial(_history, str(request.path_params["id"]))
        return JsonReply(await self._desk.with_device(work))

    async def forget(self, request: Request) -> Response:
        """Remove texts everywhere, for good."""
        no_query(request)
        asked = await json_of(request, ForgetRequest)
        return JsonReply(await self._desk.with_device(partial(_forget, asked)))


def _listed(asked: MemoriesQuery, device: Device) -> MemoriesDocument:
    status = None if asked.status is WhichMemories.ALL else MemoryStatus(asked.status.value)
    found = memories(
        device.replica.database,
        category=asked.category or None,
        status=status,
        limit=asked.limit + 1,
        offset=asked.offset,
    )
    shown = [_document(each) for each in found[: asked.limit]]
    return MemoriesDocument(memories=shown, more=len(found) > asked.limit)


def _remember(asked: MemoryRequest, device: Device) -> MemoryDocument:
    cleaned = clean_text(asked.text)
    agent = device.settings.agent_id
    operation = Remember(cleaned.text, asked.category.value, agent, now_ms(), asked.confidence)
    device.accept([operation], partial(_refuse_private, device))
    return _document(_found(device, find_text(device.replica.database, _id_of(cleaned.text)).id))


def _change(given: str, asked: MemoryChange, device: Device) -> MemoryDocument:
    before = _found(device, find_text(device.replica.database, given).id)
    agent = device.settings.agent_id
    category = None if asked.category is None else asked.category.value
    text = before.text if asked.text is None else clean_text(asked.text).text
    if text != before.text:
        if asked.status is not None:
            raise BadRequest("give a memory other words, or another status, not both at once")
        operation = Remember(
            text,
            category or before.category,
            agent,
            now_ms(),
            before.confidence if asked.confidence is None else asked.confidence,
            (before.forget_hash,),
        )
        device.accept([operation], partial(_refuse_private, device))
        return _document(_found(device, find_text(device.replica.database, _id_of(text)).id))
    if category is None and asked.confidence is None and asked.status is None:
        return _document(before)
    if before.status is MemoryStatus.SUPERSEDED:
        raise Usage("another memory took its place", hint="Change that one, or remember this text again.")
    device.accept([Amend(before.forget_hash, category, asked.confidence, asked.status, agent, now_ms())])
    return _document(_found(device, before.id))


def _history(given: str, device: Device) -> HistoryDocument:
    found = _found(device, find_text(device.replica.database, given).id)
    events = memory_history(device.replica.database, found.id)
    return HistoryDocument(changes=[_event(device, each) for each in events])


def _forget(asked: ForgetRequest, device: Device) -> ForgottenDocument:
    found = {
        text.forget_hash: text for text in (find_text(device.replica.database, each) for each in asked.ids)
    }
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


def _found(device: Device, content: bytes) -> Memory:
    found = memory(device.replica.database, content)
    if found is None:
        raise NoSuchEntry(
            "that text is no memory", hint="`crystal memories list` shows those that there are."
        )
    return found


def _refuse_private(device: Device) -> None:
    if read_privacy(device.journal).on:
        raise PrivateNow("private mode is on: nothing is recorded")


def _id_of(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _document(found: Memory) -> MemoryDocument:
    return MemoryDocument(
        id=found.id.hex(),
        text=found.text,
        category=found.category,
        agent=found.agent,
        confidence=found.confidence,
        status=found.status.value,
        created_at=iso(found.created_at) or "",
        changed_at=iso(found.changed_at) or "",
        provisional=found.pending,
    )


def _event(device: Device, event: MemoryEvent) -> MemoryEventDocument:
    return MemoryEventDocument(
        id=event.id.hex(),
        what=event.what,
        at=iso(event.at) or "",
        agent=event.agent,
        device=device_name(device.member, event.device) or event.device.hex()[:8],
        text=event.text,
        category=event.category,
        confidence=event.confidence,
        status=event.status.value,
        provisional=event.pending,
    )
