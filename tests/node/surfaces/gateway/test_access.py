"""Who may ask the gateway: nobody without its token, no page of another site, no other machine."""

import json
import socket
import stat
import time
from contextlib import closing
from pathlib import Path

import pytest

from crystal_node.base.errors import BadConfig, LocalStorage
from crystal_node.base.home import Home
from crystal_node.surfaces.gateway.access import (
    LINK_SECONDS,
    SESSION_SECONDS,
    GatewayAccess,
    kept_token,
    new_link,
    token_file,
)
from crystal_node.surfaces.gateway.server import listen
from tests.support.gateway import Gateway, running_gateway
from tests.support.machine import Machine, Vault

ROUTES = (
    ("POST", "/api/search"),
    ("GET", "/api/show/0011223344556677"),
    ("GET", "/api/status"),
    ("GET", "/api/jobs"),
    ("POST", "/api/jobs/snapshot/run"),
    ("GET", "/api/memories"),
    ("PATCH", "/api/memories/0011223344556677"),
    ("POST", "/api/forget"),
    ("GET", "/api/sources"),
    ("GET", "/api/recall/report"),
    ("DELETE", "/api/session"),
    ("POST", "/process"),
    ("POST", "/v1/chat/completions"),
    ("GET", "/status"),
    ("GET", "/nothing/here"),
)


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_nothing_is_answered_without_the_token(gateway: Gateway, method: str, path: str) -> None:
    for wrong in (None, "constructor", gateway.token[:-1], gateway.token + "x", gateway.token.swapcase()):
        answer = gateway.ask(method, path, {}, token=wrong)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"


def test_a_page_that_points_its_own_name_at_this_machine_is_refused(gateway: Gateway) -> None:
    port = gateway.port
    hosts = (
        "evil.example",
        f"evil.example:{port}",
        "127.0.0.1",
        f"127.0.0.1:{port + 1}",
        f"127.0.0.1.evil.example:{port}",
    )
    for host in hosts:
        for path in ("/", "/status"):
            assert gateway.ask("GET", path, headers={"Host": host}).status_code == 421
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"LOCALHOST:{port}", f"[::1]:{port}"):
        assert gateway.ask("GET", "/status", headers={"Host": host}).status_code == 200


def test_no_page_of_another_site_may_ask_even_with_the_token(gateway: Gateway) -> None:
    origins = (
        "http://evil.example",
        "null",
        f"https://127.0.0.1:{gateway.port}",
        f"http://127.0.0.1:{gateway.port + 1}",
    )
    for origin in origins:
        answer = gateway.ask("POST", "/api/search", {"query": "importer"}, headers={"Origin": origin})
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers
    for site in ("cross-site", "same-site"):
        headers = {"Sec-Fetch-Site": site}
        assert gateway.ask("GET", "/api/status", headers=headers).status_code == 403
        assert (
            gateway.ask("GET", "/", headers=headers).status_code == 200
        )  # a link on another page may lead here
    own = {"Origin": f"http://127.0.0.1:{gateway.port}", "Sec-Fetch-Site": "same-origin"}
    assert gateway.ask("POST", "/api/search", {"query": "importer"}, headers=own).status_code == 200


def test_a_browsers_question_whether_it_may_ask_is_not_answered_with_yes(gateway: Gateway) -> None:
    headers = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    answer = gateway.ask("OPTIONS", "/api/search", token=None, headers=headers)
    assert not answer.is_success
    assert not any(name.startswith("access-control") for name in answer.headers)


