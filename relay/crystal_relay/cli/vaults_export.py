"""`crystal-relay vaults export`: the sealed content of a vault as one tar file.

<vault>/<key>              each object, sealed as devices sent it
<vault>/EXPORT.json        last, so that an export without it is not whole: {"vault", "objects", "bytes", "made"}
"""

import os
import sys
import tarfile
import time
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import msgspec
import typer

from crystal_relay.cli.failures import told
from crystal_relay.cli.operations import operate
from crystal_relay.cli.options import AsJson, S3AllowHttp, S3Endpoint, StoreAddress
from crystal_relay.cli.output import show_json, size, tell
from crystal_relay.cli.stores import StorePlace
from crystal_relay.cli.vaults import VaultArgument
from crystal_relay.errors import BadRequest, StoreUnavailable, Unusable

if TYPE_CHECKING:
    from crystal_relay.server.export import ExportPiece
    from crystal_relay.server.operator import Operations

STDOUT = "-"
END_NAME = "EXPORT.json"
_FILE_MODE = 0o600


class ExportReport(msgspec.Struct, frozen=True):
    """What an export holds. `made`: in Unix seconds."""

    vault: str
    objects: int
    bytes: int
    made: int


def export(
    vault: VaultArgument,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A new tar file, or `-` for standard output.")],
    store: StoreAddress = None,
    s3_endpoint: S3Endpoint = None,
    s3_allow_http: S3AllowHttp = False,
    as_json: AsJson = False,
) -> None:
    """Write all sealed objects of a vault into one tar file.

    They stay sealed: only the vault's devices can read them. Make the vault read-only first if it is in use, so that nothing
    is added meanwhile. The last file in it is EXPORT.json; without it the archive is not whole.
    """
    with told(as_json=as_json):
        if file == STDOUT and sys.stdout.isatty():
            raise BadRequest("an export is no text for a terminal", hint="Name a file, or pipe it on.")
        place = StorePlace.of_options(store, s3_endpoint, s3_allow_http)
        with nullcontext(sys.stdout.buffer) if file == STDOUT else _new_file(Path(file)) as out:

            async def work(operations: "Operations") -> ExportReport:
                return await write_export(out, vault, operations.export(vault))

            report = operate(place, work)
        if file == STDOUT:
            tell(f"{report.objects} objects, {size(report.bytes)}.")
        elif as_json:
            show_json(report)
        else:
            print(f"{report.objects} objects, {size(report.bytes)}, in {file}.")


async def write_export(out: BinaryIO, vault: str, pieces: "AsyncIterator[ExportPiece]") -> ExportReport:
    """Write a tar stream of the pieces. Raises StoreUnavailable (an object broke off)."""
    made = int(time.time())
    objects = total = left = 0
    async for piece in pieces:
        if not piece.start:
            if left:
                break
            out.write(_header(f"{vault}/{piece.key}", piece.size, made))
            objects, total, left = objects + 1, total + piece.size, piece.size
        out.write(piece.data)
        left -= len(piece.data)
        if not left:
            out.write(_padding(piece.size))
    if left:
        raise StoreUnavailable("an object broke off", hint="Run the export again.")
    report = ExportReport(vault, objects, total, made)
    end = msgspec.json.encode(report)
    out.write(_header(f"{vault}/{END_NAME}", len(end), made) + end + _padding(len(end)))
    out.write(bytes(2 * tarfile.BLOCKSIZE))
    out.flush()
    return report


@contextmanager
def _new_file(file: Path) -> Generator[BinaryIO]:
    """A file that appears under its name once it is whole. Raises BadRequest (it exists), Unusable (it cannot be written)."""
    if file.exists():
        raise BadRequest(f"{file} exists already", hint="Name a new file.")
    temporary = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE)
        with os.fdopen(descriptor, "wb") as out:
            yield out
            out.flush()
            os.fsync(descriptor)
        temporary.rename(file)
    except OSError as error:
        raise Unusable(
            f"{file} cannot be written ({error.strerror})", hint="Name a file elsewhere, with enough space."
        ) from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _header(name: str, count: int, made: int) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = count, made, _FILE_MODE
    return entry.tobuf(tarfile.PAX_FORMAT)


def _padding(count: int) -> bytes:
    return bytes(-count % tarfile.BLOCKSIZE)
