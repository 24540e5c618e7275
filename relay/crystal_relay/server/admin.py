"""The operator's socket: a Unix socket in the directory of a relay with a local store.

The user that owns the directory can use it: it is created with mode 0600. One connection carries one request, a line of JSON,
and its reply: a line for each item, then one with the outcome. Requests are parsed as strictly as those over HTTP. No secret
is sent: of a new token only the hash.

    {"do": "drop", "vault": "…", "grace_seconds": 604800}
    {"item": {…}}
    {"failed": null}

A killed relay leaves a dead socket, which the next one replaces.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from crystal_relay.errors import UNDECODABLE, BadRequest, RelayError, StoreUnavailable, Unusable
from crystal_relay.server.check import CheckReport
from crystal_relay.server.enrollment import Enrollment, EnrollmentState
from crystal_relay.server.export import ExportPiece
from crystal_relay.server.extension import Extension
from crystal_relay.server.operator import (
    Operations,
    Result,
    SweepReport,
    TermsState,
    VaultState,
    VaultSummary,
)
from crystal_relay.server.vault_terms import VaultAccess
from crystal_relay.unix_socket import listen_at, short_path
from crystal_relay.wire import ErrorReply, error_of_reply

SOCKET_NAME = "admin.sock"
LINE_BYTES_MAX = 64 * 1024
REQUEST_SECONDS_MAX = 5.0
"""Time from the connection to the end of the request."""
CONNECTIONS_MAX = 8
_log = logging.getLogger("crystal_relay.server")

Item = TypeVar("Item")


class _Vaults(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="vaults"):
    pass


class _Vault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="vault"):
    vault: str


class _Drop(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="drop"):
    vault: str
    grace_seconds: int


class _Restore(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="restore"):
    vault: str


class _Access(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="access"):
    vault: str
    access: VaultAccess
    reason: str = ""


class _Quota(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="quota"):
    vault: str
    quota_bytes: int


class _Export(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="export"):
    vault: str


class _Enrollment(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="enrollment"):
    closed: bool | None = None
    """None to ask only."""


class _Enroll(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="enroll"):
    token_hash: str
    label: str
    uses: int = 0
    lives_seconds: int = 0
    quota_bytes: int = 0


class _Enrollments(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="enrollments"
):
    pass


class _Revoke(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="revoke"):
    name: str


class _Check(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="check"):
    pass


class _Sweep(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="sweep"):
    pass


_Enrolling = _Enrollment | _Enroll | _Enrollments | _Revoke
_OfVault = _Vault | _Drop | _Restore | _Access | _Quota | _Export
_Request = _Vaults | _OfVault | _Enrolling | _Check | _Sweep


class _Failure(msgspec.Struct, frozen=True):
    status: int
    reply: ErrorReply


class _Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """An item, or with `ended` the last line. `failed` is the error, if any."""

    item: object = None
    ended: bool = False
    failed: _Failure | None = None


# --- the relay's side -------------------------------------------------------------------------------------------------


@asynccontextmanager
async def admin_socket(
    directory: Path, operations: Operations, extensions: Sequence[Extension] = ()
) -> AsyncGenerator[None]:
    """Serve `operations` and the requests of `extensions` at the directory's socket.

    If no socket can be created, log a warning and run without one.
    """
    door = _Door(operations, extensions)
    try:
        with short_path(directory, SOCKET_NAME) as path:
            listener = listen_at(path, CONNECTIONS_MAX)
    except (OSError, RelayError) as error:
        _log.warning(
            "operator's commands do not work while this relay runs: no socket in its directory (%s)", error
        )
        yield
        return
    server = await asyncio.start_unix_server(door.serve, sock=listener, limit=LINE_BYTES_MAX)
    try:
        yield
    finally:
        # Removed before the directory's lock: a command that finds no socket opens the directory, and waits for the lock.
        (directory / SOCKET_NAME).unlink(missing_ok=True)
        server.close()
        await door.close()
        await server.wait_closed()


class _Door:
    def __init__(self, operations: Operations, extensions: Sequence[Extension]) -> None:
        self._operations = operations
        asked: Any = _Request
        for each in extensions:
            for request in each.requests:
                asked = asked | request
        self._decoder: msgspec.json.Decoder[msgspec.Struct] = msgspec.json.Decoder(asked)
        self._open: set[asyncio.Task[object]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        task = asyncio.current_task()
        assert task is not None, "streams are served by tasks"
        self._open.add(task)
        try:
            await self._answer(reader, writer)
        except (ConnectionError, TimeoutError):
            return  # the client has gone, or sent no request
        finally:
            self._open.discard(task)
            writer.close()

    async def close(self) -> None:
        """Cancel running requests. All of them can be repeated."""
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        last = _Line(ended=True)
        try:
            if len(self._open) > CONNECTIONS_MAX:
                raise StoreUnavailable("too many operator's commands at once", hint="Try again in a moment.")
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                request = await _read_request(reader, self._decoder)
            async for item in self._done(request):
                writer.write(msgspec.json.encode(_Line(item=item)) + b"\n")
                await writer.drain()
        except RelayError as error:
            last = _Line(
                ended=True, failed=_Failure(error.status, ErrorReply(error.code, str(error), error.hint))
            )
        writer.write(msgspec.json.encode(last) + b"\n")
        await writer.drain()

    async def _done(self, request: msgspec.Struct) -> AsyncIterator[msgspec.Struct]:
        """Carry out a request, and yield its items."""
        do = self._operations
        match request:
            case _Vaults():
                async for summary in do.vaults():
                    yield summary
            case _Vault(vault):
                yield await do.vault(vault)
            case _Drop(vault, grace_seconds):
                yield await do.drop(vault, grace_seconds)
            case _Restore(vault):
                yield await do.restore(vault)
            case _Access(vault, access, reason):
                yield await do.set_access(vault, access, reason)
            case _Quota(vault, quota_bytes):
                yield await do.set_quota(vault, quota_bytes)
            case _Export(vault):
                async for piece in do.export(vault):
                    yield piece
            case _Enrollment(closed):
                yield await (do.enrollment() if closed is None else do.set_enrollment(closed=closed))
            case _Enroll(token_hash, label, uses, lives_seconds, quota_bytes):
                yield await do.enroll(
                    token_hash, label, uses=uses, lives_seconds=lives_seconds, quota_bytes=quota_bytes
                )
            case _Enrollments():
                for enrollment in await do.enrollments():
                    yield enrollment
            case _Revoke(name):
                yield await do.revoke_enrollment(name)
            case _Check():
                yield await do.check()
            case _Sweep():
                yield await do.sweep()
            case _:
                async for result in do.extended(request, msgspec.Struct):
                    yield result


async def _read_request(
    reader: asyncio.StreamReader, decoder: msgspec.json.Decoder[msgspec.Struct]
) -> msgspec.Struct:
    try:
        line = await reader.readuntil(b"\n")
    except asyncio.LimitOverrunError:
        raise BadRequest(f"a request has at most {LINE_BYTES_MAX} bytes") from None
    except asyncio.IncompleteReadError:
        raise ConnectionResetError from None
    try:
        return decoder.decode(line)
    except UNDECODABLE:
        raise BadRequest("the request is not understood", hint="Is the relay of the same version?") from None


# --- the operator's side ----------------------------------------------------------------------------------------------


async def answers(directory: Path) -> bool:
    """Whether a relay listens at the directory's socket. Raises Unusable without permission."""
    try:
        _, writer = await _connect(directory)
    except PermissionError:
        raise Unusable(
            f"{directory}: this user may not use the relay's directory",
            hint="Run the command as the user that runs the relay.",
        ) from None
    except OSError:
        return False
    await _close(writer)
    return True


