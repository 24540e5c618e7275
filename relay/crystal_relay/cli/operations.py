"""Who does what an operator's command asks: the relay that serves the store, or this process with the store open.

A local store belongs to one process: while a relay serves it, that relay is asked through the socket in its directory. Any
number of processes may use a bucket, so there this process does it, and tells the relays.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from crystal_relay.cli.stores import StorePlace, open_store
from crystal_relay.errors import BadRequest, InUse, Unusable
from crystal_relay.store import Store

if TYPE_CHECKING:
    from crystal_relay.server.operator import Operations

MEETING_SECONDS_MAX = 5.0
"""How long a command waits for a relay that is starting or stopping, or for another command."""
MEETING_PAUSE_SECONDS = 0.05
TELLINGS_MAX = 3
"""How often the relays over a bucket are told before one that does not answer is left alone."""

Result = TypeVar("Result")


def operate(
    place: StorePlace,
    work: Callable[["Operations"], Awaitable[Result]],
    *,
    announce: Callable[[str], None] | None = None,
) -> Result:
    """Run `work` with the operations on the store at that place. `announce` is told what was found out about a bucket."""
    # A command says by its result or its error what went wrong; stderr is for that alone.
    logging.getLogger("crystal_relay").addHandler(logging.NullHandler())

    async def run() -> Result:
        async with operations_on(place, announce or _say_nothing) as operations:
            return await work(operations)

    return asyncio.run(run())


@asynccontextmanager
async def operations_on(place: StorePlace, announce: Callable[[str], None]) -> AsyncGenerator["Operations"]:
    """The operations on the store at that place. Raises BadRequest, Unusable, InUse, and what opening it raises."""
    from crystal_relay.cli.extensions import EXTENSIONS
    from crystal_relay.server.operator import Operator

    if place.is_memory:
        raise BadRequest("a store in memory has no operator", hint="It ends with its relay.")
    directory = place.directory
    if directory is None:
        opened: Path | Store = await open_store(place, announce=announce)
    else:
        opened = await _relay_or_store(place, directory)
    if isinstance(opened, Path):
        from crystal_relay.server.admin import RemoteOperator

        yield RemoteOperator(opened)
        return
    try:
        changed = _tell_relays(opened) if place.is_bucket else None
        yield Operator(opened, changed=changed, extensions=EXTENSIONS)
    finally:
        await opened.aclose()


def _say_nothing(_text: str) -> None:
    """What an operator has to know of the bucket is said by `check`, and when a relay starts."""


async def _relay_or_store(place: StorePlace, directory: Path) -> Path | Store:
    """The directory, if a relay serves it; else the store in it, opened. Raises InUse, Unusable."""
    from crystal_relay.server.admin import answers

    # A command is to look at a store, never to make one because a path was mistyped.
    if not (directory / "objects.db").exists():
        raise Unusable(
            f"{directory}: there is no store",
            hint="A relay makes it when it starts. Is it another one? --store, or CRYSTAL_RELAY_STORE.",
        )
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


def _tell_relays(store: Store) -> Callable[[str], Awaitable[int]]:
    async def tell(vault: str) -> int:
        from crystal_relay.server.peers import announce_forget

        left = 0
        for _ in range(TELLINGS_MAX):
            left = (await announce_forget(store, vault)).not_heard
            if not left:
                break
        return left

    return tell