def test_every_answer_forbids_a_page_all_but_its_own_files(gateway: Gateway) -> None:
    for path in ("/", "/app.js", "/style.css", "/status", "/nothing"):
        headers = gateway.ask("GET", path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers
    assert gateway.ask("GET", "/status").headers["cache-control"] == "no-store"


def test_only_this_machine_reaches_it(gateway: Gateway) -> None:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as other:
        # Every address of 127.0.0.0/8 is this machine's; it listens on one of them alone, not on all that there are.
        assert other.connect_ex(("127.0.0.2", gateway.port)) != 0


def test_the_token_is_its_owners_alone_and_stays_the_same(gateway: Gateway) -> None:
    path = gateway.machine.home / "state" / "gateway" / "token"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert len(gateway.token) >= 40


def test_a_token_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    home = Home(tmp_path)
    token = kept_token(home, "")
    assert kept_token(home, "") == token
    token_file(home).chmod(0o644)
    with pytest.raises(LocalStorage, match="others"):
        kept_token(home, "")


@pytest.mark.parametrize(
    "given", ["short", "with a space in the middle", "täken-with-other-letters", "tab\tbed-and-long-enough"]
)
def test_a_token_that_can_be_guessed_or_not_be_sent_is_refused(tmp_path: Path, given: str) -> None:
    with pytest.raises(BadConfig) as caught:
        kept_token(Home(tmp_path), given)
    assert given not in str(caught.value)


def test_a_link_opens_the_page_once_and_only_for_ten_minutes(tmp_path: Path) -> None:
    home, now = Home(tmp_path), [1_000_000]
    access = GatewayAccess(home, "a-token-of-the-tests", lambda: now[0])
    code = new_link(home, now[0])
    session = access.open_session(code)
    assert session is not None
    assert access.open_session(code) is None
    assert access.admits(f"Bearer {session}".encode())
    late = new_link(home, now[0])
    now[0] += LINK_SECONDS * 1000
    assert access.open_session(late) is None
    assert access.open_session("no-code-at-all") is None


def test_a_session_ends_when_it_is_left_or_nobody_uses_it(tmp_path: Path) -> None:
    home, now = Home(tmp_path), [1_000_000]
    access = GatewayAccess(home, "a-token-of-the-tests", lambda: now[0])
    left, idle = (access.open_session(new_link(home, now[0])) for _ in range(2))
    access.close_session(f"Bearer {left}".encode())
    assert not access.admits(f"Bearer {left}".encode())
    now[0] += SESSION_SECONDS * 1000 - 1
    assert access.admits(f"Bearer {idle}".encode())  # used: it begins anew
    now[0] += SESSION_SECONDS * 1000 - 1
    assert access.admits(f"Bearer {idle}".encode())
    now[0] += SESSION_SECONDS * 1000
    assert not access.admits(f"Bearer {idle}".encode())
    assert access.admits(b"Bearer a-token-of-the-tests")


def test_what_is_kept_of_links_opens_nothing(tmp_path: Path) -> None:
    home = Home(tmp_path)
    code = new_link(home, 1_000_000)
    kept = (home.gateway_folder / "links.json").read_text()
    assert code not in kept
    access = GatewayAccess(home, "a-token-of-the-tests", lambda: 1_000_000)
    assert access.open_session(json.loads(kept)[0]["digest"]) is None


def test_a_damaged_list_of_links_opens_nothing_and_hinders_no_new_one(tmp_path: Path) -> None:
    home = Home(tmp_path)
    new_link(home, 1_000_000)
    (home.gateway_folder / "links.json").write_bytes(b"\xff[")
    access = GatewayAccess(home, "a-token-of-the-tests", lambda: 1_000_000)
    assert access.open_session("anything") is None
    assert access.open_session(new_link(home, 1_000_000)) is not None


def test_an_answer_does_not_wait_for_its_clients_acknowledgement() -> None:
    """An answer's head and body are two writes: without this the second waits 40 ms for the first."""
    with listen(0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


def test_a_second_gateway_says_which_one_runs_and_how_to_reach_its_page(gateway: Gateway) -> None:
    second = gateway.machine.run("serve", "--json", check=False)
    assert second.code == 9
    assert gateway.url in second.error["error"]
    assert "--link" in second.error["hint"]


def test_a_taken_port_is_named_with_what_to_do(memory: Machine, tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = str(other.getsockname()[1])
        # On another home: there is nothing here that runs, but the port is somebody else's.
        home = tmp_path / "copy"
        home.mkdir(mode=0o700)
        for name in ("config.json",):
            (home / name).write_bytes((memory.home / name).read_bytes())
            (home / name).chmod(0o600)
        (home / "state").mkdir(mode=0o700)
        ended = memory.run("serve", "--port", port, "--json", check=False, CRYSTAL_HOME=str(home))
    assert ended.code == 9
    assert port in ended.error["error"]
    assert "--port" in ended.error["hint"]


def test_a_link_without_a_gateway_says_what_starts_one(machine: Machine) -> None:
    ended = machine.run("serve", "--link", check=False)
    assert ended.code == 10
    assert "crystal serve" in ended.err


def test_nothing_of_a_question_or_a_token_is_said_on_its_terminal(vault: Vault) -> None:
    process = vault.core.start(
        "serve", "--port", "0", "--json", CRYSTAL_SERVE_TOKEN="a-token-of-the-environment"
    )
    try:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        running = Gateway(vault.core, told["url"], told["link"], told["pid"], "a-token-of-the-environment")
        assert running.post("/api/search", {"query": "a-question-of-the-test"})["results"] is not None
        assert running.ask("POST", "/api/search", {"query": ["a-question-of-the-test"]}).status_code == 400
        process.terminate()
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out, err) == (0, "", "")
    finally:
        process.kill()
        process.communicate()


def test_it_ends_in_time_while_a_client_keeps_a_connection_open(vault: Vault) -> None:
    with (
        running_gateway(vault.core) as running,
        closing(socket.create_connection(("127.0.0.1", running.port))) as idle,
    ):
        idle.sendall(b"POST /api/search HTTP/1.1\r\nHost: 127.0.0.1")
        began = time.monotonic()
    assert time.monotonic() - began < 30


@pytest.mark.slow
def test_clients_that_are_too_slow_lose_their_connection(gateway: Gateway) -> None:
    host = f"Host: 127.0.0.1:{gateway.port}\r\nAuthorization: Bearer {gateway.token}\r\n"
    post = f"POST /api/search HTTP/1.1\r\n{host}Content-Type: application/json\r\n"
    good = f"GET /status HTTP/1.1\r\n{host}\r\n"
    sent = {
        "nothing": "",
        "half a head": "GET /status HTTP/1.1\r\nHost: 127",
        "half a body": f'{post}Content-Length: 100\r\n\r\n{{"query"',
        "half a second head": f"{good}GET /status HT",
    }
    clients = {name: socket.create_connection(("127.0.0.1", gateway.port)) for name in sent}
    for name, text in sent.items():
        clients[name].sendall(text.encode())
        clients[name].settimeout(60)
    answers = {name: _all_from(client) for name, client in clients.items()}
    for client in clients.values():
        client.close()
    assert (answers["nothing"], answers["half a head"]) == (b"", b"")
    assert answers["half a body"].startswith(b"HTTP/1.1 408")
    assert answers["half a second head"].startswith(b"HTTP/1.1 200")


def _all_from(client: socket.socket) -> bytes:
    """What comes until the connection has ended, however it does."""
    came = b""
    try:
        while piece := client.recv(65536):
            came += piece
    except ConnectionResetError:
        return came
    return came
