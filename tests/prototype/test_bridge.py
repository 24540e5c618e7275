"""One device of a vault takes in what devices of the prototype drop: sealed by the independent writer of the vectors."""

import base64
import json
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from crystal_prototype.bridge import Credentials
from crystal_relay.address import tls_context
from tests.node.conftest import cheap_passphrases, relay, vault
from tests.prototype.relay.test_operating import added
from tests.support.hostile_relay import Seen, hostile_relay
from tests.support.machine import Machine, Vault
from tests.support.relay_process import running_relay
from tests.vectors import text_cases

__all__ = ["cheap_passphrases", "relay", "vault"]
KEY = text_cases.KEY
VECTORS = Path(__file__).parents[1] / "vectors" / "v1"


@dataclass
class OldDevices:
    """The prototype's relay, a Core's token that the bridge gets, and a Node that drops."""

    url: str
    token: str
    node: httpx.Client

    def drop(self, channel: str, sealed: bytes) -> None:
        assert self.node.post(f"/drop/{channel}", content=sealed).status_code == 200

    def say(self, *messages: tuple[str, str, str], session: str = "s1") -> None:
        """Drops a conversation: role, text and time of each message."""
        said = [
            {"text": text, "role": role, "timestamp": moment, "sessionId": session}
            for role, text, moment in messages
        ]
        plain: dict[str, Any] = {
            "agent_id": "cc-air",
            "dropped_at": "2026-02-01T10:00:00.000Z",
            "messages": said,
        }
        self.drop("conversations", sealed(json.dumps(plain).encode()))

    def waiting(self, channel: str = "conversations") -> int:
        headers = {"Authorization": f"Bearer {self.token}"}
        count: int = httpx.get(f"{self.url}/pickup/{channel}", headers=headers).json()["count"]
        return count


def sealed(plain: bytes) -> bytes:
    return json.dumps(text_cases.v1_fields(plain)).encode()


def vector(name: str) -> bytes:
    return base64.b64decode((VECTORS / f"{name}.txt").read_text().partition("\n\n")[2])


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Generator[OldDevices]:
    directory = tmp_path_factory.mktemp("old") / "relay"
    with running_relay(directory, options=("--v1",)) as running:
        core, node = added(directory, "cc-mini", "core"), added(directory, "cc-air", "node")
        with httpx.Client(base_url=running.url, headers={"Authorization": f"Bearer {node}"}) as http:
            yield OldDevices(running.url, core, http)


def bridge(machine: Machine, old: OldDevices) -> None:
    code = "mc1:" + base64.b64encode(KEY).decode()
    machine.call("bridge", "add", old.url, typed=f"{code}\n{old.token}\n")


def test_what_old_devices_drop_comes_in_once_and_is_confirmed_when_it_is_recorded(
    vault: Vault, old: OldDevices
) -> None:
    core = vault.core
    bridge(core, old)
    assert core.call("status", "--json").json["bridge"]["url"] == old.url
    old.say(
        ("user", "Where does the lighthouse stand?", "2026-02-01T09:59:00.000Z"),
        ("assistant", "On the northern pier.", "2026-02-01T09:59:04.000Z"),
    )
    old.drop("commands", sealed(b'{"action":"dream-weave","agent_id":"cc-air"}'))
    old.drop("conversations", vector("version_2"))
    old.drop("conversations", vector("hmac_changed"))
    old.drop("conversations", vector("good"))
    assert core.call("bridge", "run", "--json").json == {"drops": 1, "messages": 2, "sealed": 2, "unread": 1}
    assert (old.waiting(), old.waiting("commands")) == (3, 1), (
        "what was not opened or holds no text, and commands, stay there"
    )
    core.call("sync")
    hit = core.call("search", "--json", "northern pier").json["results"][0]
    assert (hit["agent"], hit["source"]) == ("cc-air", "memory-crystal")
    assert hit["created_at"] == "2026-02-01T09:59:04.000Z"
    old.say(
        ("assistant", "On the northern pier.", "2026-02-01T09:59:04.000Z"),
        # Cut within a pair of surrogates, as JavaScript does.
        ("user", "And its keeper? \ud83d", "2026-02-01T10:02:00.000Z"),
    )
    assert core.call("bridge", "run", "--json").json == {"drops": 1, "messages": 1, "sealed": 2, "unread": 1}
    shown = core.call("status", "--json").json["bridge"]
    assert (shown["drops"], shown["messages"], shown["sealed"], shown["unread"]) == (2, 3, 2, 1)
    assert shown["trouble"] == ""
    said = core.call("status").out
    assert f"2 drops with 3 messages taken in from {old.url}" in said
    assert "1 drop there cannot be read in full" in said
    core.call("bridge", "remove")
    assert core.call("status", "--json").json["bridge"] is None
    assert core.call("bridge", "run", check=False).code == 2


