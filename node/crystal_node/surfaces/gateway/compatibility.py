"""The routes that other programs know from the prototype's gateway: /process, /v1/chat/completions, /v1/models, /status."""

import asyncio
import time
from collections.abc import AsyncGenerator, Coroutine
from contextlib import suppress
from importlib.metadata import version
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from crystal_node.base.wording import iso
from crystal_node.device.activity import Activity, read_moments
from crystal_node.device.device import Device
from crystal_node.surfaces.gateway.backend import Backend
from crystal_node.surfaces.gateway.chat import (
    ChatAnswer,
    ChatRequest,
    answer,
    completion_chunks,
    completion_document,
    provider_of,
)
from crystal_node.surfaces.gateway.documents import ProcessDocument, ProcessRequest, PublishedStatus
from crystal_node.surfaces.gateway.errors import GatewayError, InvalidRequest, Running
from crystal_node.surfaces.gateway.limits import CHAT_BYTES_MAX, CHATS_MAX
from crystal_node.surfaces.gateway.openapi import ApiRoute
from crystal_node.surfaces.gateway.processes import Processes
from crystal_node.surfaces.gateway.replies import DocumentReply, error_document, error_words
from crystal_node.surfaces.gateway.requests import json_of, no_query

CHAT_PATH = "/v1/chat/completions"
BEAT_SECONDS = 10.0
"""Interval of the comments in a stream that waits for the model."""
Result = TypeVar("Result")


class CompatibilityRoutes:
    """Over a backend. Close it at the end."""

    def __init__(self, backend: Backend, processes: Processes) -> None:
        self._backend = backend
        self._processes = processes
        self._began = time.monotonic()
        self._chats = 0

    @property
    def routes(self) -> list[ApiRoute]:
        return [
            ApiRoute(
                "POST",
                "/process",
                self.process,
                "Work on conversations",
                ProcessDocument,
                ProcessRequest,
                status=202,
            ),
            ApiRoute("POST", CHAT_PATH, self.chat, "Pass a conversation on", None, ChatRequest),
            ApiRoute("GET", "/v1/models", self.models, "The model that it goes to"),
            ApiRoute("GET", "/status", self.status, "That the gateway is there", PublishedStatus),
        ]

    async def process(self, request: Request) -> Response:
        """Have an agent's conversations woven, or its past recorded, in the background."""
        no_query(request)
        asked = await json_of(request, ProcessRequest)
        agent = asked.agent_id or asked.agentId
        if agent is None:
            raise InvalidRequest("agent_id is missing")
        await self._processes.start(asked.action, agent, asked.mode)
        return DocumentReply(
            ProcessDocument(
                status="accepted",
                action=asked.action,
                agent_id=agent,
                message=f"{asked.action.value} started for {agent}",
            ),
            202,
        )

    async def status(self, request: Request) -> Response:
        """The gateway's status, in the prototype's form."""
        no_query(request)
        settings = self._backend.settings
        role, woven = await self._backend.with_device(_role_and_woven)
        return DocumentReply(
            PublishedStatus(
                status="ok",
                role=role,
                agentId=settings.agent_id,
                hasDatabase=settings.home.database.exists(),
                lastDreamWeaver=woven,
                uptime=round(time.monotonic() - self._began, 3),
                version=version("memory-crystal"),
                processes=self._processes.statuses(),
            )
        )

    async def models(self, request: Request) -> Response:
        """The configured model."""
        no_query(request)
        llm = await self._backend.thread(lambda: provider_of(self._backend.settings))
        identity = llm.identity
        await llm.aclose()
        return DocumentReply(
            {
                "object": "list",
                "data": [
                    {"id": identity.model, "object": "model", "created": 0, "owned_by": identity.provider}
                ],
            }
        )

    async def chat(self, request: Request) -> Response:
        """Pass a conversation to the configured language model, with recalled memory before its last question."""
        no_query(request)
        asked = await json_of(request, ChatRequest, bytes_max=CHAT_BYTES_MAX)
        if self._chats >= CHATS_MAX:
            raise Running(f"{CHATS_MAX} conversations are being answered; wait for one to end")
        if asked.stream:
            return StreamingResponse(self._streamed(asked), media_type="text/event-stream")
        return DocumentReply(completion_document(await _unless_gone(request, self._answered(asked))))

    async def aclose(self) -> None:
        await self._processes.aclose()

    async def _answered(self, asked: ChatRequest) -> ChatAnswer:
        self._chats += 1
        try:
            return await answer(self._backend, asked)
        finally:
            self._chats -= 1

    async def _streamed(self, asked: ChatRequest) -> AsyncGenerator[bytes]:
        """A stream of comments until the whole answer comes."""
        task = asyncio.create_task(self._answered(asked))
        try:
            while not (await asyncio.wait([task], timeout=BEAT_SECONDS))[0]:
                yield b": waiting for the model\n\n"
            try:
                documents: list[dict[str, object]] = completion_chunks(task.result())
            except Exception as error:  # noqa: BLE001  the answer has begun: the error is its last chunk
                _, said = error_document(error)
                documents = [error_words(error, said.error, said.code)]
            for document in documents:
                yield b"data: " + msgspec.json.encode(document) + b"\n\n"
            yield b"data: [DONE]\n\n"
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task


class ClientLeft(GatewayError):
    """The client disconnected."""

    status = 499
    code = "client-gone"


async def _unless_gone(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """Run it while the client is connected: a model's answer costs, even if nobody reads it."""
    task = asyncio.create_task(work)
    gone = asyncio.create_task(_gone(request))
    try:
        await asyncio.wait([task, gone], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientLeft("the client has gone")
        return task.result()
    finally:
        for each in (task, gone):
            each.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _role_and_woven(device: Device) -> tuple[str, str | None]:
    role = "core" if device.member.is_core else "node"
    return role, iso(read_moments(device.journal).get(Activity.WEAVE, 0))
