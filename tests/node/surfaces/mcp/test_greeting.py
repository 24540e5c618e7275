"""The first answers come without the SDK, are the SDK's own, and come once."""

import json
import os
from collections.abc import Generator
from contextlib import closing, suppress
from importlib.metadata import version
from typing import Any, BinaryIO

import pytest

from crystal_node.surfaces.mcp.greeting import LISTS, Greeter
from tests.support.machine import Machine
from tests.support.mcp_client import HELLO, started

READY: dict[str, Any] = {"jsonrpc": "2.0", "method": "notifications/initialized"}
DISCOVER: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": "probe",
    "method": "server/discover",
    "params": {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "claude-code", "version": "2.1.330"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    },
}
"""What Claude Code 2.1.330 asks first."""
LIST: dict[str, Any] = {"jsonrpc": "2.0", "id": "list", "method": "tools/list", "params": {}}


def line(message: object) -> bytes:
    return json.dumps(message).encode() + b"\n"


class Pipes:
    """A client's ends of a greeter without a server."""

    def __init__(self, *, read_only: bool = False) -> None:
        incoming, to_greeter = os.pipe()
        from_greeter, outgoing = os.pipe()
        self.to: BinaryIO = os.fdopen(to_greeter, "wb", buffering=0)
        self.out: BinaryIO = os.fdopen(from_greeter, "rb")
        self._ends = os.fdopen(incoming, "rb"), os.fdopen(outgoing, "wb")
        self.greeter = Greeter(*self._ends, read_only=read_only)

    def say(self, *messages: object) -> None:
        for message in messages:
            self.to.write(message if isinstance(message, bytes) else line(message))

    def heard(self) -> Any:
        return json.loads(self.out.readline())

    def close(self) -> None:
        """The client ends, and then all of it."""
        self.to.close()
        while self.greeter.readline():
            pass
        for end in (self.out, *self._ends):
            with suppress(BrokenPipeError):
                end.close()


@pytest.fixture
def pipes() -> Generator[Pipes]:
    made = Pipes()
    with closing(made):
        yield made


def test_a_client_has_its_tools_before_there_is_a_server(pipes: Pipes) -> None:
    pipes.say(HELLO, READY, LIST)
    pipes.greeter.start()
    hello, listed = pipes.heard(), pipes.heard()
    assert hello["id"] == HELLO["id"]
    assert hello["result"]["protocolVersion"] == HELLO["params"]["protocolVersion"]
    assert hello["result"]["serverInfo"]["version"] == version("memory-crystal")
    assert listed["id"] == "list"
    always = {
        tool["name"]
        for tool in listed["result"]["tools"]
        if tool.get("_meta", {}).get("anthropic/alwaysLoad")
    }
    assert always == {"crystal_search", "crystal_remember"}
    assert [json.loads(pipes.greeter.readline()) for _ in range(3)] == [HELLO, READY, LIST], (
        "the server hears all"
    )


def test_a_client_without_a_handshake_has_its_tools_too(pipes: Pipes) -> None:
    listing = LIST | {"params": DISCOVER["params"]}
    pipes.say(DISCOVER, listing)
    pipes.greeter.start()
    found, listed = pipes.heard(), pipes.heard()
    assert found["result"]["supportedVersions"] == ["2026-07-28"]
    for each in (found, listed):
        info = each["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]
        assert info["version"] == version("memory-crystal")
    assert "crystal_search" in {tool["name"] for tool in listed["result"]["tools"]}
    assert json.loads(pipes.greeter.readline()) == listing, "the server does not hear that it was discovered"


@pytest.mark.parametrize("handshake", [True, False])
def test_a_client_has_all_its_first_lists_before_there_is_a_server(pipes: Pipes, *, handshake: bool) -> None:
    """Claude Code shows its model no tool before it has them all, and asks for each page of them."""
    params: dict[str, Any] = {} if handshake else DISCOVER["params"]
    pipes.say(*([HELLO, READY] if handshake else [DISCOVER]))
    pipes.say(*(LIST | {"id": name, "method": name, "params": params} for name in ("tools/list", *LISTS)))
    pipes.greeter.start()
    pipes.heard()
    answers = {each["id"]: each["result"] for each in (pipes.heard() for _ in range(4))}
    assert answers.keys() == {"tools/list", *LISTS}
    assert [each["uri"] for each in answers["resources/list"]["resources"]] == [
        "memory://recent",
        "memory://memories",
    ]
    assert {each["name"] for each in answers["prompts/list"]["prompts"]} >= {"recall"}
    assert len(answers["resources/templates/list"]["resourceTemplates"]) == 2
    assert not [each for each in answers.values() if "nextCursor" in each]
    pipes.say(LIST | {"id": "page", "method": "resources/list", "params": params | {"cursor": "1"}})
    asked = [json.loads(pipes.greeter.readline()) for _ in range(7 if handshake else 5)]
    assert asked[-1]["id"] == "page", "a later page is the server's to give"


def test_a_version_that_nobody_knows_is_refused_with_those_that_are(pipes: Pipes) -> None:
    meta = DISCOVER["params"]["_meta"] | {"io.modelcontextprotocol/protocolVersion": "2099-01-01"}
    pipes.say(DISCOVER | {"params": {"_meta": meta}})
    pipes.greeter.start()
    assert pipes.heard()["error"]["data"] == {"supported": ["2026-07-28"], "requested": "2099-01-01"}


def test_a_server_for_reading_alone_greets_with_fewer_tools() -> None:
    with closing(Pipes(read_only=True)) as pipes:
        pipes.say(HELLO, LIST)
        pipes.greeter.start()
        pipes.heard()
        names = {tool["name"] for tool in pipes.heard()["result"]["tools"]}
        assert "crystal_search" in names
        assert "crystal_remember" not in names


@pytest.mark.parametrize(
    "first",
    [
        b"no json\n",
        b"\xff\xfe\n",
        {"jsonrpc": "2.0", "id": 1, "method": "initialize"},
        HELLO | {"params": HELLO["params"] | {"protocolVersion": "1999-01-01"}},
        HELLO | {"params": HELLO["params"] | {"clientInfo": "x"}},
        HELLO | {"id": None},
        LIST,
        DISCOVER | {"id": 1, "params": dict[str, object]()},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "crystal_status"}},
        pytest.param(b"[" * 50_000 + b"\n", id="deep"),
    ],
)
def test_all_else_is_the_servers_to_answer(pipes: Pipes, first: object) -> None:
    pipes.say(first)
    pipes.greeter.start()
    assert pipes.greeter.readline() == (first if isinstance(first, bytes) else line(first)).decode(
        "utf-8", "replace"
    )
    pipes.greeter.write('{"jsonrpc":"2.0","id":1,"result":{}}\n')
    assert pipes.heard() == {"jsonrpc": "2.0", "id": 1, "result": {}}


