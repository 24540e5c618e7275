"""A device of the published prototype, as far as a relay sees it: written from the wire format alone."""

from dataclasses import dataclass, field
from typing import Any, Self

import httpx

from crystal_prototype.relay.drops import Drops
from crystal_prototype.relay.names import Role, V1Channel
from crystal_prototype.relay.spool import V1Spool
from crystal_prototype.relay.tokens import DEFAULT_SPACE, Tokens, V1Holder, new_token, token_hash
from crystal_relay.store import Store, body_of


@dataclass
class V1Device:
    """One device with its token."""

    url: str
    token: str
    agent: str
    http: httpx.AsyncClient = field(init=False)

    def __post_init__(self) -> None:
        self.http = httpx.AsyncClient(
            base_url=self.url, headers={"Authorization": f"Bearer {self.token}"}, timeout=60
        )

    @classmethod
    async def added(cls, url: str, store: Store, agent: str, role: str, space: str = DEFAULT_SPACE) -> Self:
        """A device whose token the operator has just made."""
        token, _ = await let_in(store, agent, Role(role), space)
        return cls(url, token, agent)

    async def drop(self, channel: str, sealed: bytes) -> dict[str, Any]:
        """The relay's answer."""
        return await self._json(self.http.post(f"/drop/{channel}", content=sealed))

    async def listed(self, channel: str) -> list[dict[str, Any]]:
        """What waits."""
        reply = await self._json(self.http.get(f"/pickup/{channel}"))
        assert reply["channel"] == channel
        assert reply["count"] == len(reply["blobs"])
        blobs: list[dict[str, Any]] = reply["blobs"]
        return blobs

    async def pick_up(self, channel: str, name: str) -> bytes:
        """A blob's bytes."""
        response = await self.http.get(f"/pickup/{channel}/{name}")
        assert response.status_code == 200, response.text
        return response.content

    async def confirm(self, channel: str, name: str) -> dict[str, Any]:
        """The relay's answer."""
        return await self._json(self.http.delete(f"/confirm/{channel}/{name}"))

    async def poll(self, channel: str) -> list[bytes]:
        """What the prototype does each minute: list, pick up and confirm one after the other."""
        received: list[bytes] = []
        for blob in await self.listed(channel):
            received.append(await self.pick_up(channel, blob["id"]))
            await self.confirm(channel, blob["id"])
        return received

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    async def _json(self, call: Any) -> dict[str, Any]:
        response: httpx.Response = await call
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found


async def let_in(store: Store, agent: str, role: Role, space: str = DEFAULT_SPACE) -> tuple[str, V1Holder]:
    """A new token, and whose it is."""
    token = new_token()
    return token, await Tokens(store).add(token_hash(token), agent, role, space)


async def dropped(
    drops: Drops, sender: V1Holder, sealed: bytes, channel: V1Channel = V1Channel.MIRROR
) -> str:
    """Drop without HTTP. Returns the id."""
    async with V1Spool().receive(body_of(sealed)) as received:
        return str(await drops.drop(sender, channel, received))
