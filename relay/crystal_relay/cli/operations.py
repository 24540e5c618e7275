"""Who does what an operator's command asks: the relay that serves the store, or this process with the store open.

A local store belongs to one process: while a relay serves it, that relay is asked through the socket in its directory. Any
number of processes may use a bucket, so there this process does it, and tells the relays.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from crystal_relay.cli.stores import Place, open_store
from crystal_relay.errors import BadRequest, InUse, Unusable

if TYPE_CHECKING:
    from crystal_relay.server.operator import Operations
    from crystal_relay.store import Store

MEETING_SECONDS_MAX = 5.0
"""How long a command waits for a relay that is starting or stopping, or for another command."""
MEETING_PAUSE_SECONDS = 0.05

Result = TypeVar("Result")


def operate(place: Place, work: Callable[["Operations"], Awaitable[Result]]) -> Result:
    """Run `work` with the operations on the store at that place."""

    async def run() -> Result:
        async with operations_on(place) as operations:
            return await work(operations)

    return asyncio.run(run())


@asynccontextmanager
async def operations_on(place: Place) -> AsyncGenerator["Operations"]:
    """The operations on the store at that place. Raises BadRequest, Unusable, InUse, and what opening it raises."""
    from crystal_relay.server.operator import Operator

    if place.is_memory:
        raise BadRequest("a store in memory has no operator", hint="It ends with its relay.")
    directory = place.directory
    opened = await open_store(place) if directory is None else await _relay_or_store(place, directory)
    if isinstance(opened, Path):
        from crystal_relay.server.admin import RemoteOperator

        yield RemoteOperator(opened)
        return
    try:
        yield Operator(opened, changed=_tell_relays(opened) if place.is_bucket else None)
    finally:
        await opened.aclose()


async def _relay_or_store(place: Place, directory: Path) -> "Path | Store":
    """The directory, if a relay serves it; else the store in it, opened. Raises InUse, Unusable."""
    from crystal_relay.server.admin import answers

    # A command is to look at a store, never to make one because a path was mistyped.
    if not (directory / "objects.db").exists():
        raise Unusable(f"{directory}: there is no store", hint="A relay makes it when it starts.")
    deadline = asyncio.get_running_loop().time() + MEETING_SECONDS_MAX
    while True:
        if await answers(directory):
            return directory
        try:
            return await open_store(place)
        except InUse:
            # A relay holds it that does not listen here yet or any more, or another command does.
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(MEETING_PAUSE_SECONDS)


def _tell_relays(store: "Store") -> Callable[[str], Awaitable[None]]:
    async def tell(vault: str) -> None:
        from crystal_relay.server.peers import announce_forget

        await announce_forget(store, vault)

    return tell
