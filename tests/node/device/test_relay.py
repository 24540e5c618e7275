"""The token of a running device: asked for again now and then, and never lost by a key store that is away."""

import secrets
import time
from pathlib import Path

import pytest

from crystal_node.base.settings import resolve
from crystal_node.device.relay import TOKEN_SECONDS_MAX, FreshToken, open_store
from crystal_relay.memory import MemoryStore
from tests.support.relay_server import enrolled, served


def test_a_new_token_is_taken_up_after_a_while_and_an_absent_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    kept: str | None = "second"
    monkeypatch.setattr("time.monotonic", lambda: now)
    token = FreshToken(lambda: kept, "first")
    assert token() == "first"
    now += TOKEN_SECONDS_MAX + 1
    assert token() == "second"
    kept = None
    now += TOKEN_SECONDS_MAX + 1
    assert token() == "second"


async def test_the_store_for_sync_keeps_to_the_bandwidth_that_is_set(tmp_path: Path) -> None:
    async with served(MemoryStore()) as relay:
        member = await enrolled(relay.url)
        settings = resolve(
            None,
            {
                "CRYSTAL_HOME": str(tmp_path),
                "CRYSTAL_RELAY_URL": relay.url,
                "CRYSTAL_BANDWIDTH_UP": "200",
            },
        )
        async with open_store(settings, vault=bytes.fromhex(member.vault), token=member.token) as store:
            content, began = secrets.token_bytes(200 * 1024), time.monotonic()
            await store.put_new(f"{member.prefix}blob/a", content)
            assert time.monotonic() - began >= 0.45, "half a second's worth at once, the rest at that rate"
            assert await (await store.get(f"{member.prefix}blob/a")).read() == content
