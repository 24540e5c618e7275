"""A store in memory whose direct requests a test makes itself, by `arrive`."""

import secrets

from crystal_relay.memory import MemoryStore
from crystal_relay.store import DirectRequest, Head

SIGNATURE = "s1gnature-that-nobody-may-see"


class DirectMemoryStore(MemoryStore):
    """A `DirectStore`. Its addresses lead nowhere."""

    direct_puts = True
    direct_gets = True

    def __init__(self) -> None:
        super().__init__()
        self.announced: list[str] = []
        self._receipts: dict[str, str] = {}

    async def direct_put(self, key: str, *, size: int, md5: bytes) -> DirectRequest:
        receipt = secrets.token_hex(16)
        url = f"https://bucket.invalid/{key}?X-Amz-Signature={SIGNATURE}"
        return DirectRequest("PUT", url, {"x-amz-meta-crystal-write": receipt}, 300, receipt)

    async def direct_get(self, key: str) -> DirectRequest:
        return DirectRequest("GET", f"https://bucket.invalid/{key}?X-Amz-Signature={SIGNATURE}", {}, 300)

    async def head(self, key: str) -> Head:
        async with await self.get(key) as found:
            return Head(found.size, self._receipts.get(key, ""))

    def announce(self, key: str) -> None:
        self.announced.append(key)

    async def arrive(self, key: str, whole: bytes, receipt: str) -> None:
        """What the bucket does with a signed put."""
        await self.put_new(key, whole)
        self._receipts[key] = receipt
