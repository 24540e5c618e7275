"""The published routes: a conversation that is passed on with what is recalled, and work that is asked for."""

import socket
import time
from collections.abc import Generator
from contextlib import closing

import msgspec
import pytest

from tests.support.gateway import Gateway, running_gateway
from tests.support.llm_server import LlmServer, llm_server
from tests.support.machine import Machine
from tests.support.serving import Fault

SECONDS_MAX = 60.0
QUESTION = "How often may the importer repeat an import?"


@pytest.fixture(scope="module")
def model() -> Generator[LlmServer]:
    with llm_server(lambda _system, _data: "Eleven times.") as server:
        yield server


@pytest.fixture(scope="module")
def gateway(memory: Machine, model: LlmServer) -> Generator[Gateway]:
    """With a language model of its own."""
    variables = {"CRYSTAL_SUMMARY_PROVIDER": "openai-compatible", "CRYSTAL_LLM_URL": model.openai}
    with running_gateway(memory, **variables) as running:
        yield running


def _said(text: str, role: str = "user") -> dict[str, str]:
    return {"role": role, "content": text}


def test_a_conversation_goes_on_with_what_is_recalled_before_its_last_question(
    gateway: Gateway, model: LlmServer
) -> None:
    messages = [
        _said("Be brief.", "system"),
        _said("Hello."),
        _said("Good day.", "assistant"),
        _said(QUESTION),
    ]
    answer = gateway.post("/v1/chat/completions", {"model": "any", "messages": messages, "temperature": 0.2})
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "Eleven times."}
    assert answer["usage"]["total_tokens"] > 0
    asked = model.asked[-1]
    assert "Be brief." in asked.system
    assert "eleven attempts" not in asked.system  # what was recorded is no instruction of ours
    assert asked.data.index("user: Hello.") < asked.data.index("eleven attempts") < asked.data.index(QUESTION)
    assert answer["crystal"]["recalled"]


def test_a_stream_ends_as_clients_expect(gateway: Gateway) -> None:
    answer = gateway.ask("POST", "/v1/chat/completions", {"messages": [_said(QUESTION)], "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    pieces = [msgspec.json.decode(line)["choices"][0] for line in lines[:-1]]
    assert "".join(piece["delta"].get("content", "") for piece in pieces) == "Eleven times."
    assert pieces[-1]["finish_reason"] == "stop"


def test_parts_of_text_are_taken_and_pictures_and_tools_are_refused(gateway: Gateway) -> None:
    parts = [{"type": "text", "text": QUESTION}]
    message: dict[str, object] = {"role": "user", "content": parts}
    assert gateway.post("/v1/chat/completions", {"messages": [message]})["choices"]
    picture = {"role": "user", "content": [*parts, {"type": "image_url", "image_url": {"url": "data:,"}}]}
    bodies: tuple[dict[str, object], ...] = (
        {"messages": [picture]},
        {"messages": [_said(QUESTION)], "tools": [{"type": "function"}]},
        {"messages": [_said(QUESTION)], "n": 2},
        {"messages": [_said("I am the agent.", "assistant")]},
        {"messages": []},
        {},
    )
    for body in bodies:
        answer = gateway.ask("POST", "/v1/chat/completions", body)
        assert answer.status_code == 400
        assert answer.json()["error"]["type"] == "invalid_request_error"


def test_a_model_that_fails_is_told_in_the_published_form(gateway: Gateway, model: LlmServer) -> None:
    model.faults.append(Fault(status=401))
    answer = gateway.ask("POST", "/v1/chat/completions", {"messages": [_said(QUESTION)]})
    assert answer.status_code == 502
    assert "401" in answer.json()["error"]["message"]
    model.faults.append(Fault(status=401))
    answer = gateway.ask("POST", "/v1/chat/completions", {"messages": [_said(QUESTION)], "stream": True})
    assert "401" in answer.text
    assert answer.text.endswith("data: [DONE]\n\n")


def test_a_client_that_goes_leaves_nothing_running(gateway: Gateway, model: LlmServer) -> None:
    """As many as may be answered at once begin and go: then there is room for another."""
    for _ in range(4):
        model.faults.append(Fault(hangs=True))
    body = msgspec.json.encode({"messages": [_said(QUESTION)]})
    before = len(model.asked)
    clients = [socket.create_connection(("127.0.0.1", gateway.port)) for _ in range(4)]
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\nAuthorization: Bearer {gateway.token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    for client in clients:
        client.sendall(head.encode() + body)
    deadline = time.monotonic() + SECONDS_MAX
    while len(model.asked) < before + 4:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert gateway.ask("POST", "/v1/chat/completions", {"messages": [_said(QUESTION)]}).status_code == 409
    for client in clients:
        client.close()
    while (
        answer := gateway.ask("POST", "/v1/chat/completions", {"messages": [_said(QUESTION)]})
    ).status_code == 409:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert answer.status_code == 200


def test_the_model_is_listed(gateway: Gateway) -> None:
    (listed,) = gateway.get("/v1/models")["data"]
    assert listed["owned_by"] == "openai-compatible"


@pytest.mark.parametrize("action", ["backfill", "dream-weave"])
def test_work_that_is_asked_for_runs_and_its_end_is_told(gateway: Gateway, action: str) -> None:
    told = gateway.post("/process", {"agent_id": "cc-mini", "action": action, "mode": "incremental"})
    assert (told["status"], told["action"], told["agent_id"]) == ("accepted", action, "cc-mini")
    deadline = time.monotonic() + SECONDS_MAX
    while (last := gateway.get("/status")["processes"][0])["ended"] is None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert (last["action"], last["exit_code"], last["text"]) == (action, 0, "")


def test_without_a_language_model_it_says_so(memory: Machine, gateway: Gateway) -> None:
    from crystal_node.base.settings import resolve
    from crystal_node.surfaces.gateway.chat import provider_of
    from crystal_node.surfaces.gateway.errors import NoProvider

    assert gateway.url
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
        environment = memory.environment | {"CRYSTAL_OLLAMA_HOST": nobody}
        with pytest.raises(NoProvider, match="no language model"):
            provider_of(resolve(None, environment | {"CRYSTAL_SUMMARY_PROVIDER": "none"}))


def test_nothing_recalled_goes_to_a_model_elsewhere_that_nobody_chose(
    memory: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crystal_node.base.settings import resolve
    from crystal_node.surfaces.gateway.chat import provider_of
    from crystal_node.surfaces.gateway.errors import NoProvider

    monkeypatch.setenv("OPENAI_API_KEY", "a-key-of-the-tests")
    environment = memory.environment | {"CRYSTAL_OLLAMA_HOST": "http://127.0.0.1:9"}
    with pytest.raises(NoProvider, match="nobody chose it") as caught:
        provider_of(resolve(None, environment))
    assert "llm_provider openai" in caught.value.hint
    chosen = provider_of(resolve(None, environment | {"CRYSTAL_SUMMARY_PROVIDER": "openai"}))
    assert not chosen.identity.local
