"""What the gateway answers a program: searching, reading, status, jobs, memories, sources, and errors that say what to do."""

import time
from typing import Any
from urllib.parse import quote

import pytest

from tests.support.gateway import Gateway

SECONDS_MAX = 60.0


def _found(gateway: Gateway, query: str, **more: Any) -> list[str]:
    return [hit["text"] for hit in gateway.post("/api/search", {"query": query, **more})["results"]]


def test_a_search_answers_as_the_command_does(gateway: Gateway) -> None:
    answer = gateway.post("/api/search", {"query": "how often may an import be repeated", "limit": 2})
    told = gateway.machine.run("search", "-n", "2", "--json", "how often may an import be repeated").json
    for hit, same in zip(answer["results"], told["results"], strict=True):
        assert {name: hit[name] for name in same if name != "score"} == {
            name: value for name, value in same.items() if name != "score"
        }
    assert told.keys() <= answer.keys()
    assert "eleven attempts" in answer["results"][0]["text"]


def test_a_search_is_narrowed_and_paged(gateway: Gateway) -> None:
    first = gateway.post("/api/search", {"query": "importer readings crane", "limit": 1})
    second = gateway.post("/api/search", {"query": "importer readings crane", "limit": 1, "offset": 1})
    assert first["more"]
    assert first["results"][0]["id"] != second["results"][0]["id"]
    assert _found(gateway, "importer", agent="nobody") == []
    assert _found(gateway, "importer", kind="memory") == []


def test_a_text_is_shown_with_what_stands_around_it(gateway: Gateway) -> None:
    hit = gateway.post("/api/search", {"query": "raw readings of the sensors", "limit": 1})["results"][0]
    shown = gateway.get(f"/api/show/{hit['id']}?before=1&after=1")
    assert [piece["asked"] for piece in shown["pieces"]] == [False, True, False]
    assert shown["pieces"][1]["text"] == hit["text"]
    assert gateway.get(f"/api/show/{hit['id'][:12]}")["id"] == hit["id"]


def test_a_memory_is_remembered_changed_put_aside_and_forgotten(gateway: Gateway) -> None:
    made = gateway.post("/api/memories", {"text": "The blue lamp stands in the hall.", "category": "fact"})
    path = f"/api/memories/{made['id']}"
    assert gateway.get("/api/memories")["memories"][0]["provisional"]
    assert "The blue lamp stands in the hall." in _found(gateway, "blue lamp")

    changed = gateway.patch(path, {"category": "event", "confidence": 40})
    assert (changed["category"], changed["confidence"]) == ("event", 40)
    retired = gateway.patch(path, {"status": "retired"})
    assert retired["status"] == "retired"
    assert made["id"] not in [each["id"] for each in gateway.get("/api/memories")["memories"]]
    for status in ("retired", "any"):
        listed = gateway.get(f"/api/memories?status={status}")["memories"]
        assert made["id"] in [each["id"] for each in listed]
    gateway.patch(path, {"status": "active"})

    newer = gateway.patch(path, {"text": "The blue lamp stands in the cellar."})
    assert newer["id"] != made["id"]
    assert [each["id"] for each in gateway.get("/api/memories?status=superseded")["memories"]] == [made["id"]]
    done = [each["what"] for each in gateway.get(f"/api/memories/{newer['id']}/history")["events"]]
    assert done[0] == "remembered"
    assert {"amended", "superseded"} <= set(done)

    gone = gateway.post("/api/forget", {"ids": [newer["id"][:16], made["id"]]})
    assert sorted(gone["forgotten"]) == sorted([newer["id"], made["id"]])
    assert not [text for text in _found(gateway, "blue lamp") if "lamp" in text]


def test_a_memory_is_for_a_project_that_can_be_chosen_and_listed(gateway: Gateway) -> None:
    made = gateway.post("/api/memories", {"text": "The yellow lamp hums at noon."})
    path = f"/api/memories/{made['id']}"
    assert (made["scope"], made["project"]) == ("everywhere", ""), "a program that names no folder is in none"
    names = [each["name"] for each in gateway.get("/api/projects")["projects"]]
    changed = gateway.patch(path, {"project": names[0]})
    assert (changed["scope"], changed["project"]) == ("project", names[0])
    listed = gateway.get(f"/api/memories?project={quote(names[0])}")["memories"]
    assert [each["id"] for each in listed] == [made["id"]]
    assert made["id"] not in [
        each["id"] for each in gateway.get("/api/memories?scope=everywhere")["memories"]
    ]
    assert gateway.patch(path, {"scope": "everywhere"})["project"] == ""
    scopes = [each["project"] for each in gateway.get(f"{path}/history")["events"]]
    assert scopes == ["", names[0], ""]
    for wrong, status in (
        ({"project": "atlantis"}, 404),
        ({"scope": "project"}, 400),
        ({"scope": "mine"}, 400),
    ):
        assert gateway.ask("PATCH", path, wrong).status_code == status
    gateway.post("/api/forget", {"ids": [made["id"]]})


def test_what_says_almost_the_same_is_named_and_can_be_replaced(gateway: Gateway) -> None:
    old = gateway.post(
        "/api/memories", {"text": "The staging database of the shop is restored at two at night."}
    )
    text = "The staging database of the shop is restored at two at night now."
    made = gateway.post("/api/memories", {"text": text})
    assert [each["id"] for each in made["alike"]] == [old["id"]]
    again = gateway.post("/api/memories", {"text": text, "supersedes": [old["id"]]})
    assert again["supersedes"] == [old["id"]]
    listed = gateway.get("/api/memories?status=superseded")["memories"]
    assert [(each["id"], each["superseded_by"]) for each in listed] == [(old["id"], made["id"])]
    assert gateway.patch(f"/api/memories/{old['id']}", {"status": "active"})["status"] == "active"
    gateway.post("/api/forget", {"ids": [old["id"], made["id"]]})


