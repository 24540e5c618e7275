"""Requests that devices may make at the bucket themselves, signed in advance.

A signature covers everything that decides what happens: the object's name, "only if nothing is there", the length, the MD5
and the number of the write. So a signed put creates this one object from these bytes, or does nothing, however often and by
whomever it is sent. Only for buckets that honour conditions, and that devices can reach safely: https, or this machine.

Signed addresses are secrets until they expire. They hold the access key's id, never its secret.
"""

import base64
from typing import Any
from urllib.parse import urlsplit

from crystal_relay.address import is_loopback
from crystal_relay.s3.bucket import WRITE_METADATA, Bucket, new_write
from crystal_relay.s3.failures import failure_types, relay_error
from crystal_relay.store import DirectRequest

EXPIRES_SECONDS = 300
"""The request has to begin by then. Clocks of bucket and relay differ, and people wait before they repeat."""


def is_reachable(endpoint: str | None) -> bool:
    """Whether devices can be sent to it: in plain text only within this machine."""
    if endpoint is None:
        return True
    parts = urlsplit(endpoint)
    return parts.scheme == "https" or is_loopback(parts.hostname or "")


def signed_put(bucket: Bucket, key: str, size: int, md5: bytes) -> DirectRequest:
    """Creates the object from these bytes, if nothing is there. Blocks. Raises StoreUnavailable."""
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
    return DirectRequest("PUT", url, headers, EXPIRES_SECONDS, write)


def signed_get(bucket: Bucket, key: str) -> DirectRequest:
    """Reads the object. Blocks. Raises StoreUnavailable."""
    url = _signed(bucket, "get_object", Key=bucket.address.object_name(key))
    return DirectRequest("GET", url, {}, EXPIRES_SECONDS)


def _signed(bucket: Bucket, operation: str, **parameters: Any) -> str:
    """Sends nothing, but may have to renew credentials: blocks."""
    try:
        url: str = bucket.client.generate_presigned_url(
            operation, Params={"Bucket": bucket.address.bucket, **parameters}, ExpiresIn=EXPIRES_SECONDS
        )
    except failure_types() as error:
        raise relay_error(error, "Sign", (), write=False) from None
    return url
