"""Founding a vault at a relay takes its root: with devices and relays of before there were proofs as well."""

import ast
import os
from base64 import b64encode
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import msgspec
import pytest

import crystal_relay
from crystal_crypto.hierarchy import Root
from crystal_relay.client.http import HttpStore
from crystal_relay.errors import AlreadyExists, BadRequest, Busy, Forbidden
from crystal_relay.http1 import Http1Transport
from crystal_relay.limits import FOUNDING_ROOTS_MAX
from crystal_relay.memory import MemoryStore
from crystal_relay.server import RelaySettings, app
from crystal_relay.store import Object
from crystal_relay.tokens import new_token, recovery_hash, token_hash
from crystal_relay.wire import DeviceId, Hash, RootProof, VaultCreation, VaultId
from tests.support.relay_server import ENROLL_TOKEN, Member, ServedRelay, served


@pytest.fixture
async def relay() -> AsyncGenerator[ServedRelay]:
    async with served(MemoryStore()) as running:
        yield running


async def _found(relay: ServedRelay, member: Member, proof: RootProof | None, **changed: str) -> None:
    hashes = {"recovery_hash": recovery_hash(member.recovery), "token_hash": token_hash(member.token)}
    client = member.store(relay.url)
    try:
        await client.create_vault(
            enroll_token=ENROLL_TOKEN, device=member.device, proof=proof, **(hashes | changed)
        )
    finally:
        await client.aclose()


async def _exists(relay: ServedRelay, vault: str) -> bool:
    return bool(await relay.app.state.relay.registry.has_vault(vault))


async def test_who_has_the_root_founds_its_vault(relay: ServedRelay) -> None:
    member = Member()
    proof = member.proof("127.0.0.1")
    await _found(relay, member, proof)
    await _found(relay, member, proof)
    store = member.store(relay.url)
    await store.put_new(f"{member.prefix}mirror/1/1", b"x")
    await store.aclose()


async def test_who_knows_the_id_and_the_admin_key_founds_nothing(relay: ServedRelay) -> None:
    owner, thief = Member(), Member()
    stranger = Member(vault=owner.vault)
    good = owner.proof("127.0.0.1")
    forged = thief.root.sign_founding(
        vault=owner.root.vault,
        device=bytes.fromhex(stranger.device),
        recovery_hash=bytes.fromhex(recovery_hash(stranger.recovery)),
        token_hash=bytes.fromhex(token_hash(stranger.token)),
        host="127.0.0.1",
    ).hex()
    for proof in (
        None,
        good,  # for other secrets
        msgspec.structs.replace(good, signature=forged),
        msgspec.structs.replace(thief.proof("127.0.0.1"), signature=forged),
        msgspec.structs.replace(good, roots=[b64encode(os.urandom(500)).decode()]),
    ):
        with pytest.raises(Forbidden):
            await _found(relay, stranger, proof)
    assert not await _exists(relay, owner.vault)
    await _found(relay, owner, good)


async def test_a_proof_for_one_relay_is_none_for_another(relay: ServedRelay) -> None:
    member = Member()
    with pytest.raises(Forbidden, match=r"for the relay at 127\.0\.0\.1"):
        await _found(relay, member, member.proof("relay.example.org"))
    client = HttpStore(relay.url.replace("127.0.0.1", "localhost"), vault=member.vault, token=member.token)
    await client.create_vault(
        enroll_token=ENROLL_TOKEN,
        recovery_hash=recovery_hash(member.recovery),
        device=member.device,
        token_hash=token_hash(member.token),
        proof=member.proof("localhost"),
    )
    await client.aclose()


async def test_an_old_device_is_told_to_upgrade_and_keeps_the_vaults_that_are_there(
    relay: ServedRelay,
) -> None:
    member = Member()
    with pytest.raises(Forbidden, match="upgrade it"):
        await _found(relay, member, None)
    await _found(relay, member, member.proof("127.0.0.1"))
    await _found(relay, member, None)
    with pytest.raises(AlreadyExists):  # after which it registers by its recovery secret, as it always did
        await _found(relay, member, None, token_hash=token_hash(new_token(member.device)))