def test_a_credential_in_a_memory_is_blanked_out(gateway: Gateway) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    made = gateway.post("/api/memories", {"text": f"The key of the lift is {secret}"})
    assert made["redacted"] == 1
    assert secret not in gateway.ask("GET", "/api/memories").text
    gateway.post("/api/forget", {"ids": [made["id"]]})


def test_private_mode_keeps_nothing_and_still_forgets(gateway: Gateway) -> None:
    made = gateway.post("/api/memories", {"text": "The red lamp stands in the attic."})
    gateway.machine.run("private", "on")
    try:
        refused = gateway.ask("POST", "/api/memories", {"text": "A secret meeting."})
        assert refused.status_code == 400
        assert "private" in refused.json()["error"]
        assert gateway.post("/api/forget", {"ids": [made["id"]]})["forgotten"] == [made["id"]]
    finally:
        gateway.machine.run("private", "off")


def test_status_is_that_of_the_command(gateway: Gateway) -> None:
    answer, told = gateway.get("/api/status"), gateway.machine.run("status", "--json").json
    assert answer.keys() == told.keys()
    assert answer["devices"] == told["devices"]
    assert gateway.get("/api/sources") == {"sources": []}
    assert gateway.get("/api/recall/report")["injections"] == 0


def test_the_published_status_says_what_it_said(gateway: Gateway) -> None:
    answer = gateway.get("/status")
    assert answer["status"] == "ok"
    assert (answer["role"], answer["agentId"], answer["hasDatabase"]) == ("core", "claude-code", True)
    assert answer["lastDreamWeaver"] is None
    assert answer["uptime"] >= 0


def test_jobs_need_an_agent_and_then_run(gateway: Gateway) -> None:
    refused = gateway.ask("POST", "/api/jobs/idle-model/run", {})
    assert refused.status_code == 409
    assert "crystal agent start" in refused.json()["hint"]
    agent = gateway.machine.start("agent", "run", "--quiet")
    try:
        deadline = time.monotonic() + SECONDS_MAX
        while not (found := gateway.get("/api/jobs"))["running"] or not found["jobs"]:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert gateway.post("/api/jobs/idle-model/pause", {})["paused"]
        assert not gateway.post("/api/jobs/idle-model/resume", {})["paused"]
        assert gateway.ask("POST", "/api/jobs/nothing-of-the-kind/run", {}).status_code == 404
        before = _job(gateway, "idle-model")["last_ended"]
        gateway.post("/api/jobs/idle-model/run", {})
        while (job := _job(gateway, "idle-model"))["waiting"] or job["last_ended"] in (None, before):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        agent.terminate()
        agent.communicate(timeout=30)


def _job(gateway: Gateway, name: str) -> dict[str, Any]:
    job: dict[str, Any] = next(each for each in gateway.get("/api/jobs")["jobs"] if each["name"] == name)
    return job


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "word"),
    [
        ("POST", "/api/search", {"query": ""}, 400, "query"),
        ("POST", "/api/search", {"query": "a", "limit": 100_000}, 400, "limit"),
        ("POST", "/api/search", {"query": "a", "colour": "red"}, 400, "colour"),
        ("POST", "/api/search", {"query": "a", "since": "whenever"}, 400, "whenever"),
        ("POST", "/api/search?query=a", {"query": "a"}, 400, "query"),
        ("GET", "/api/show/zzzzzzzzzzzz", None, 400, "id"),
        ("GET", "/api/show/00112233445566778899", None, 404, "id"),
        ("GET", "/api/show/00112233?before=1&before=2", None, 400, "twice"),
        ("GET", "/api/show/00112233?before=99", None, 400, "before"),
        ("GET", "/api/memories?status=odd", None, 400, "`status` has to be one of active, retired, superseded, any"),
        ("GET", "/api/memories?category=odd", None, 400, "`category` has to be one of"),
        ("GET", "/api/show/00112233?before=some", None, 400, "`before` has to be a whole number from 0 to 50"),
        ("POST", "/api/search", {"query": "a", "kind": "memo"}, 400, "one of conversation, memory, document"),
        ("PATCH", "/api/memories/00112233445566778899", {"category": "fact"}, 404, "id"),
        ("POST", "/api/memories", {"text": "   "}, 400, "nothing to remember"),
        ("POST", "/api/forget", {"ids": []}, 400, "ids"),
        ("POST", "/process", {"agent_id": "../../etc"}, 400, "agent_id"),
        ("POST", "/process", {"action": "dream-weave"}, 400, "agent_id"),
        ("POST", "/process", {"agent_id": "a", "action": "rm"}, 400, "action"),
        ("GET", "/api/nothing", None, 404, "address"),
        ("DELETE", "/api/search", None, 405, "method"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said_in_words(
    gateway: Gateway, method: str, path: str, body: object, status: int, word: str
) -> None:
    answer = gateway.ask(method, path, body)
    assert answer.status_code == status, answer.text
    assert word in answer.json()["error"], answer.text


def test_bodies_that_are_too_large_or_no_json_are_refused(gateway: Gateway) -> None:
    assert gateway.ask("POST", "/api/search", {"query": "a" * 400_000}).status_code == 413
    headers = {"Content-Type": "text/plain"}
    assert gateway.ask("POST", "/api/search", {"query": "a"}, headers=headers).status_code == 400
    assert gateway.ask("POST", "/api/forget", {"ids": ["aaaaaaaa"]}).status_code == 404
    assert gateway.get("/status")["status"] == "ok"
