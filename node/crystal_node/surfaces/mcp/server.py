"""Answers the protocol's requests through the SDK's low-level server.

The tools' schemas come from the types that the answers are made of, so the SDK's own way of making tools from functions is not
used. Every error becomes a result that says what went wrong and what to do; a model can act on that. Tools run in threads, so
that a search does not delay a ping.
"""

import logging
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any, TypeVar

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import mcp_types as types
import msgspec
from mcp.server import Server, ServerRequestContext
from mcp.shared.exceptions import MCPError

from crystal_node.base.errors import ExitCode, describe
from crystal_node.capture.json_values import is_array, is_object
from crystal_node.search.finding.keeper import Keeper
from crystal_node.surfaces.mcp import resources
from crystal_node.surfaces.mcp.agreement import agreed
from crystal_node.surfaces.mcp.calls import Call, Pledges
from crystal_node.surfaces.mcp.catalogue import (
    INSTRUCTIONS,
    PROMPTS_LISTED,
    RESOURCES_LISTED,
    TEMPLATES_LISTED,
    listed_resource,
    listed_tool,
)
from crystal_node.surfaces.mcp.client_names import agent_of_client
from crystal_node.surfaces.mcp.fence import visible
from crystal_node.surfaces.mcp.prompts import PROMPTS
from crystal_node.surfaces.mcp.schemas import read_as
from crystal_node.surfaces.mcp.tools import TOOLS, McpTool

_log = logging.getLogger(__name__)


def error_sentence(what: str, error: Exception) -> str:
    """An error as a sentence for models. Of a bug only its kind: its text may hold anything."""
    failure = describe(error)
    if failure.exit_code == ExitCode.UNEXPECTED:
        _log.error("%s failed by a bug: %s", what, type(error).__name__)
        return f"{what} failed by a bug in Crystal ({type(error).__name__}). Go on without it, and tell the person."
    message = failure.message[:1].upper() + failure.message[1:]
    return f"{message.rstrip('.')}. {failure.hint}"


THREADS = 4
"""Tools that run at once; more wait."""
REST_SECONDS = 30.0
"""How often an idle memory is looked for, to close it."""

Context = ServerRequestContext[Any, Any]
_T = TypeVar("_T")


def _clean(built: Any) -> Any:
    """A structured answer without what cannot be seen: its names come from anywhere, too."""
    if isinstance(built, str):
        return visible(built)
    if is_object(built):
        return {key: _clean(value) for key, value in built.items()}
    return [_clean(each) for each in built] if is_array(built) else built


class CrystalServer:
    """The server of one process, on any transport. ``tools`` are those that it offers; ``folder`` is the one that its only
    client works in, "" if that is unknown."""

    def __init__(self, keeper: Keeper, tools: tuple[McpTool, ...] = TOOLS, *, folder: str = "") -> None:
        self._keeper = keeper
        self._folder = folder
        self._pledges = Pledges()
        self._tools = {tool.name: tool for tool in tools}
        self._listed = [listed_tool(tool) for tool in tools]
        self._prompts = {prompt.name: prompt for prompt in PROMPTS}
        self._threads = anyio.CapacityLimiter(THREADS)
        self.protocol: Server[dict[str, Any]] = Server(
            "crystal",
            title="Crystal",
            version=version("memory-crystal"),
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_completion=self._complete,
        )

    @asynccontextmanager
    async def resting(self) -> AsyncGenerator[None]:
        """While it serves: close the memory when it is idle, and at the end."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._rest)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()
                self._keeper.close()

    async def _rest(self) -> None:
        while True:
            await anyio.sleep(REST_SECONDS)
            self._keeper.rest()

    async def _list_tools(
        self, _context: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=self._listed)

    async def _call_tool(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        tool = self._tools.get(params.name)
        if tool is None:
            raise MCPError(
                types.INVALID_PARAMS, "there is no tool of that name; tools/list shows those there are"
            )
        call = self._new_call(context)
        try:
            given = read_as(tool.arguments, params.arguments or {})
            if tool.question is not None:
                question = tool.question
                asking = await agreed(
                    context, params, call, lambda: self._run(call, lambda: question(call, given))
                )
                if asking is not None:
                    return asking
            answer, text = await self._run(call, lambda: tool.call(call, given))
        except Exception as error:  # noqa: BLE001  where every error becomes a result
            text = error_sentence(tool.name, error)
            return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)],
            structured_content=None if answer is None else _clean(msgspec.to_builtins(answer)),
        )

    async def _list_resources(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        cursor = params.cursor if params is not None else None
        if cursor is None:
            return types.ListResourcesResult(resources=RESOURCES_LISTED, next_cursor=resources.NEWEST)
        call = self._new_call(context)
        found, following = await self._asked(call, lambda: resources.page(call, cursor))
        return types.ListResourcesResult(resources=[*map(listed_resource, found)], next_cursor=following)

    async def _list_templates(
        self, _context: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=TEMPLATES_LISTED)

    async def _read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri, call = str(params.uri), self._new_call(context)
        text = await self._asked(call, lambda: resources.read(call, uri))
        return types.ReadResourceResult(
            contents=[types.TextResourceContents(uri=uri, text=text, mime_type="text/plain")]
        )

    async def _list_prompts(
        self, _context: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=PROMPTS_LISTED)

    async def _get_prompt(
        self, context: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        prompt = self._prompts.get(params.name)
        if prompt is None:
            raise MCPError(
                types.INVALID_PARAMS, "there is no prompt of that name; prompts/list shows those there are"
            )
        arguments = params.arguments or {}
        text = await self._asked(self._new_call(context), lambda: prompt.filled(arguments))
        message = types.PromptMessage(role="user", content=types.TextContent(type="text", text=text))
        return types.GetPromptResult(description=prompt.description, messages=[message])

    async def _complete(self, context: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        asked, call = params.argument, self._new_call(context)
        template = params.ref.uri if isinstance(params.ref, types.ResourceTemplateReference) else ""
        found = await self._asked(call, lambda: resources.completed(call, template, asked.name, asked.value))
        return types.CompleteResult(
            completion=types.Completion(values=found, total=len(found), has_more=False)
        )

    def _new_call(self, context: Context) -> Call:
        token = anyio.lowlevel.current_token()

        def progress(done: float, total: float | None, what: str) -> None:
            anyio.from_thread.run(context.session.report_progress, done, total, what, token=token)

        client = context.session.client_params
        agent = agent_of_client(client.client_info.name) if client is not None else ""
        return Call(self._keeper, self._pledges, progress=progress, folder=self._folder, agent=agent)

    async def _asked(self, call: Call, work: Callable[[], _T]) -> _T:
        """Run what is no tool; it fails by the protocol's own errors."""
        try:
            return await self._run(call, work)
        except Exception as error:  # noqa: BLE001  where every error becomes an answer
            raise MCPError(types.INVALID_PARAMS, error_sentence("this", error)) from None

    async def _run(self, call: Call, work: Callable[[], _T]) -> _T:
        """Run it in a thread. When the client cancels the call, the thread is told and not waited for."""
        over: threading.Event = call.over
        try:
            return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._threads)
        except anyio.get_cancelled_exc_class():
            over.set()
            raise
