"""Strict reading of requests: limited in size and time, JSON of one kind, no unknown field, no parameter twice."""

import asyncio
from typing import TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import ClientDisconnect, Request

from crystal_node.base.decoding import from_fields
from crystal_node.search.finding.schema_errors import SchemaMismatch, decoded, error_text
from crystal_node.surfaces.gateway.errors import BodyTooSlow, InvalidRequest, RequestTooLarge
from crystal_node.surfaces.gateway.limits import BODY_BYTES_MAX, BODY_SECONDS_MAX

QUERY_FIELDS_MAX = 16
Parsed = TypeVar("Parsed", bound=msgspec.Struct)


async def json_of(request: Request, kind: type[Parsed], *, bytes_max: int = BODY_BYTES_MAX) -> Parsed:
    """The body. Raises BadRequest, TooLarge, TooSlow."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise InvalidRequest("the body has to be application/json")
    body = await body_of(request, bytes_max)
    try:
        return decoded(body, kind)
    except SchemaMismatch as error:
        raise InvalidRequest(str(error)) from error


def query_of(request: Request, kind: type[Parsed]) -> Parsed:
    """The query's parameters as a ``kind``. Raises BadRequest."""
    try:
        pairs = parse_qsl(
            request.scope["query_string"].decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(request.scope["query_string"]),
            max_num_fields=QUERY_FIELDS_MAX,
            errors="strict",
        )
    except ValueError as error:
        raise InvalidRequest("the query cannot be read") from error
    if len({name for name, _ in pairs}) < len(pairs):
        raise InvalidRequest("a parameter comes twice")
    try:
        return from_fields(dict(pairs), kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequest(error_text(error, kind)) from error


def no_query(request: Request) -> None:
    """Raises BadRequest."""
    if request.scope["query_string"]:
        raise InvalidRequest("this address takes no query")


async def body_of(request: Request, bytes_max: int) -> bytes:
    """The body as it is. Raises InvalidRequest, RequestTooLarge, BodyTooSlow."""
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS_MAX):
            async for piece in request.stream():
                size += len(piece)
                if size > bytes_max:
                    raise RequestTooLarge(f"a body has at most {bytes_max // 1024} KiB here")
                pieces.append(piece)
    except TimeoutError as error:
        raise BodyTooSlow("the body did not come in time") from error
    except ClientDisconnect as error:
        raise InvalidRequest("the body broke off") from error
    return b"".join(pieces)
