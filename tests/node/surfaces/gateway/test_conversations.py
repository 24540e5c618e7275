"""The conversations of the memory over HTTP: listed by time with titles, counted for filters and days, read whole."""

import json
from collections.abc import Generator

import pytest

from tests.support.gateway import Gateway, running_gateway
from tests.support.machine import Machine, Vault, turn
from tests.support.relay_process import RelayProcess

LONG = "\n\n".join(
    f"Paragraph {number} says that gauge {number * 37} reads {number * number} pascal."
    for number in range(400)
)
CODE = "```python\n" + "".join(f"value_{n} = {n}\n" for n in range(900)) + "```"


def _said(machine: Machine, name: str, folder: str, *said: tuple[str, str, str]) -> None:
    """A transcript in which these roles say these texts at these moments."""
    path = machine.projects / f"-home-someone-{folder}" / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        for role, text, moment in said:
            content: object = [{"type": "text", "text": text}] if role == "assistant" else text
            if role == "thinking":
                content = [{"type": "thinking", "thinking": text, "signature": "x"}]
            speaker = "user" if role == "user" else "assistant"
            line = json.loads(turn("", session=name, role=speaker, moment=f"{moment}.000Z"))
            line["cwd"] = str(machine.root / folder)
            line["message"] = {"role": speaker, "content": content}
            file.write(json.dumps(line) + "\n")


@pytest.fixture(scope="module")
def gateway(relay: RelayProcess, tmp_path_factory: pytest.TempPathFactory) -> Generator[Gateway]:
    machine = Vault(relay, tmp_path_factory.mktemp("conversations")).core
    _said(
        machine,
        "older",
        "mill",
        ("user", "Why does the **mill** stop at night? It worked before.", "2026-01-05T09:00:00"),
        ("thinking", "The log tells of the timer.", "2026-01-05T09:00:01"),
        ("assistant", "The timer stops it.", "2026-01-05T09:00:02"),
        ("user", "And on Sundays?", "2026-01-07T10:00:00"),
    )
    _said(
        machine,
        "newer",
        "harbour",
        ("user", "Rename the crane to Ingrid.", "2026-02-01T12:00:00"),
        ("assistant", LONG, "2026-02-01T12:00:05"),
        ("assistant", CODE, "2026-02-01T12:00:09"),
    )
    machine.call("capture", CRYSTAL_TIME_ZONE="UTC")
    machine.call("sync")
    _said(machine, "latest", "harbour", ("user", "Is the crane still there?", "2026-03-01T12:00:00"))
    machine.call("capture")
    with running_gateway(machine, CRYSTAL_TIME_ZONE="UTC") as running:
        yield running


def test_conversations_come_by_time_with_title_project_device_and_tool(gateway: Gateway) -> None:
    found = gateway.get("/api/conversations")
    assert found["total"] == 3
    titles = [each["title"] for each in found["conversations"]]
    assert titles == [
        "Is the crane still there?",
        "Rename the crane to Ingrid",
        "Why does the mill stop at night?",
    ]
    assert [each["project"] for each in found["conversations"]] == ["harbour", "harbour", "mill"]
    last = found["conversations"][-1]
    assert (last["began_at"], last["ended_at"]) == ("2026-01-05T09:00:00.000Z", "2026-01-07T10:00:00.000Z")
    assert (last["tool"], last["texts"]) == ("claude-code", 4)
    assert last["device"] and last["device_name"]
    second = gateway.get("/api/conversations?limit=1&offset=1")["conversations"]
    assert second == found["conversations"][1:2]


def test_filters_have_counts_and_each_list_heeds_the_other_filters(gateway: Gateway) -> None:
    whole = gateway.get("/api/activity")
    assert [(each["value"], each["conversations"]) for each in whole["projects"]] == [
        ("harbour", 2),
        ("mill", 1),
    ]
    assert [each["conversations"] for each in whole["devices"]] == [3]
    assert [(each["name"], each["conversations"]) for each in whole["tools"]] == [("claude-code", 3)]
    days = [(each["day"], each["conversations"], each["texts"]) for each in whole["days"]]
    assert days[:2] == [("2026-01-05", 1, 3), ("2026-01-07", 1, 1)]
    assert [day for day, _, _ in days[2:]] == ["2026-02-01", "2026-03-01"]
    narrowed = gateway.get("/api/activity?project=mill&since=2026-01-06&until=2026-01-31")
    assert narrowed["total"] == 1
    assert [each["value"] for each in narrowed["projects"]] == ["mill"]
    assert [each["day"] for each in narrowed["days"]] == ["2026-01-05", "2026-01-07"]
    assert gateway.get("/api/conversations?project=mill")["total"] == 1
    assert gateway.get("/api/conversations?since=2026-01-06&until=2026-01-06")["total"] == 0
    assert gateway.get("/api/conversations?tool=codex")["total"] == 0


def test_a_conversation_is_read_whole_and_long_messages_are_put_together(gateway: Gateway) -> None:
    listed = gateway.get("/api/conversations")["conversations"]
    older = gateway.get(f"/api/conversations/{listed[2]['id']}")
    assert [each["role"] for each in older["messages"]] == ["user", "thinking", "assistant", "user"]
    assert older["conversation"]["title"] == listed[2]["title"]
    newer = gateway.get(f"/api/conversations/{listed[1]['id']}")
    assert newer["total"] == 3
    assert newer["messages"][1]["text"] == LONG
    assert newer["messages"][2]["text"] == CODE
    part = gateway.get(f"/api/conversations/{listed[1]['id']}?offset=2&limit=1")
    assert (part["messages"], part["offset"], part["total"]) == (newer["messages"][2:], 2, 3)
    assert gateway.get(f"/api/show/{newer['messages'][1]['id']}")["pieces"][0]["role"] == "assistant"


def test_what_is_forgotten_leaves_the_list_at_once(gateway: Gateway) -> None:
    machine = gateway.machine
    _said(
        machine, "secret", "cellar", ("user", "The cellar key hangs behind the clock.", "2026-04-01T12:00:00")
    )
    machine.call("capture")
    first = gateway.get("/api/conversations")["conversations"][0]
    assert first["title"] == "The cellar key hangs behind the clock"
    text = gateway.get(f"/api/conversations/{first['id']}")["messages"][0]["id"]
    gateway.post("/api/forget", {"ids": [text]})
    assert "cellar" not in str(gateway.get("/api/conversations"))
    assert "cellar" not in str(gateway.get("/api/activity"))
    assert gateway.ask("GET", f"/api/conversations/{first['id']}").status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        "/api/conversations?limit=0",
        "/api/conversations?limit=1000",
        "/api/conversations?since=yesterday",
        "/api/conversations?unknown=1",
        "/api/conversations/12345678",
        "/api/conversations/" + "z" * 32,
        "/api/activity?limit=3",
    ],
)
def test_what_cannot_be_asked_is_refused(gateway: Gateway, path: str) -> None:
    answer = gateway.ask("GET", path)
    assert answer.status_code == 400
    assert answer.json()["error"]


def test_a_conversation_that_is_not_there_is_named_so(gateway: Gateway) -> None:
    answer = gateway.ask("GET", "/api/conversations/" + "0" * 32)
    assert answer.status_code == 404
    assert "conversation" in answer.json()["error"]
