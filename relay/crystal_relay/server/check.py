"""Test of a store with an object of its own; each step is timed."""

import secrets
import time
from collections.abc import Awaitable, Callable

import msgspec

from crystal_relay.errors import AlreadyExists, NotFound, RelayError, StoreDamaged
from crystal_relay.keys import PROBE_PREFIX
from crystal_relay.store import Store

_WRITTEN = b"written by crystal-relay check: " * 8192
"""Large enough that no store keeps it in memory."""
_OTHER = b"this must not be stored"


class CheckStep(msgspec.Struct, frozen=True):
    """One step. `error` is empty if it succeeded."""

    name: str
    seconds: float
    error: str = ""


class CheckReport(msgspec.Struct, frozen=True):
    """The steps in order. After a failure only the clean-up follows."""

    ok: bool
    steps: list[CheckStep]


async def check_store(store: Store, *, clock: Callable[[], float] = time.perf_counter) -> CheckReport:
    """Write, read, list, refuse a second write, delete. Leaves nothing behind unless deleting fails."""
    prefix = f"{PROBE_PREFIX}{secrets.token_hex(8)}/"
    key = f"{prefix}check"

    async def write() -> None:
        await store.put_new(key, _WRITTEN)

    async def read() -> None:
        if await (await store.get(key)).read() != _WRITTEN:
            raise StoreDamaged("it gave other bytes than were written")

    async def read_a_part() -> None:
        if await (await store.get(key, start=7, length=20)).read() != _WRITTEN[7:27]:
            raise StoreDamaged("it gave other bytes than were asked for")

    async def show_in_list() -> None:
        if [entry.key for entry in (await store.list(prefix)).entries] != [key]:
            raise StoreDamaged("the list does not show what was written")

    async def refuse_to_write_again() -> None:
        try:
            await store.put_new(key, _OTHER)
        except AlreadyExists:
            await read()
            return
        raise StoreDamaged("it wrote over an object that was to be written once")

    async def delete() -> None:
        await store.delete(key)

    async def be_gone() -> None:
        try:
            await (await store.get(key)).read()
        except NotFound:
            return
        raise StoreDamaged("the object is still there after it was deleted")

    steps: list[CheckStep] = []

    async def step(name: str, call: Callable[[], Awaitable[None]]) -> bool:
        began, error = clock(), ""
        try:
            await call()
        except RelayError as failure:
            error = f"{failure.code}: {failure}"
        steps.append(CheckStep(name, round(clock() - began, 6), error))
        return not error

    for name, call in (
        ("write", write),
        ("read", read),
        ("read a part", read_a_part),
        ("list", show_in_list),
        ("refuse a second write", refuse_to_write_again),
    ):
        if not await step(name, call):
            break
    if await step("delete", delete):
        await step("be gone", be_gone)
    return CheckReport(all(not each.error for each in steps), steps)
