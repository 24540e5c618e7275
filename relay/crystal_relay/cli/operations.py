"""Runs an operator's command: by the relay that serves the store, or by this process with the store open.

A local store belongs to one process: if a relay serves it, that relay runs the command, by the socket in its directory. Any
number of processes may use a bucket: there this process runs the command, and notifies the relays. The server's modules are
imported by the functions that need them, so that help and errors come quickly.
"""

import asyncio
import logging
import os
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
"""Attempts to notify the relays of a bucket."""

Result = TypeVar("Result")


def operate(
    place: StorePlace,
    work: Callable[["Operations"], Awaitable[Result]],
    *,
    announce: Callable[[str], None] | None = None,
    create: bool = False,
    tests_bucket: bool = False,
) -> Result:
    """Run `work` with the operations on a store. `announce` is called with findings about a bucket. `create`: an absent local
    store is created, as a relay does when it starts. `tests_bucket`: a bucket is tested though it was lately."""
    # Errors are reported by the command itself: no log lines on stderr.
    logging.getLogger("crystal_relay").addHandler(logging.NullHandler())

    async def run() -> Result:
        opened = operations_on(place, announce or _say_nothing, create=create, tests_bucket=tests_bucket)
        async with opened as operations:
            return await work(operations)

    return asyncio.run(run())


@asynccontextmanager
async def operations_on(
    place: StorePlace,
    announce: Callable[[str], None],
    *,
    create: bool = False,
    tests_bucket: bool = False,
) -> AsyncGenerator["Operations"]:
    """The operations on a store. Raises BadRequest, Unusable, InUse, and what opening the store raises."""
    from crystal_relay.cli.extensions import EXTENSIONS
    from crystal_relay.server.operator import Operator

    if place.is_memory:
        raise BadRequest("a store in memory has no operator", hint="It exists only within its relay.")
    directory = place.directory
    if directory is None:
        opened: Path | Store = await open_store(place, announce=announce, for_command=not tests_bucket)
    else:
        opened = await _relay_or_store(place, directory, create=create)
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
    """Findings about a bucket are shown by `check`, and when a relay starts."""


async def _relay_or_store(place: StorePlace, directory: Path, *, create: bool) -> Path | Store:
    """The directory if a relay serves it, else the opened store. Raises InUse, Unusable."""
    from crystal_relay.server.admin import answers

    # A mistyped path must not create a store, unless the command says where it did.
    if not create and not (directory / "objects.db").exists():
        raise Unusable(
            f"{directory}: there is no store",
            hint="A relay creates it when it starts. Name another one by --store or CRYSTAL_RELAY_STORE.",
        )
    deadline = asyncio.get_running_loop().time() + MEETING_SECONDS_MAX
    while True:
        if await answers(directory):
            return directory
        try:
            return await open_store(place)
        except InUse:
            # Held by a relay that is starting or stopping, or by another command.
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(MEETING_PAUSE_SECONDS)


def _tell_relays(store: Store) -> Callable[[str], Awaitable[int]]:
    broker = os.environ.get("CRYSTAL_RELAY_BROKER")

    async def tell(vault: str) -> int:
        from crystal_relay.server.peers import announce_forget

        left = 0
        if broker:
            from crystal_relay.server.peers.broker import announce_by_broker

            left = await announce_by_broker(store, broker, vault)
        for _ in range(TELLINGS_MAX):
            left = (await announce_forget(store, vault)).not_heard
            if not left:
                break
        return left

    return tell