class _Vanishing(MemoryStore):
    """A vault's record is deleted once somebody has seen it, as by the sweeper after a drop."""

    vanishes = False

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
        found = await super().get(key, start=start, length=length)
        if self.vanishes and key.endswith("/record"):
            await self.delete(key)
        return found


async def test_a_vault_that_is_deleted_at_that_moment_is_not_founded_without_a_proof() -> None:
    store = _Vanishing()
    async with served(store) as relay:
        owner = Member()
        await _found(relay, owner, owner.proof("127.0.0.1"))
        store.vanishes = True
        with pytest.raises(Busy):
            await _found(relay, Member(vault=owner.vault), None)
        store.vanishes = False
        assert not await relay.app.state.relay.registry.is_created(owner.vault)
        await _found(relay, owner, owner.proof("127.0.0.1"))


class _CreationBefore(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`VaultCreation` of a relay of before there were proofs."""

    vault: VaultId
    recovery_hash: Hash
    device: DeviceId
    token_hash: Hash


async def test_an_old_relay_gets_the_request_without_a_proof(
    relay: ServedRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_check(creation: VaultCreation, host: str) -> None:
        assert isinstance(creation, _CreationBefore)

    monkeypatch.setattr(app, "VaultCreation", _CreationBefore)
    monkeypatch.setattr(app, "check_founding", without_check)
    for member, roots in ((Member(), 0), (Member(), FOUNDING_ROOTS_MAX)):
        proof = msgspec.structs.replace(
            member.proof("127.0.0.1"), roots=[b64encode(bytes(600)).decode()] * roots
        )
        await _found(relay, member, proof)
        assert await _exists(relay, member.vault)


async def test_a_proof_over_too_many_roots_is_not_sent(relay: ServedRelay) -> None:
    member = Member(root=Root.generate())
    proof = msgspec.structs.replace(member.proof("127.0.0.1"), roots=["AAAA"] * (FOUNDING_ROOTS_MAX + 1))
    with pytest.raises(BadRequest, match="replaced roots"):
        await _found(relay, member, proof)
    assert not await _exists(relay, member.vault)


def test_all_that_the_relay_has_of_cryptography_is_the_verification_of_a_signature() -> None:
    taken = {
        (path.name, alias.name)
        for path in Path(crystal_relay.__path__[0]).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cryptography")
        for alias in node.names
    }
    assert taken == {("founding.py", "InvalidSignature"), ("founding.py", "Ed25519PublicKey")}


class _HostRewritten(Http1Transport):
    """As a proxy that names the relay by its own address."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        request.headers["Host"] = "relay.internal:8080"
        return await super().handle_async_request(request)


async def test_a_proxy_that_does_not_pass_on_the_host_is_named(relay: ServedRelay) -> None:
    member = Member()
    client = HttpStore(relay.url, vault=member.vault, token=member.token, transport=_HostRewritten())
    with pytest.raises(Forbidden, match=r"for the relay at relay\.internal") as refused:
        await client.create_vault(
            enroll_token=ENROLL_TOKEN,
            recovery_hash=recovery_hash(member.recovery),
            device=member.device,
            token_hash=token_hash(member.token),
            proof=member.proof(client.host),
        )
    assert "pass on the header Host" in refused.value.hint
    await client.aclose()


async def test_a_founding_without_the_root_uses_up_none_of_the_hour() -> None:
    """Else whoever sees an enrolment link keeps the person whom it is for from using it."""
    settings = RelaySettings(enroll_token=ENROLL_TOKEN, foundings_per_hour=2)
    async with served(MemoryStore(), settings) as relay:
        for _ in range(4):
            with pytest.raises(Forbidden):
                await _found(relay, Member(), Member().proof("127.0.0.1"))
        member = Member()
        await _found(relay, member, member.proof("127.0.0.1"))
        assert relay.app.state.relay.rates.refused_foundings == 0
