"""What a person does with memories, on a real device: list, change, put aside, replace, and see how it came about."""

from tests.support.machine import Vault
from tests.support.terminal import Terminal

OLD = "The staging database is restored every night at two."
NEW = "The staging database is restored every night at three."


def _ids(vault: Vault, *options: str) -> list[str]:
    return [each["id"] for each in vault.core.call("memories", "list", "--json", *options).json["memories"]]


def _sync(vault: Vault) -> None:
    for machine in (*vault.nodes, vault.core, *vault.nodes, vault.core):
        machine.call("sync")


def test_a_memory_is_replaced_put_aside_and_told_of_on_every_device(vault: Vault) -> None:
    core, node = vault.core, vault.add()
    old = core.call("remember", "--json", OLD, "--confidence", "60").json["id"]
    made = core.call("remember", "--json", NEW, "--supersedes", old[:12]).json
    assert (made["supersedes"], made["alike"], made["merged"]) == ([old], [], False)
    _sync(vault)
    assert _ids(vault) == [made["id"]]
    (gone,) = node.call("memories", "list", "--status", "superseded", "--json").json["memories"]
    assert (gone["id"], gone["superseded_by"], gone["confidence"]) == (old, made["id"], 60)
    found = node.call("search", "--json", "staging database restored").json["results"]
    assert [hit["text"] for hit in found] == [NEW]
    node.call("memories", "retire", made["id"][:8])
    assert node.call("memories", "list", "--json").json["memories"] == []
    _sync(vault)
    assert _ids(vault) == []
    core.call("memories", "revive", made["id"][:8])
    core.call("memories", "edit", made["id"][:8], "--category", "event", "--confidence", "80")
    told = core.call("memories", "history", "--json", old[:8]).json["events"]
    assert [(event["what"], event["status"]) for event in told] == [
        ("remembered", "active"),
        ("remembered", "active"),
        ("superseded", "superseded"),
        ("amended", "retired"),
        ("amended", "active"),
        ("amended", "active"),
    ]
    assert all(event["device"] and event["agent"] for event in told)
    assert [event["provisional"] for event in told] == [False, False, False, False, True, True]
    plain = core.call("memories", "history", old[:8]).out
    assert "superseded, by" in plain


def test_other_words_are_a_new_memory_in_the_place_of_the_old(vault: Vault) -> None:
    old = vault.core.call("remember", "--json", OLD).json["id"]
    changed = vault.core.call("memories", "edit", "--json", old[:8], "--text", NEW).json
    assert (changed["text"], changed["status"]) == (NEW, "active")
    assert _ids(vault) == [changed["id"]]
    refused = vault.core.call("memories", "edit", old[:8], "--confidence", "3", check=False)
    assert refused.code == 2
    assert "took its place" in refused.err
    vault.core.call("memories", "revive", old[:8])
    assert set(_ids(vault)) == {old, changed["id"]}
    shown = vault.core.call("memories", "show", "--json", old[:8]).json
    assert (shown["text"], shown["status"], shown["superseded_by"]) == (OLD, "active", "")


def test_the_same_words_are_remembered_once(vault: Vault) -> None:
    old = vault.core.call("remember", "--json", OLD).json["id"]
    again = vault.core.call(
        "remember", "--json", "  the staging database is restored every night, at TWO "
    ).json
    assert (again["id"], again["merged"]) == (old, True)
    judged = vault.core.call("remember", OLD.lower(), "--category", "event", "--confidence", "50").out
    assert "it is event, 50% now" in judged
    assert _ids(vault) == [old]
    assert len(_ids(vault)) == 1
    both = vault.core.call("remember", "--json", OLD.upper(), "--keep-both").json
    assert not both["merged"]
    assert len(_ids(vault)) == 2


def test_a_memory_that_says_almost_the_same_is_named_or_merged(vault: Vault) -> None:
    core = vault.core
    text = "Invoices are written by Miriam on the last Friday of each month."
    old = core.call("remember", "--json", text).json["id"]
    core.call("sync")
    like = core.call("remember", "--json", text.replace("each", "every")).json
    assert [each["id"] for each in like["alike"]] == [old]
    assert len(_ids(vault)) == 2
    told = core.call("remember", text.replace("each month", "the month")).err
    assert old[:12] in told
    merged = core.call("remember", "--json", "--merge", text.replace("are", "get")).json
    assert old in merged["supersedes"]
    other = core.call("remember", "--json", "Invoices are paid within 30 days by the office in Bergen.").json
    assert other["alike"] == []


def test_a_number_that_differs_is_a_difference(vault: Vault) -> None:
    vault.core.call("remember", "The standup of the importer team is in room 12 at nine.")
    vault.core.call("sync")
    other = vault.core.call(
        "remember", "--json", "The standup of the importer team is in room 14 at nine."
    ).json
    assert other["alike"] == []


def test_pages_follow_each_other_and_say_how_many_there_are(vault: Vault) -> None:
    for number in range(3):
        vault.core.call("remember", "--keep-both", f"Fact number {number}.")
    page = vault.core.call("memories", "list", "--json", "--limit", "2").json
    assert (len(page["memories"]), page["total"], page["more"]) == (2, 3, True)
    rest = vault.core.call("memories", "list", "--json", "--limit", "2", "--offset", "2").json
    assert (len(rest["memories"]), rest["more"]) == (1, False)
    assert vault.core.call("memories", "list", "--category", "skill").out == ""


def test_what_is_no_memory_is_said_so(vault: Vault) -> None:
    found = vault.core.call("memories", "show", "0123456789abcdef", check=False)
    assert found.code != 0
    assert "Traceback" not in found.err


def test_at_a_terminal_a_person_says_whether_there_shall_be_one_memory(vault: Vault) -> None:
    text = "Invoices are written by Miriam on the last Friday of each month."
    old = vault.core.call("remember", "--json", text).json["id"]
    vault.core.call("sync")
    refused = Terminal(vault.core, "remember", text.replace("each", "every"))
    refused.until("[y/N]")
    assert old[:12] in refused.shown
    refused.type("\n")
    assert refused.end() == 0
    assert len(_ids(vault)) == 2
    merged = Terminal(vault.core, "remember", text.replace("each", "a"))
    merged.until("[y/N]")
    merged.type("y\n")
    assert merged.end() == 0
    assert "takes the place of" in merged.shown
    assert old not in _ids(vault)
