"""Work on an agent's conversations, asked for over HTTP: `crystal dream-weave` or `crystal backfill` as a child process.

A child can be killed at any moment, takes the home's locks as the command does, and asks nobody: what would cost money at a
provider elsewhere is refused, as it is without a terminal. Its arguments are one of two actions and a checked agent's name; no
shell is involved.
"""

import asyncio
import sys
from collections import deque
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from crystal_node.base.clock import now_ms
from crystal_node.base.decoding import from_json
from crystal_node.base.wording import iso, one_line
from crystal_node.derive.weaving.request import WeaveMode
from crystal_node.surfaces.gateway.documents import ProcessAction, ProcessStatus
from crystal_node.surfaces.gateway.errors import Running

KEPT_MAX = 20
END_SECONDS_MAX = 5.0
_TOLD_BYTES_MAX = 4096
_TEXT_CHARS_MAX = 300


class _Error(msgspec.Struct):
    error: str


class Processes:
    """The child processes of one gateway. ``environment``: theirs."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._statuses: deque[ProcessStatus] = deque(maxlen=KEPT_MAX)
        self._tasks: dict[tuple[ProcessAction, str], asyncio.Task[None]] = {}

    def statuses(self) -> list[ProcessStatus]:
        """The latest ones, newest first."""
        return [*reversed(self._statuses)]

    async def start(self, action: ProcessAction, agent: str, mode: WeaveMode) -> None:
        """Start one. Raises Running, OSError."""
        key = (action, agent)
        if key in self._tasks:
            raise Running(f"{action.value} of {agent} is under way")
        words = ["dream-weave", "--agent", agent, "--mode", mode.value]
        if action is ProcessAction.BACKFILL:
            words = ["backfill", "--agent", agent, "--yes"]
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "crystal_node", *words, "--json"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment,
            start_new_session=True,
        )
        begun = ProcessStatus(
            action=action, agent_id=agent, began=iso(now_ms()) or "", ended=None, exit_code=None, text=""
        )
        self._statuses.append(begun)
        task = asyncio.create_task(self._watch(child, begun))
        self._tasks[key] = task
        task.add_done_callback(lambda _: self._tasks.pop(key, None))

    async def aclose(self) -> None:
        """End them; each resumes when it is asked for again."""
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, child: asyncio.subprocess.Process, begun: ProcessStatus) -> None:
        assert child.stderr is not None
        told = b""
        try:
            while piece := await child.stderr.read(_TOLD_BYTES_MAX):
                told = (told + piece)[-_TOLD_BYTES_MAX:]
            code = await child.wait()
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):
                child.terminate()
            with suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS_MAX):
                    await child.communicate()
            if child.returncode is None:
                child.kill()
            raise
        ended = msgspec.structs.replace(
            begun, ended=iso(now_ms()), exit_code=code, text=_why(told) if code else ""
        )
        with suppress(ValueError):  # pushed out by newer ones
            self._statuses[self._statuses.index(begun)] = ended


def _why(told: bytes) -> str:
    """The error that the command printed, without its other output."""
    begin = told.rfind(b'{\n  "error"')
    with suppress(msgspec.MsgspecError, UnicodeDecodeError):
        return one_line(from_json(told[max(begin, 0) :], _Error).error, _TEXT_CHARS_MAX)
    return "it failed"
