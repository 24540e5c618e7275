"""Signed requests, which devices can make at the bucket themselves.

A signature covers everything that decides what happens: the object's name, "only if nothing is there", the length, the MD5
and the number of the write. So a signed put creates this one object from these bytes, or does nothing, however often it is sent
and by any client. Only for buckets that honour conditions, and that devices can reach safely: https, or loopback.

AWS refuses headers that are not signed, if they could change what happens. Some servers accept them: there, the
holder of a signed put could add `x-amz-copy-source` and copy any object of the bucket, another vault's or the relay's own, to
a readable key. This is tested when the store is opened, and no puts are signed for such a bucket.

Signed addresses are secrets until they expire. They hold the access key's id, never its secret.
"""

import base64
import hashlib
import logging
import secrets
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import httpx

from crystal_relay.address import SecretUrl, is_loopback
from crystal_relay.errors import NotFound, RelayError
from crystal_relay.keys import PROBE_PREFIX
from crystal_relay.s3.bucket import WRITE_METADATA, Bucket, new_write
from crystal_relay.s3.failures import failure_types, relay_error
from crystal_relay.store import DirectRequest

_PROBE_SECONDS = 10.0
EXPIRES_SECONDS = 300  # §R3.5-4
"""The request has to begin by then. Clocks of bucket and relay differ, and people wait before they repeat."""

_log = logging.getLogger(__name__)


def is_reachable(endpoint: str | None) -> bool:
    """Whether devices can be sent to the endpoint: https, or loopback."""
    if endpoint is None:
        return True
    parts = urlsplit(endpoint)
    return parts.scheme == "https" or is_loopback(parts.hostname or "")


def takes_exactly_what_was_signed(bucket: Bucket) -> bool:
    """Test that a signed put works, but not without its condition or with a source to copy from. Blocks."""
    place = f"{PROBE_PREFIX}{secrets.token_hex(8)}/"
    source, copy = place + "source", place + "copy"
    copying = {"x-amz-copy-source": f"/{bucket.address.bucket}/{bucket.address.object_name(source)}"}
    local = is_loopback(urlsplit(bucket.address.endpoint or "").hostname or "")
    try:
        with httpx.Client(trust_env=not local, timeout=_PROBE_SECONDS) as http:
            exact = (
                _try(http, bucket, source) == 200
                and _try(http, bucket, source, without="if-none-match") in (400, 403)
                and _try(http, bucket, copy, **copying) in (400, 403)
                and _is_missing(bucket, copy)
            )
            if not exact:
                _log.info("the object store takes more than was signed: big blobs are put through the relay")
            return exact
    except (httpx.HTTPError, RelayError) as error:
        _log.info(
            "signed requests could not be tried (%s): big blobs are put through the relay",
            type(error).__name__,
        )
        return False
    finally:
        for key in (source, copy):
            with suppress(RelayError):
                bucket.delete(key)


def signed_put(bucket: Bucket, key: str, size: int, md5: bytes) -> DirectRequest:
    """A request that creates the object from these bytes if the key is free. Blocks. Raises StoreUnavailable."""
    write = new_write()
    digest = base64.b64encode(md5).decode()
    url = _signed(
        bucket,
        "put_object",
        Key=bucket.address.object_name(key),
        IfNoneMatch="*",
        ContentLength=size,
        ContentMD5=digest,
        Metadata={WRITE_METADATA: write},
    )
    headers = {
        "if-none-match": "*",
        "content-length": str(size),
        "content-md5": digest,
        f"x-amz-meta-{WRITE_METADATA}": write,
    }
    return DirectRequest("PUT", url, headers, EXPIRES_SECONDS, write)  # §R3.5-4


def signed_get(bucket: Bucket, key: str) -> DirectRequest:
    """A request that reads the object. Blocks. Raises StoreUnavailable."""
    url = _signed(bucket, "get_object", Key=bucket.address.object_name(key))
    return DirectRequest("GET", url, {}, EXPIRES_SECONDS)


def _signed(bucket: Bucket, operation: str, **parameters: Any) -> str:
    """Sign a request. Sends nothing, but may have to renew credentials: blocks."""
    try:
        url: str = bucket.client.generate_presigned_url(
            operation, Params={"Bucket": bucket.address.bucket, **parameters}, ExpiresIn=EXPIRES_SECONDS
        )
    except failure_types() as error:
        raise relay_error(error, "Sign", (), write=False) from None
    return url


def _try(http: httpx.Client, bucket: Bucket, key: str, *, without: str = "", **added: str) -> int:
    """The status of a signed put with other headers than were signed."""
    body = key.encode()
    request = signed_put(bucket, key, len(body), hashlib.md5(body, usedforsecurity=False).digest())
    headers = {name: value for name, value in request.headers.items() if name != without} | added
    sent = http.build_request("PUT", request.url, headers=headers, content=body)
    sent.url = SecretUrl(sent.url)
    return http.send(sent).status_code


def _is_missing(bucket: Bucket, key: str) -> bool:
    try:
        bucket.head(key)
    except NotFound:
        return True
    return False
