"""``claude -p``: Claude Code as a language model, a child process that can do nothing but answer.

    start (own process group, empty folder) ── data on stdin ──► one JSON document on stdout ──► Completion
      └── at the time limit, when cancelled, at too much output: SIGKILL to the group, then wait; no child is left

The data goes to its standard input, never into an argument. It gets no tools, MCP servers, settings or hooks, and keeps no
session: the data must neither run anything nor return as a conversation to be recorded. A version without one of these options
refuses to start, which is an error. If this process is killed, the child ends after its one answer.
"""

import asyncio
import os
import signal
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated

import msgspec

from crystal_core.llm.errors import MalformedAnswer, RateLimited, Refused, Unavailable
from crystal_core.llm.port import Completion, LlmIdentity, Prompt
from crystal_node.base.decoding import from_json

CLAUDE_PROGRAM = "claude"
CLAUDE_MODEL = "haiku"
CLAUDE_CONTEXT_TOKENS = 200_000
CLAUDE_OVERHEAD_TOKENS = 20_000
"""What Claude Code adds to our prompt, at most."""
OUTPUT_BYTES_MAX = 8 * 1024 * 1024
END_SECONDS_MAX = 2.0
_LOOK_SECONDS = 0.02
_TOKENS_VARIABLE = "CLAUDE_CODE_MAX_OUTPUT_TOKENS"

Count = Annotated[int, msgspec.Meta(ge=0, le=2**40)]


class _Usage(msgspec.Struct):
    input_tokens: Count = 0
    output_tokens: Count = 0
    cache_creation_input_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None


class _Answer(msgspec.Struct):
    is_error: bool
    result: str = ""
    usage: _Usage | None = None


class ClaudeCli:
    """Runs ``program`` once for each prompt, with ``environment``."""

    def __init__(
        self, model: str = "", *, environment: Mapping[str, str], program: str = CLAUDE_PROGRAM
    ) -> None:
        self._program = program
        self._environment = dict(environment)
        self._identity = LlmIdentity(
            "claude-cli",
            model or CLAUDE_MODEL,
            "api.anthropic.com",
            False,
            CLAUDE_CONTEXT_TOKENS,
            CLAUDE_OVERHEAD_TOKENS,
        )

    def __repr__(self) -> str:
        return f"ClaudeCli({self._identity})"

    @property
    def identity(self) -> LlmIdentity:
        return self._identity

    async def complete(self, prompt: Prompt, *, tokens_max: int, seconds_max: float) -> Completion:
        with tempfile.TemporaryDirectory(prefix="crystal-claude-") as folder:
            code, out = await self._run(prompt, tokens_max, seconds_max, folder)
        try:
            answer = from_json(out, _Answer)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            if code:
                raise Unavailable(
                    f"{self._program} -p ended with exit code {code}",
                    hint="Run it once by hand: it may want a login, or to be updated with `claude update`.",
                    paid=True,
                ) from error
            raise MalformedAnswer(f"what {self._program} -p prints is no answer", paid=True) from error
        if answer.is_error:
            text = answer.result.lower()
            kind = RateLimited if "limit" in text or "429" in text else Refused
            raise kind(f"{self._program} -p reports an error", paid=True)
        usage = answer.usage or _Usage()
        counted = answer.usage is not None
        tokens_in = usage.input_tokens + (usage.cache_creation_input_tokens or 0)
        tokens_in += usage.cache_read_input_tokens or 0
        size = len(prompt.system.encode("utf-8", "replace")) + len(prompt.data.encode("utf-8", "replace"))
        return Completion(
            answer.result,
            tokens_in if counted else size + CLAUDE_OVERHEAD_TOKENS,
            usage.output_tokens if counted else tokens_max,
            self._identity.model,
            cut=counted and usage.output_tokens >= tokens_max,
            counted=counted,
        )

    async def aclose(self) -> None:
        """Does nothing: nothing is kept between prompts."""

    async def _run(self, prompt: Prompt, tokens_max: int, seconds: float, folder: str) -> tuple[int, bytes]:
        environment = self._environment | {_TOKENS_VARIABLE: str(tokens_max)}
        try:
            child = await asyncio.create_subprocess_exec(
                self._program,
                *("-p", "--output-format", "json", "--model", self._identity.model),
                *("--tools", "", "--strict-mcp-config", "--setting-sources", ""),
                *("--no-session-persistence", "--system-prompt", prompt.system),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                cwd=folder,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise Unavailable(
                f"{self._program} cannot be started: {error.strerror}",
                hint="Install Claude Code, or choose another model: `crystal config set llm_provider …`.",
            ) from error
        try:
            async with asyncio.timeout(seconds):
                out, _ = await asyncio.gather(_read(child), _feed(child, prompt.data))
                return await child.wait(), out
        except TimeoutError as error:
            raise Unavailable(f"{self._program} -p did not answer in time", paid=True) from error
        finally:
            await _end(child)


async def _read(child: asyncio.subprocess.Process) -> bytes:
    assert child.stdout is not None
    data = bytearray()
    while chunk := await child.stdout.read(64 * 1024):
        data += chunk
        if len(data) > OUTPUT_BYTES_MAX:
            raise MalformedAnswer(f"the answer has over {OUTPUT_BYTES_MAX // 2**20} MiB", paid=True)
    return bytes(data)


async def _feed(child: asyncio.subprocess.Process, text: str) -> None:
    assert child.stdin is not None
    with suppress(BrokenPipeError, ConnectionResetError):  # it ended without reading: its exit code says why
        child.stdin.write(text.encode("utf-8", "replace"))
        await child.stdin.drain()
    with suppress(BrokenPipeError, ConnectionResetError):
        child.stdin.close()
        await child.stdin.wait_closed()


async def _end(child: asyncio.subprocess.Process) -> None:
    """Kills the child's process group and waits for the child.

    Its output is read to the end, because the end of an unread pipe is never noticed. A process that left the group can still
    hold the pipe open; that is not waited for.
    """
    assert child.stdout is not None
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    with suppress(TimeoutError):
        async with asyncio.timeout(END_SECONDS_MAX):
            while await child.stdout.read(64 * 1024):
                pass
            await child.wait()
    while child.returncode is None:  # noqa: ASYNC110  no event tells the end of a killed process whose pipe stays open
        await asyncio.sleep(_LOOK_SECONDS)
    child._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001  our end of a pipe that another process holds open
