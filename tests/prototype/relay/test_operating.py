"""`crystal-relay v1`: tokens made, listed and revoked, while a relay runs and while none does."""

import json
import subprocess
import sys
import time
from pathlib import Path

import httpx
import msgspec
import pytest

from crystal_prototype.relay.extension import PROTOTYPE, LetIn, Revoke
from crystal_prototype.relay.names import Role
from crystal_prototype.relay.tokens import Tokens, V1Token, WrongToken, new_token, token_hash
from crystal_relay.errors import AlreadyExists, BadRequest, NotFound
from crystal_relay.memory import MemoryStore
from crystal_relay.server.extension import OperatorRequests
from tests.support.dying_store import Died, DyingStore
from tests.support.relay_process import RelayProcess, running_relay


def run(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "crystal_relay", "v1", *words, "--store", directory.as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def added(directory: Path, agent: str, role: str) -> str:
    done = run(directory, "add", "--agent", agent, "--role", role)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() not in done.stderr
    return done.stdout.strip()


def test_tokens_are_made_and_revoked_beside_a_running_relay(tmp_path: Path) -> None:
    directory = tmp_path / "relay"
    with running_relay(directory, options=("--v1",)) as relay:
        core, node = added(directory, "cc-core", "core"), added(directory, "cc-node", "node")
        as_core = {"Authorization": f"Bearer {core}"}
        as_node = {"Authorization": f"Bearer {node}"}
        assert httpx.post(f"{relay.url}/drop/mirror", content=b"sealed", headers=as_core).status_code == 200
        assert httpx.get(f"{relay.url}/pickup/mirror", headers=as_node).json()["count"] == 1
        listed = json.loads(run(directory, "list", "--json").stdout)["tokens"]
        assert {(each["agent_id"], each["role"], each["space"]) for each in listed} == {
            ("cc-core", "core", "default"),
            ("cc-node", "node", "default"),
        }
        name = next(each["id"] for each in listed if each["role"] == "node")
        for _ in range(2):
            assert run(directory, "revoke", name).returncode == 0
        assert httpx.get(f"{relay.url}/pickup/mirror", headers=as_node).status_code == 403
        assert httpx.get(f"{relay.url}/pickup/commands", headers=as_core).status_code == 200
        assert "yes" in run(directory, "list").stdout
        assert core not in relay.errors
    assert json.loads(run(directory, "list", "--json").stdout)["tokens"]


def test_what_cannot_be_a_name_is_refused_and_an_unknown_id_said(tmp_path: Path) -> None:
    relay = RelayProcess(tmp_path / "relay")
    relay.start()
    relay.stop()
    for agent, space in (("../x", "default"), ("$(id)", "default"), ("a b", "default"), ("a", "../b")):
        refused = run(tmp_path / "relay", "add", "--agent", agent, "--role", "core", "--space", space)
        assert refused.returncode == 2, refused.stderr
        assert refused.stdout == ""
    assert run(tmp_path / "relay", "revoke", "0123456789ab").returncode == NotFound.exit_code
    assert "no such token" in run(tmp_path / "relay", "list").stderr


def test_the_lines_of_the_page_work_in_their_order(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "relay-v1.md").read_text()
    lines = [
        line.partition("#")[0].split() for line in page.splitlines() if line.startswith("crystal-relay ")
    ]
    directory = tmp_path / "not there yet"
    tokens: dict[str, str] = {}
    for words in lines[:-1]:
        assert words[1:3] == ["v1", "add"]
        done = run(directory, *words[2:])
        assert done.returncode == 0, done.stderr
        tokens[words[words.index("--agent") + 1]] = done.stdout.strip()
        assert ("it was created" in done.stderr) == (len(tokens) == 1)
    assert lines[-1][1] == "serve"
    with running_relay(directory, options=tuple(lines[-1][2:])) as relay:
        core, node, sender = ({"Authorization": f"Bearer {token}"} for token in tokens.values())
        assert httpx.post(f"{relay.url}/drop/conversations", content=b"x", headers=sender).status_code == 200
        assert httpx.get(f"{relay.url}/pickup/conversations", headers=core).json()["count"] == 1
        assert httpx.get(f"{relay.url}/pickup/mirror", headers=node).json()["count"] == 0
    shown = run(directory, "list").stdout
    assert [line.split()[-3:] for line in shown.splitlines() if "cc-mini" in line] == [["1", "1", "0"]], shown
    assert shown.count("never") == 0


async def test_the_store_keeps_hashes_only_and_a_revoked_token_never_comes_back() -> None:
    store = MemoryStore()
    operator = PROTOTYPE.operate(store, time.time)
    token = new_token()
    made = await _asked(operator, LetIn(token_hash(token), "cc-core", Role.CORE, "default"))
    kept = [
        await (await store.get(entry.key)).read() + entry.key.encode()
        for entry in (await store.list("")).entries
    ]
    assert kept
    assert token.encode() not in b"".join(kept)
    await _asked(operator, Revoke(made.id))
    with pytest.raises(AlreadyExists):
        await _asked(operator, LetIn(token_hash(token), "cc-core", Role.CORE, "default"))
    with pytest.raises(WrongToken):
        await Tokens(store).identify(token)
    for wrong in ("", "x", token, "../" + "0" * 61):
        with pytest.raises(BadRequest):
            await _asked(operator, LetIn(wrong, "cc-core", Role.CORE, "default"))


@pytest.mark.parametrize("after_effect", [False, True])
@pytest.mark.parametrize("dies_at", [0, 1])
async def test_a_device_is_never_let_in_without_being_a_reader(dies_at: int, after_effect: bool) -> None:
    store = MemoryStore()
    token = new_token()
    dying = DyingStore(store, dies_at=dies_at, after_effect=after_effect)
    with pytest.raises(Died):
        await Tokens(dying).add(token_hash(token), "cc-node", Role.NODE)
    members = [member.holder.id async for member in Tokens(store).members("default")]
    try:
        holder = await Tokens(store).identify(token)
    except WrongToken:
        return
    assert members == [holder.id]
    assert (dies_at, after_effect) == (1, True)


async def _asked(operator: OperatorRequests, request: msgspec.Struct) -> V1Token:
    """The one token that a request is answered by."""
    (token,) = [answer async for answer in operator.answer(request)]
    assert isinstance(token, V1Token)
    return token
