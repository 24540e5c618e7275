"""The token of a running device: asked for again now and then, and never lost by a key store that is away."""

import pytest

from crystal_node.relaystore import TOKEN_SECONDS_MAX, FreshToken


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