def test_a_relay_is_known_by_the_certificate_that_its_address_names(vault: Vault, tmp_path: Path) -> None:
    with running_relay(tmp_path / "relay", options=("--v1", "--tls", "--address", "127.0.0.1")) as running:
        core, node = added(tmp_path / "relay", "cc-mini", "core"), added(tmp_path / "relay", "cc-air", "node")
        with httpx.Client(
            base_url=running.url.partition("#")[0],
            headers={"Authorization": f"Bearer {node}"},
            verify=tls_context(running.url) or True,
        ) as http:
            old = OldDevices(running.url, core, http)
            bridge(vault.core, old)
            old.say(("user", "Said behind a certificate.", "2026-02-05T10:00:00.000Z"), session="s5")
        assert vault.core.call("bridge", "run", "--json").json["messages"] == 1
        plain, _, pin = running.url.partition("#pin=")
        other = f"{plain}#pin={'a' if pin[0] != 'a' else 'b'}{pin[1:]}"
        typed = f"{base64.b64encode(KEY).decode()}\n{core}\n"
        for url, said in ((other, "another certificate"), (plain, "cannot be reached")):
            refused = vault.core.call("bridge", "add", url, "--json", typed=typed, check=False)
            assert refused.code != 0
            assert said in refused.error["error"]
        assert vault.core.call("status", "--json").json["bridge"]["url"] == running.url
    vault.core.call("bridge", "remove")


def test_nothing_is_confirmed_that_may_not_be_recorded(vault: Vault, old: OldDevices) -> None:
    core = vault.core
    before = old.waiting()
    bridge(core, old)
    old.say(("user", "Said while nothing may be recorded.", "2026-02-03T10:00:00.000Z"), session="s3")
    core.call("private", "on")
    refused = core.call("bridge", "run", "--json", check=False)
    assert refused.code != 0
    assert old.waiting() == before + 1
    assert "private" in core.call("status", "--json").json["bridge"]["trouble"]
    core.call("private", "off")
    assert core.call("bridge", "run", "--json").json["messages"] == 1
    assert old.waiting() == before


def test_a_drop_that_the_relay_does_not_give_out_keeps_no_other_back(vault: Vault, old: OldDevices) -> None:
    core = vault.core
    before = old.waiting()
    with hostile_relay(old.url) as hostile:
        bridge(core, replace(old, url=hostile.url))
        old.say(("user", "Said first.", "2026-02-04T10:00:00.000Z"), session="s4")
        old.say(("user", "Said second.", "2026-02-04T10:00:01.000Z"), session="s4")
        asked: list[str] = []

        def damaged(seen: Seen) -> Seen:
            if not seen.path.startswith("/pickup/conversations/"):
                return seen
            asked.append(seen.path)
            return replace(seen, status=500) if len(asked) == before + 1 else seen

        hostile.answers = damaged
        refused = core.call("bridge", "run", "--json", check=False)
        assert (refused.code, "answers 500" in refused.error["error"]) == (1, True)
        assert "answers 500" in core.call("status", "--json").json["bridge"]["trouble"]
        assert old.waiting() == before + 1
        hostile.answers = lambda seen: seen
        assert core.call("bridge", "run", "--json").json["messages"] == 1
    assert old.waiting() == before