class RemoteOperator:
    """`Operations` of the relay that serves a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def vaults(self) -> AsyncIterator[VaultSummary]:
        async for summary in self._items(_Vaults(), VaultSummary):
            yield summary

    async def vault(self, vault: str) -> VaultSummary:
        return await self._one(_Vault(vault), VaultSummary)

    async def drop(self, vault: str, grace_seconds: int) -> VaultState:
        return await self._one(_Drop(vault, grace_seconds), VaultState)

    async def restore(self, vault: str) -> VaultState:
        return await self._one(_Restore(vault), VaultState)

    async def set_access(self, vault: str, access: VaultAccess, reason: str) -> TermsState:
        return await self._one(_Access(vault, access, reason), TermsState)

    async def set_quota(self, vault: str, quota_bytes: int) -> TermsState:
        return await self._one(_Quota(vault, quota_bytes), TermsState)

    async def export(self, vault: str) -> AsyncIterator[ExportPiece]:
        async for piece in self._items(_Export(vault), ExportPiece):
            yield piece

    async def set_enrollment(self, *, closed: bool) -> EnrollmentState:
        return await self._one(_Enrollment(closed), EnrollmentState)

    async def enrollment(self) -> EnrollmentState:
        return await self._one(_Enrollment(), EnrollmentState)

    async def enroll(
        self, token_hash: str, label: str, *, uses: int = 0, lives_seconds: int = 0, quota_bytes: int = 0
    ) -> Enrollment:
        return await self._one(_Enroll(token_hash, label, uses, lives_seconds, quota_bytes), Enrollment)

    async def enrollments(self) -> list[Enrollment]:
        return [each async for each in self._items(_Enrollments(), Enrollment)]

    async def revoke_enrollment(self, name: str) -> Enrollment:
        return await self._one(_Revoke(name), Enrollment)

    async def extended(self, request: msgspec.Struct, kind: type[Result]) -> AsyncIterator[Result]:
        async for result in self._items(request, kind):
            yield result

    async def check(self) -> CheckReport:
        return await self._one(_Check(), CheckReport)

    async def sweep(self) -> SweepReport:
        return await self._one(_Sweep(), SweepReport)

    # --- inside ---

    async def _one(self, request: msgspec.Struct, kind: type[Item]) -> Item:
        items = [item async for item in self._items(request, kind)]
        if len(items) != 1:
            raise StoreUnavailable("the relay's answer is not understood")
        return items[0]

    async def _items(self, request: msgspec.Struct, kind: type[Item]) -> AsyncIterator[Item]:
        writer: asyncio.StreamWriter | None = None
        try:
            reader, writer = await _connect(self._directory)
            writer.write(msgspec.json.encode(request) + b"\n")
            await writer.drain()
            while True:
                line = msgspec.json.decode(await reader.readuntil(b"\n"), type=_Line)
                if line.failed is not None:
                    raise error_of_reply(line.failed.status, msgspec.json.encode(line.failed.reply))
                if line.ended:
                    return
                if line.item is not None:
                    yield msgspec.convert(line.item, type=kind)
        except (OSError, EOFError, asyncio.LimitOverrunError, *UNDECODABLE):
            raise StoreUnavailable(
                "the relay broke off", hint="What it was asked may or may not be done; ask again."
            ) from None
        finally:
            if writer is not None:
                await _close(writer)


async def _connect(directory: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    with short_path(directory, SOCKET_NAME) as path:
        return await asyncio.open_unix_connection(str(path), limit=LINE_BYTES_MAX)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
