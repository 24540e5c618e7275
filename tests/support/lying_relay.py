"""A device's store between a relay and a bucket that lie about direct transfers."""

import base64
import hashlib
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from crystal_relay.client.http import HttpStore
from crystal_relay.limits import DIRECT_BYTES_MIN
from tests.support.odd_server import PREFIX, client_of, reply
from tests.support.recorder import Answer, Asked, Recorder, error_reply, json_reply, recorder

BODY = secrets.token_bytes(DIRECT_BYTES_MIN)
KEY = f"{PREFIX}blob/a"
SIGNATURE = "s1gnature-that-nobody-may-see"
RECEIPT = "receipt-that-nobody-may-see"
OURS = {
    "if-none-match": "*",
    "content-length": str(len(BODY)),
    "content-md5": base64.b64encode(hashlib.md5(BODY, usedforsecurity=False).digest()).decode(),
}

STORED = json_reply(201, {"size": len(BODY)})
TAKEN = error_reply(412, "exists")
MISSING = error_reply(404, "not-found")
WHOLE = reply(200, BODY)
XML = b'<?xml version="1.0"?><Error><Code>Whatever</Code></Error>'


@dataclass
class LyingRelay:
    """Grants what it is told to, says of every put what it is told to, and takes and gives objects itself too."""

    bucket: str = ""
    done: bytes = STORED
    grant: dict[str, Any] = field(default_factory=dict[str, Any])
    begin: bytes | None = None
    asked: list[Asked] = field(default_factory=list[Asked])

    def __call__(self, asked: Asked) -> bytes:
        self.asked.append(asked)
        if asked.target.endswith("/transfers/done"):
            return self.done
        if asked.target.endswith("/transfers"):
            putting = b'"put"' in asked.body
            granted = {
                "direct": True,
                "offered": True,
                "method": "PUT" if putting else "GET",
                "url": f"{self.bucket}/bucket/object?X-Amz-Signature={SIGNATURE}",
                "headers": {"x-amz-meta-crystal-write": RECEIPT, **OURS} if putting else {},
                "expires_seconds": 300,
                "size": len(BODY),
                "receipt": RECEIPT if putting else "",
            }
            return self.begin or json_reply(201, granted | self.grant)
        return reply(201) if asked.method == "PUT" else WHOLE

    def count(self, end: str) -> int:
        return sum(asked.target.endswith(end) for asked in self.asked)


@dataclass
class Stage:
    """A device's store, the relay that it trusts too much, and the bucket that it is sent to."""

    store: HttpStore
    url: str
    relay: LyingRelay
    bucket: Recorder

    async def put(self) -> None:
        await self.store.put_new(KEY, BODY)

    async def get(self) -> None:
        assert await (await self.store.get(KEY)).read() == BODY


@asynccontextmanager
async def stage(answer: Answer | bytes | None = None, **lies: Any) -> AsyncGenerator[Stage]:
    """`answer`: the bucket's, to everything if it is bytes. It does as it should without one."""
    lying = LyingRelay(**lies)

    def at_bucket(asked: Asked) -> bytes | None:
        if answer is None:
            return reply(200) if asked.method == "PUT" else WHOLE
        return answer if isinstance(answer, bytes) else answer(asked)

    async with recorder(at_bucket) as bucket, recorder(lying) as relay, client_of(relay.url) as store:
        lying.bucket = lying.bucket or bucket.url
        yield Stage(store, relay.url, lying, bucket)
