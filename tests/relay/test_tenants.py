"""Two tenants on one relay: whatever one of them sends, the other's vault neither shows nor changes."""

import asyncio
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crystal_relay.address import http_client
from crystal_relay.memory import MemoryStore
from crystal_relay.tokens import new_token, token_hash
from tests.support.relay_server import ENROLL_TOKEN, Member, enrolled, threaded_relay

MARK = b"belongs to the victim alone"


@dataclass(frozen=True)
class World:
    """A relay, who attacks and who is attacked."""

    url: str
    attacker: Member
    victim: Member
    before: dict[str, bytes]
    """The victim's objects."""


@pytest.fixture(scope="module")
def world() -> Generator[World]:
    with threaded_relay(MemoryStore) as url:
        attacker, victim = asyncio.run(_populate(url))
        yield World(url, attacker, victim, asyncio.run(_snapshot(url, victim)))


async def _populate(url: str) -> tuple[Member, Member]:
    attacker, victim = await enrolled(url), await enrolled(url)
    for member, data in ((attacker, b"mine"), (victim, MARK)):
        store = member.store(url)
        for key in ("devlog/0", "mirror/1/0", "blob/0", f"conversations/{member.device}.{'0' * 16}/0"):
            await store.put_new(member.prefix + key, data)
        await store.put(f"{member.prefix}cursor/{member.device}", data)
        await store.aclose()
    return attacker, victim


async def _snapshot(url: str, victim: Member) -> dict[str, bytes]:
    store = victim.store(url)
    found = {
        entry.key: await (await store.get(entry.key)).read()
        for entry in (await store.list(victim.prefix)).entries
    }
    await store.aclose()
    return found


channels = st.sampled_from(
    ["devlog", "conversations", "mirror", "commands", "cursor", "blob", "invite", "r", "v", ".."]
)
verbs = st.sampled_from(["GET", "PUT", "DELETE", "POST", "HEAD", "PATCH", "OPTIONS"])


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    """A request made of what an attacker knows: both vaults' and devices' ids, and its own credentials."""
    vaults = st.sampled_from(["{attacker}", "{victim}", "{attacker}/../{victim}", "..", "*", "{victim}%00"])
    devices = st.sampled_from(["{attacker_device}", "{victim_device}", "{attacker_device}.0000000000000000"])
    names = st.lists(
        st.one_of(
            channels, devices, vaults, st.sampled_from(["0", "1", "objects", "list", "%2e%2e", "..%2f", ""])
        ),
        max_size=5,
    ).map("/".join)
    routes = st.sampled_from(["objects", "list", "wait", "tokens", "tokens/{victim_device}", ""])
    path = f"/v2/vaults/{draw(vaults)}/{draw(routes)}/{draw(names)}".rstrip("/")
    if draw(st.booleans()):
        path = f"/v2/vaults/{draw(vaults)}/objects/{draw(channels)}/{draw(names)}"
    query = draw(
        st.dictionaries(
            st.sampled_from(["prefix", "after", "limit", "timeout", "token", "vault"]),
            st.one_of(names, st.sampled_from(["0", "1000", "{victim}", "../{victim}/", "v/{victim}/"])),
            max_size=2,
        )
    )
    return {
        "method": draw(verbs),
        "path": path,
        "query": query | ({"timeout": "0"} if "wait" in path else {}),
        "authorization": draw(
            st.sampled_from(
                [
                    "Bearer {token}",
                    "Crystal-Recovery {recovery}",
                    "Bearer {swapped}",
                    "Bearer {enrol}",
                    "",
                    "Bearer x",
                ]
            )
        ),
        "condition": draw(st.booleans()),
        "body": draw(st.sampled_from([b"", b"overwritten", b"{}", b"token", b"vault"])),
    }


@given(st.lists(requests(), min_size=1, max_size=8))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_request_of_one_tenant_reaches_the_other(world: World, steps: list[dict[str, Any]]) -> None:
    asyncio.run(_attack(world, steps))


async def _attack(world: World, steps: list[dict[str, Any]]) -> None:
    attacker, victim = world.attacker, world.victim
    known = {
        "attacker": attacker.vault,
        "victim": victim.vault,
        "attacker_device": attacker.device,
        "victim_device": victim.device,
        "token": attacker.token,
        "recovery": attacker.recovery.hex(),
        "swapped": f"{victim.device}.{attacker.token.partition('.')[2]}",
        "enrol": ENROLL_TOKEN,
    }
    bodies = {
        b"token": {"device": attacker.device, "token_hash": token_hash(attacker.token), "preset": "lead"},
        b"vault": {
            "vault": victim.vault,
            "recovery_hash": "0" * 64,
            "device": attacker.device,
            "token_hash": token_hash(new_token(attacker.device)),
        },
    }
    async with http_client(world.url, connect=10, idle=30, connections_kept=4) as http:
        for step in steps:
            path = "/v2/vaults" if step["body"] == b"vault" else step["path"].format(**known)
            headers = {"If-None-Match": "*"} if step["condition"] else {}
            if step["authorization"]:
                headers["Authorization"] = step["authorization"].format(**known)
            content: dict[str, Any] = {"content": step["body"]}
            if step["body"] in bodies:
                content = {"json": bodies[step["body"]]}
            reply = await http.request(
                step["method"],
                path,
                params={name: value.format(**known) for name, value in step["query"].items()},
                headers=headers,
                **content,
            )
            assert MARK not in reply.content
            assert reply.status_code < 500
            # Only what it sent itself may name the victim's objects.
            assert f"conversations/{victim.device}".encode() not in reply.content
    assert await _snapshot(world.url, victim) == world.before
