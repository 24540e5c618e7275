"""What the relay keeps and logs: no token, no secret, no bytes of an object in its logs."""

import asyncio
import base64
import contextlib
import os
from pathlib import Path

import httpx
import pytest

from crystal_relay.client.invite import InviteStore
from crystal_relay.errors import AlreadyExists, Unauthorized
from crystal_relay.invites import MailboxSlot, access_hash
from crystal_relay.server import RelaySettings
from crystal_relay.tokens import new_token, recovery_hash, token_hash
from tests.support.raw_http import raw_request
from tests.support.relay_process import RelayProcess
from tests.support.relay_server import Member, enrolled, joined

MAILBOX = "5c" * 16
ACCESS, WRONG_ACCESS = os.urandom(32), os.urandom(32)
BODY = b"the bytes of an object, which no log may hold"


async def live(relay: RelayProcess, lead: Member) -> Member:
    """A bit of everything, mistakes included."""
    node = await joined(relay.url, lead)
    store = lead.store(relay.url)
    await store.put_new(f"{lead.prefix}devlog/0", BODY)
    await store.put(f"{lead.prefix}cursor/{lead.device}", BODY)
    await store.wait(lead.prefix, token=None, timeout=0)
    with pytest.raises(AlreadyExists):
        await store.put_new(f"{lead.prefix}devlog/0", BODY)
    await store.revoke_token(device=node.device, recovery=lead.recovery)
    await store.create_invite(MAILBOX, access_hash(ACCESS))
    await store.aclose()
    for access in (ACCESS, WRONG_ACCESS):
        newcomer = InviteStore(relay.url, vault=lead.vault, mailbox=MAILBOX, access=access)
        with contextlib.suppress(Unauthorized):
            await newcomer.put_new(MailboxSlot.JOIN, BODY)
        await newcomer.aclose()
    stranger = Member(vault=lead.vault, device=lead.device)
    store = stranger.store(relay.url)
    with pytest.raises(Unauthorized):
        await store.put_new(f"{lead.prefix}devlog/1", BODY)
    await store.aclose()
    async with httpx.AsyncClient(base_url=relay.url) as http:
        for headers in (lead.authorization, {"Authorization": f"Bearer {relay.enroll_token}"}):
            await http.post(
                "/v2/vaults", content=BODY, headers=headers | {"Content-Type": "application/json"}
            )
            await http.get(f"/v2/vaults/{lead.vault}/list", params={"token": lead.token}, headers=headers)
            await http.get(f"/{lead.token}/{lead.recovery.hex()}", headers=headers)
    await raw_request(relay.url, f"GET /{lead.token} HTTP/1.1\r\n{lead.token}\r\n\r\n".encode())
    return node


async def test_neither_directory_nor_log_holds_a_secret(tmp_path: Path) -> None:
    relay = RelayProcess(tmp_path / "relay", options=("--verbose",), fresh=True)
    await asyncio.to_thread(relay.start)
    try:
        lead = await enrolled(relay.url, enroll_token=relay.enroll_token)
        node = await live(relay, lead)
        environment = await asyncio.to_thread(Path(f"/proc/{relay.pid}/cmdline").read_bytes)
    finally:
        assert await asyncio.to_thread(relay.stop) == 0
    secrets = {lead.token, node.token, lead.recovery.hex(), relay.enroll_token}
    secrets |= {token.partition(".")[2] for token in (lead.token, node.token)}
    forms = [form for secret in secrets for form in (secret.encode(), base64.b64encode(secret.encode()))]
    for raw in (lead.recovery, ACCESS, WRONG_ACCESS):
        forms += [raw, base64.b64encode(raw), raw.hex().encode()]
    kept = b"".join(path.read_bytes() for path in sorted((tmp_path / "relay").rglob("*")) if path.is_file())
    assert token_hash(lead.token).encode() in kept, "this would not find what is there"
    assert recovery_hash(lead.recovery).encode() in kept
    assert access_hash(ACCESS).encode() in kept
    log = relay.errors.encode()
    assert b"put_object 201" in log, "this would not find what is there"
    for form in forms:
        assert form not in kept
        assert form not in log
        assert form not in environment
    assert BODY not in log
    assert BODY in kept
    for known in (lead.vault, lead.device, "devlog/0"):
        assert known not in relay.errors


def test_settings_do_not_show_the_enrolment_token() -> None:
    assert "secret" not in repr(RelaySettings(enroll_token="a-secret-of-some-length"))


GOOD = new_token("a" * 32, lambda size: b"\x01" * size)


@pytest.mark.parametrize(
    "bad", ["", "x", "0" * 32, "0" * 32 + ".x", GOOD + "\n", GOOD[:-1] + "B", GOOD.upper()]
)
def test_what_is_no_token_is_refused_without_being_repeated(bad: str) -> None:
    with pytest.raises(Exception, match="not a relay token") as caught:
        token_hash(bad)
    assert not bad or bad not in str(caught.value)


def test_tokens_are_random_and_bound_to_their_device() -> None:
    device = os.urandom(16)
    tokens = {new_token(device) for _ in range(100)}
    assert len(tokens) == 100
    assert all(token.startswith(device.hex() + ".") for token in tokens)
    assert len({token_hash(token) for token in tokens}) == 100
