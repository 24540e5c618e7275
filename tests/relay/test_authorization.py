"""Who may: tokens, scopes, enrolment, recovery, revocation, and the tricks to get around them."""

import asyncio
import secrets
from pathlib import Path

import httpx
import pytest

from crystal_relay.errors import AlreadyExists, Forbidden, RelayError, Unauthorized
from crystal_relay.memory import MemoryStore
from crystal_relay.server import RelaySettings
from crystal_relay.server.authorization import ensure_enrollment
from crystal_relay.server.registry import Registry
from crystal_relay.store import Object
from crystal_relay.tokens import new_token, recovery_hash, token_hash
from crystal_relay.wire import VaultCreation
from tests.support.hand_written import connected
from tests.support.raw_http import raw_request
from tests.support.relay_server import ENROLL_TOKEN, Member, ServedRelay, enrolled, joined, served

INCARNATION = "00112233aabbccdd"


def list_request(vault: str, *headers: str) -> bytes:
    lines = [f"GET /v2/vaults/{vault}/list HTTP/1.1", "Host: relay", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def test_header_tricks_let_nobody_in(relay: ServedRelay, lead: Member) -> None:
    good = f"Authorization: Bearer {lead.token}"
    assert (await raw_request(relay.url, list_request(lead.vault, good))).status == 200
    device, _, secret = lead.token.partition(".")
    tricks = [
        [],
        ["Authorization: "],
        ["Authorization: Bearer"],
        ["Authorization: Bearer "],
        ["Authorization: Bearer constructor"],
        ["Authorization: Bearer __proto__"],
        ["Authorization: Bearer toString"],
        ["Authorization: Bearer null"],
        ["Authorization: Bearer undefined"],
        [f"Authorization: Bearer {token_hash(lead.token)}"],
        [f"Authorization: Bearer {device}.{token_hash(lead.token)}"],
        [f"Authorization: Bearer {device}."],
        [f"Authorization: Bearer {device}.{'A' * 43}"],
        [f"Authorization: Bearer {device}.{secret[:-1]}"],
        [f"Authorization: Bearer {device}.{secret}="],
        [f"Authorization: Bearer {device}.{secret}\t"],
        [f"Authorization: Bearer {device.upper()}.{secret}"],
        [f"Authorization: Bearer {'0' * 32}.{secret}"],
        [f"Authorization: Bearer  {lead.token}"],
        [f"Authorization: Bearer {lead.token},{lead.token}"],
        [f"Authorization: Bearer {lead.token} {lead.token}"],
        [f'Authorization: Bearer "{lead.token}"'],
        [f"Authorization: bearer {lead.token}"],
        [f"Authorization: Basic {lead.token}"],
        [f"Authorization: {lead.token}"],
        [f"Authorization: Crystal-Recovery {lead.recovery.hex()}"],
        [f"Authorization: Bearer {ENROLL_TOKEN}"],
        [good, good],
        [good, "Authorization: Bearer constructor"],
        ["authorization: x", good],
        [f"Authorization: Bearer {lead.token}\xa0"],
        [f"X-Authorization: Bearer {lead.token}"],
        [f"Cookie: Authorization={lead.token}"],
    ]
    for headers in tricks:
        reply = await raw_request(relay.url, list_request(lead.vault, *headers))
        assert reply.status in {400, 401}, headers
        assert lead.token.encode() not in reply.body


async def test_a_token_in_the_address_is_not_looked_at(relay: ServedRelay, lead: Member) -> None:
    for query in (
        f"?token={lead.token}",
        f"?access_token={lead.token}",
        f"?authorization=Bearer%20{lead.token}",
    ):
        request = f"GET /v2/vaults/{lead.vault}/list{query} HTTP/1.1\r\nHost: relay\r\n\r\n"
        assert (await raw_request(relay.url, request.encode())).status == 401


async def test_unknown_vault_unknown_device_and_wrong_secret_look_the_same(
    relay: ServedRelay, lead: Member
) -> None:
    replies = [
        await raw_request(relay.url, list_request(vault, f"Authorization: Bearer {token}"))
        for vault, token in (
            (lead.vault, new_token(lead.device)),
            (lead.vault, new_token(secrets.token_hex(16))),
            (secrets.token_hex(16), lead.token),
            (secrets.token_hex(16), new_token(secrets.token_hex(16))),
        )
    ]
    assert {(reply.status, reply.body) for reply in replies} == {(401, replies[0].body)}
    assert replies[0].headers["www-authenticate"] == "Bearer"


async def test_a_token_opens_its_own_vault_only(relay: ServedRelay, lead: Member) -> None:
    other = await enrolled(relay.url)
    for headers in (lead.authorization, {"Authorization": f"Crystal-Recovery {lead.recovery.hex()}"}):
        async with httpx.AsyncClient(
            base_url=f"{relay.url}/v2/vaults/{other.vault}", headers=headers
        ) as http:
            body = {"device": lead.device, "token_hash": token_hash(new_token(lead.device)), "preset": "lead"}
            for reply in (
                await http.get("/list"),
                await http.get("/wait?timeout=0"),
                await http.get("/objects/devlog/0"),
                await http.put("/objects/devlog/0", content=b"", headers={"If-None-Match": "*"}),
                await http.delete("/objects/devlog/0"),
                await http.post("/tokens", json=body),
                await http.delete(f"/tokens/{other.device}"),
            ):
                assert reply.status_code == 401


async def test_what_each_preset_may(relay: ServedRelay, lead: Member) -> None:
    node = await joined(relay.url, lead)
    writes = {
        "devlog/1": "lead",
        "mirror/1/1": "lead",
        "blob/1": "any",
        f"conversations/{node.device}.{INCARNATION}/1": "node",
        f"commands/{node.device}.{INCARNATION}/1": "node",
        f"cursor/{node.device}": "node",
        f"conversations/{lead.device}.{INCARNATION}/1": "lead",
        f"commands/{lead.device}.{INCARNATION}/1": "lead",
        f"cursor/{lead.device}": "lead",
    }
    for name, member in (("lead", lead), ("node", node)):
        store = member.store(relay.url)
        for number, (key, writer) in enumerate(writes.items()):
            unique = key if key.startswith("cursor/") else f"{key}.{name}"
            if writer in (name, "any"):
                await store.put_new(f"{member.prefix}{unique}", bytes([number]))
                assert await (await store.get(f"{member.prefix}{unique}")).read() == bytes([number])
            else:
                with pytest.raises(Forbidden):
                    await store.put_new(f"{member.prefix}{unique}", b"")
        await store.aclose()
    store = node.store(relay.url)
    assert len((await store.list(node.prefix)).entries) == 10
    for call in (
        store.delete(f"{node.prefix}cursor/{node.device}"),
        store.delete(f"{node.prefix}devlog/1.lead"),
        store.register_token(
            device=node.device, token_hash=token_hash(new_token(node.device)), preset="lead"
        ),
        store.revoke_token(device=lead.device),
    ):
        with pytest.raises(Forbidden):
            await call
    await store.aclose()
    store = lead.store(relay.url)
    await store.delete(f"{node.prefix}cursor/{node.device}")
    await store.aclose()


async def test_only_cursors_are_overwritten_and_slots_by_who_may_delete_them(
    relay: ServedRelay, lead: Member
) -> None:
    node = await joined(relay.url, lead)
    store = lead.store(relay.url)
    own = f"{lead.device}.{INCARNATION}"
    for key in ("blob/1", f"conversations/{own}/1", f"commands/{own}/1"):
        with pytest.raises(RelayError, match="written once"):
            await store.put(lead.prefix + key, b"")
    other = node.store(relay.url)
    for key in ("devlog/1", "mirror/1/1"):
        await store.put_new(lead.prefix + key, b"damaged")
        with pytest.raises(Forbidden):
            await other.put(lead.prefix + key, b"junk")
        await store.put(lead.prefix + key, b"whole")
        assert await (await other.get(lead.prefix + key)).read() == b"whole"
    await other.aclose()
    await store.put(f"{lead.prefix}cursor/{lead.device}", b"1")
    await store.put(f"{lead.prefix}cursor/{lead.device}", b"2")
    await store.aclose()


async def test_a_vault_needs_the_enrolment_token(relay: ServedRelay) -> None:
    for token in (
        "x",
        "x" * 20,
        ENROLL_TOKEN + "x",
        ENROLL_TOKEN[:-1],
        ENROLL_TOKEN.upper(),
        "constructor-constructor",
    ):
        body = {"vault": "0" * 32, "recovery_hash": "0" * 64, "device": "0" * 32, "token_hash": "0" * 64}
        async with httpx.AsyncClient(base_url=relay.url) as http:
            reply = await http.post("/v2/vaults", json=body, headers={"Authorization": f"Bearer {token}"})
        assert reply.status_code == 401
        assert "tokens create" in reply.json()["hint"]


async def test_creating_a_vault_again_is_a_success_only_with_the_same_hashes(relay: ServedRelay) -> None:
    member = await enrolled(relay.url)
    store = member.store(relay.url)
    same = {
        "recovery_hash": recovery_hash(member.recovery),
        "device": member.device,
        "token_hash": token_hash(member.token),
    }
    await asyncio.gather(
        *(store.create_vault(enroll_token=ENROLL_TOKEN, proof=None, **same) for _ in range(8))
    )
    other = token_hash(new_token(member.device))
    for change in ({"recovery_hash": "0" * 64}, {"device": "0" * 32}, {"token_hash": other}):
        with pytest.raises(AlreadyExists):
            await store.create_vault(enroll_token=ENROLL_TOKEN, proof=None, **(same | change))
    await store.list(member.prefix)
    await store.revoke_token(device=member.device)
    with pytest.raises(AlreadyExists, match="revoked"):
        await store.create_vault(enroll_token=ENROLL_TOKEN, proof=None, **same)
    with pytest.raises(Unauthorized):
        await store.list(member.prefix)
    await store.aclose()


async def test_a_creation_that_a_crash_cut_in_half_is_finished_by_repeating_it() -> None:
    store = MemoryStore()
    registry = Registry(store, cache_seconds=10)
    token = new_token("0" * 32)
    creation = VaultCreation("a" * 32, "b" * 64, "0" * 32, token_hash(token))
    await registry.create_vault(creation)
    await store.delete(f"r/vault/{creation.vault}/token/{creation.device}/{creation.token_hash}")
    with pytest.raises(Unauthorized):
        await registry.identify(creation.vault, creation.device, token)
    await registry.create_vault(creation)
    assert (await registry.identify(creation.vault, creation.device, token)).device == creation.device


async def test_the_roots_holder_registers_itself_and_nobody_else_does(
    relay: ServedRelay, lead: Member
) -> None:
    for preset in ("device", "lead"):
        newcomer = Member(vault=lead.vault)
        store = newcomer.store(relay.url)
        with pytest.raises(Unauthorized):
            await store.register_token(
                device=newcomer.device,
                token_hash=token_hash(newcomer.token),
                preset=preset,
                recovery=secrets.token_bytes(32),
            )
        with pytest.raises(Unauthorized):
            await store.list(newcomer.prefix)
        for _ in range(2):
            await store.register_token(
                device=newcomer.device,
                token_hash=token_hash(newcomer.token),
                preset=preset,
                recovery=lead.recovery,
            )
        await store.list(newcomer.prefix)
        await store.aclose()


async def test_a_revoked_token_is_out_at_once_and_for_good(relay: ServedRelay, lead: Member) -> None:
    node = await joined(relay.url, lead)
    node_store, lead_store = node.store(relay.url), lead.store(relay.url)
    await node_store.list(node.prefix)
    await lead_store.revoke_token(device=node.device)
    with pytest.raises(Unauthorized):
        await node_store.list(node.prefix)
    with pytest.raises(Forbidden, match="revoked"):
        await lead_store.register_token(
            device=node.device, token_hash=token_hash(node.token), preset="device"
        )
    await lead_store.revoke_token(device=node.device)
    fresh = Member(vault=node.vault, device=node.device)
    await lead_store.register_token(device=fresh.device, token_hash=token_hash(fresh.token), preset="device")
    fresh_store = fresh.store(relay.url)
    await fresh_store.list(fresh.prefix)
    with pytest.raises(Unauthorized):
        await node_store.list(node.prefix)
    for store in (node_store, lead_store, fresh_store):
        await store.aclose()


async def test_one_token_of_a_device_can_be_renewed(relay: ServedRelay, lead: Member) -> None:
    fresh = Member(vault=lead.vault, device=lead.device)
    old_store, store = lead.store(relay.url), fresh.store(relay.url)
    await old_store.register_token(device=lead.device, token_hash=token_hash(fresh.token), preset="device")
    with pytest.raises(AlreadyExists, match="preset"):
        await old_store.register_token(device=lead.device, token_hash=token_hash(fresh.token), preset="lead")
    await old_store.revoke_token(device=lead.device, token_hash=token_hash(lead.token))
    with pytest.raises(Unauthorized):
        await old_store.list(lead.prefix)
    await store.list(lead.prefix)
    with pytest.raises(Forbidden):
        await store.put_new(f"{lead.prefix}devlog/1", b"")
    await store.aclose()
    await old_store.aclose()


async def test_without_a_token_in_the_settings_the_announced_one_enrols(tmp_path: Path) -> None:
    store = MemoryStore()
    announced: list[str] = []
    for _ in range(3):
        await ensure_enrollment(Registry(store, cache_seconds=0), announced.append)
    assert len(announced) == 1
    async with served(store, RelaySettings()) as relay:
        await enrolled(relay.url, enroll_token=announced[0])
        with pytest.raises(Unauthorized):
            await enrolled(relay.url)
    listed = (await store.list("r/enrollment/")).entries
    assert len(listed) == 1
    assert announced[0] not in listed[0].key
    async with served(store, RelaySettings(enroll_token=ENROLL_TOKEN)) as relay:  # one more
        await enrolled(relay.url, enroll_token=announced[0])
        await enrolled(relay.url)


async def test_a_wrong_recovery_secret_asks_the_store_the_same_whether_the_vault_exists_or_not() -> None:
    asked: list[str] = []

    class Asked(MemoryStore):
        async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
            asked.append(key.rpartition("/")[2])
            return await super().get(key, start=start, length=length)

    async with served(Asked()) as relay:
        lead = await enrolled(relay.url)
        seen: list[list[str]] = []
        async with connected(relay.url) as each:
            for vault in (lead.vault, secrets.token_hex(16)):
                asked.clear()
                head = f"DELETE /v2/vaults/{vault}/tokens/{lead.device} HTTP/1.1\r\nHost: relay\r\n"
                await each.send(f"{head}Authorization: Crystal-Recovery {'0' * 64}\r\n\r\n".encode())
                assert (await each.reply()).status == 401
                seen.append(sorted(asked))
    assert seen[0] == seen[1]
    assert seen[0]