def test_key_and_token_are_kept_like_keys_and_shown_nowhere(vault: Vault, old: OldDevices) -> None:
    core = vault.core
    bridge(core, old)
    clear = (old.token, KEY.hex(), base64.b64encode(KEY).decode())
    secrets = core.home / "state" / "secrets"
    for path in core.home.rglob("*"):
        if path.is_file() and secrets not in path.parents:
            text = path.read_bytes()
            assert not any(each.encode() in text for each in clear), path
    told = core.call("status", "--json").out + core.call("doctor", "--json", "--offline", check=False).out
    assert not any(each in told for each in clear)


def test_a_wrong_token_or_key_is_refused_when_it_is_entered(vault: Vault, old: OldDevices) -> None:
    code = base64.b64encode(KEY).decode()
    for typed in (f"{code}\n{'A' * 43}\n", f"{code[:-4]}\n{old.token}\n"):
        refused = vault.core.call("bridge", "add", old.url, "--json", typed=typed, check=False)
        assert refused.code != 0
        assert old.token not in refused.err
    offline = vault.code()
    for root in (offline, "mc1:" + base64.b64encode(base64.b64decode(offline[4:])[:32]).decode()):
        refused = vault.core.call(
            "bridge", "add", old.url, "--json", typed=f"{root}\n{old.token}\n", check=False
        )
        assert "offline code of Crystal" in refused.error["error"]
    assert vault.core.call("status", "--json").json["bridge"] is None


def test_the_token_goes_over_no_network_in_the_clear_and_past_no_proxy_to_this_machine(
    vault: Vault, old: OldDevices
) -> None:
    core = vault.core
    typed = f"{base64.b64encode(KEY).decode()}\n{old.token}\n"
    refused = core.call("bridge", "add", "http://192.0.2.1", "--json", typed=typed, check=False)
    assert refused.code != 0
    assert "plain HTTP" in refused.err
    assert "CRYSTAL_RELAY_ALLOW_HTTP" in refused.err
    core.call(
        "bridge",
        "add",
        old.url,
        typed=typed,
        HTTP_PROXY="http://127.0.0.1:9",
        http_proxy="http://127.0.0.1:9",
    )
    core.call("bridge", "remove")


def test_a_key_is_taken_in_each_form_that_the_prototype_shows() -> None:
    text = base64.b64encode(KEY).decode()
    for shown in (text, f"mc1:{text}", KEY.hex(), f" mc1:{text}\n"):
        assert Credentials.of(shown, "t").key == KEY


def test_a_drop_that_is_not_understood_in_full_stays_and_what_is_understood_comes_in_once(
    vault: Vault, old: OldDevices
) -> None:
    core = vault.core
    bridge(core, old)
    kept = core.call("bridge", "run", "--json").json["unread"]
    understood = {
        "text": "The lamp was cleaned.",
        "role": "user",
        "timestamp": 1_770_000_000_000,
        "sessionId": "s6",
    }
    drops: list[Any] = [
        {"agent_id": "cc-air", "messages": [understood, {"role": "user", "text": [{"text": "In blocks."}]}]},
        {"agent_id": "cc-air", "messages": [{"role": "user", "text": " \n"}]},
        {"agent_id": "cc-air", "turns": []},
        ["no object"],
    ]
    for each in drops:
        old.drop("conversations", sealed(json.dumps(each).encode()))
    waiting = old.waiting()
    for new in (1, 0):
        done = core.call("bridge", "run", "--json").json
        assert (done["drops"], done["messages"], done["unread"]) == (0, new, kept + len(drops))
    assert old.waiting() == waiting
    assert "stay there" in core.call("bridge", "run").out
    core.call("sync")
    assert core.found("lamp cleaned") == ["The lamp was cleaned."]