def test_the_servers_second_answer_is_dropped_and_nothing_else(pipes: Pipes) -> None:
    pipes.say(HELLO)
    pipes.greeter.start()
    pipes.heard()
    pipes.greeter.hand_over()
    pipes.greeter.write('{"jsonrpc":"2.0","method":"notifications/message"}\n')
    pipes.greeter.write('{"jsonrpc":"2.0","id":1,"method":"roots/list"}\n')
    pipes.greeter.write('{"jsonrpc":"2.0","id":1,"result":{"again":true}}\n')
    pipes.greeter.write('{"jsonrpc":"2.0","id":1,"result":{"later":true}}\n')
    assert [pipes.heard().get("method") for _ in range(2)] == ["notifications/message", "roots/list"]
    assert pipes.heard()["result"] == {"later": True}


def test_a_client_that_is_gone_at_once_ends_the_server(pipes: Pipes) -> None:
    pipes.say(HELLO)
    pipes.out.close()
    pipes.greeter.start()
    assert pipes.greeter.readline() == ""


def test_a_real_process_gives_each_answer_once(machine: Machine) -> None:
    asked = [
        HELLO,
        READY,
        LIST,
        {"jsonrpc": "2.0", "id": 3, "method": "ping"},
        {"jsonrpc": "2.0", "id": 4, "method": "tools/list"},
        {"jsonrpc": "2.0", "id": 5, "method": "prompts/list"},
    ]
    with started(machine) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.write("".join(json.dumps(each) + "\n" for each in asked))
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(5)]
        process.stdin.close()
        assert process.wait(60) == 0
        assert process.stdout.read() == ""
        assert process.stderr.read() == ""
    assert sorted(str(each["id"]) for each in answers) == ["1", "3", "4", "5", "list"]
    listed = {str(each["id"]): each["result"] for each in answers}
    assert listed["list"] == listed["4"]


@pytest.mark.parametrize("waits", [True, False], ids=["that waits", "that does not wait"])
def test_a_client_that_first_asks_for_the_newest_protocol(machine: Machine, *, waits: bool) -> None:
    """Claude Code gives up on its first question after a moment, and begins once more with a handshake."""
    called: dict[str, Any] = {"name": "crystal_status", "arguments": {}}
    call: dict[str, Any] = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": called}
    with started(machine) as process:
        assert process.stdin is not None and process.stdout is not None

        def say(*messages: object) -> None:
            process.stdin.write("".join(json.dumps(each) + "\n" for each in messages))  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]

        def heard(number: object) -> Any:
            while (answer := json.loads(process.stdout.readline())).get("id") != number:  # type: ignore[union-attr]
                pass
            return answer

        say(DISCOVER)
        if waits:
            heard("probe")
            say(call | {"params": called | DISCOVER["params"]})
        else:
            say(HELLO, READY, call)
        assert "result" in heard(7)
        process.stdin.close()
        assert process.wait(60) == 0
