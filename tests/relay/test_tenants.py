"""Two tenants on one relay: whatever one of them sends, the other's vault neither shows nor changes."""

import asyncio
import secrets
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crystal_relay.address import http_client
from crystal_relay.client.http import HttpStore
from crystal_relay.errors import BadRequest, QuotaExceeded
from crystal_relay.invites import access_hash
from crystal_relay.memory import MemoryStore
from crystal_relay.server import RelaySettings
from crystal_relay.server.sweeper import Sweeper
from crystal_relay.tokens import new_token, token_hash
from tests.support.relay_server import ENROLL_TOKEN, Member, enrolled, threaded_relay

MARK = b"belongs to the victim alone"


INVITES = "ab" * 16
ACCESS = bytes(range(32))
"""To the attacker's own invite, in a mailbox of the same name."""
QUOTA_ENTRIES = 200
"""Of each vault: the attacker's writes must not use up the victim's."""


@dataclass(frozen=True)
class World:
    """A relay, who attacks and who is attacked."""

    relay: MemoryStore

    url: str
    attacker: Member
    victim: Member
    before: dict[str, bytes]
    """The victim's objects."""


@pytest.fixture(scope="module")
def world() -> Generator[World]:
    store = MemoryStore()
    limits = RelaySettings(
        enroll_token=ENROLL_TOKEN, quota_entries=QUOTA_ENTRIES, rate_per_token=0, sweep_seconds=0
    )
    with threaded_relay(lambda: store, limits) as url:
        attacker, victim = asyncio.run(_populate(url, store))
        yield World(store, url, attacker, victim, asyncio.run(_snapshot(url, victim)))


async def _populate(url: str, relay: MemoryStore) -> tuple[Member, Member]:
    attacker, victim = await enrolled(url), await enrolled(url)
    for member, data in ((attacker, b"mine"), (victim, MARK)):
        store = member.store(url)
        for key in ("devlog/0", "mirror/1/0", "blob/0", f"conversations/{member.device}.{'0' * 16}/0"):
            await store.put_new(member.prefix + key, data)
        await store.put(f"{member.prefix}cursor/{member.device}", data)
        # Written without a record that would have it swept.
        await relay.put_new(f"{member.prefix}invite/{INVITES}/offer", data)
        access = access_hash(ACCESS if member is attacker else secrets.token_bytes(32))
        await relay.put_new(
            f"r/vault/{member.vault}/invite/{INVITES}/opened",
            msgspec.json.encode({"version": 1, "access_hash": access, "expires_at": 10**11}),
        )
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


NAMES = ["0", "1000", "used", f"invite/{INVITES}/", "{victim}", "../{victim}/", "v/{victim}/"]
ROUTES = [
    *("condemned", "transfers", "transfers/done"),
    *(f"objects/invite/{INVITES}/offer", f"objects/invite/{INVITES}/join"),
]
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
    routes = st.sampled_from(
        [
            *("objects", "list", "wait", "tokens", "tokens/{victim_device}", "condemned", "transfers", ""),
            *(
                "members",
                "leads/{attacker_device}",
                "recovery",
                "recovery/1",
                "invites",
                f"invites/{INVITES}",
            ),
        ]
    )
    path = f"/v2/vaults/{draw(vaults)}/{draw(routes)}/{draw(names)}".rstrip("/")
    if draw(st.booleans()):
        path = f"/v2/vaults/{draw(vaults)}/objects/{draw(channels)}/{draw(names)}"
    elif draw(st.integers(0, 3)) == 0:
        path = f"/v2/vaults/{draw(vaults)}/" + draw(st.sampled_from(ROUTES))
    query = draw(
        st.dictionaries(
            st.sampled_from(["prefix", "after", "limit", "timeout", "token", "vault", "reason"]),
            st.one_of(names, st.sampled_from(NAMES)),
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
                    f"Crystal-Invite {INVITES}.{ACCESS.hex()}",
                    "Bearer {swapped}",
                    "Bearer {enrol}",
                    "",
                    "Bearer x",
                ]
            )
        ),
        "condition": draw(st.booleans()),
        "body": draw(
            st.sampled_from(
                [
                    b"",
                    b"overwritten",
                    b"{}",
                    b"token",
                    b"vault",
                    b"keys",
                    b"range",
                    b"climbing",
                    b"transfer",
                    b"members",
                    b"recovery",
                    b"invite",
                ]
            )
        ),
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
        b"keys": {"keys": ["mirror/1/0", "blob/0", f"conversations/{victim.device}.{'0' * 16}/0"]},
        b"range": {
            "prefix": f"conversations/{victim.device}.{'0' * 16}/",
            "through": f"conversations/{victim.device}.{'0' * 16}/z",
        },
        b"climbing": {"keys": [f"../{victim.vault}/mirror/1/0", f"v/{victim.vault}/mirror/1/0"]},
        b"transfer": {"key": "blob/0", "direction": "get"},
        b"members": {"devices": [attacker.device]},
        b"recovery": {"recovery_hash": token_hash(attacker.token)},
        b"invite": {"mailbox": INVITES, "access_hash": access_hash(ACCESS)},
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
    # What was condemned is carried out, and whatever has a time is past it.
    await Sweeper(world.relay, clock=lambda: time.time() + 100_000).run()
    assert await _snapshot(world.url, victim) == world.before


def test_a_vault_that_is_full_of_what_one_tenant_wrote_leaves_the_others_their_room(world: World) -> None:
    asyncio.run(_fill(world))


async def _fill(world: World) -> None:
    greedy, other = await enrolled(world.url), await enrolled(world.url)
    store, theirs = greedy.store(world.url), other.store(world.url)
    keys = [f"{greedy.prefix}mirror/1/{number:04d}" for number in range(QUOTA_ENTRIES + 20)]
    with pytest.raises(QuotaExceeded):
        await _write(store, keys)
    with pytest.raises(BadRequest):
        await store.put_new(f"{other.prefix}mirror/1/0", b"x")
    await _write(theirs, [f"{other.prefix}mirror/1/{number:04d}" for number in range(QUOTA_ENTRIES // 2)])
    await store.aclose()
    await theirs.aclose()


async def _write(store: HttpStore, keys: list[str]) -> None:
    for key in keys:
        await store.put_new(key, b"x")
