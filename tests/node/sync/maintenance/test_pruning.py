"""``crystal snapshot`` and ``crystal prune``, with a real relay."""

from tests.support.machine import Machine, Vault


def test_a_snapshot_is_made_and_announced_and_a_new_machine_reads_it(vault: Vault) -> None:
    for number in range(5):
        vault.core.call("remember", f"the ship's bell number {number}")
    vault.core.call("sync")
    made = vault.core.call("snapshot", "--json").json
    assert made["announced"]["seq"] >= made["seq"]
    assert made["parts"] >= 1
    assert made["bytes_up"] > 0
    laptop = vault.add()
    laptop.call("sync")
    assert laptop.found("ship's bell")
    assert len(vault.digests()) == 1
    status = laptop.call("status", "--json").json
    assert status["snapshot"]["base"] == {"epoch": made["epoch"], "seq": made["seq"]}


def test_a_node_says_who_the_core_is(vault: Vault) -> None:
    laptop = vault.add()
    for command in (["snapshot"], ["prune"], ["embed", "migrate"]):
        refused = laptop.call(*command, check=False)
        assert refused.code == 7
        assert "the Core is " in refused.err


def test_pruning_waits_for_the_word_of_a_person(vault: Vault) -> None:
    refused = vault.core.call("prune", "--now", typed="no\n", check=False)
    assert refused.code == 2
    assert "prune" in refused.err
    shown = vault.core.call("prune")
    assert "the whole log is kept" in shown.out


def test_a_snapshot_that_was_just_made_is_not_said_to_be_none(vault: Vault) -> None:
    vault.core.call("remember", "the ship's bell")
    vault.core.call("sync")
    made = vault.core.call("snapshot", "--json").json
    shown = vault.core.call("prune", "--json").json
    known = [kept["of"] for kept in shown["snapshots"]] + [shown["snapshot_new"]]
    assert {"epoch": made["epoch"], "seq": made["seq"]} in known
    assert "the whole log is kept" not in vault.core.call("prune").out


def test_pruning_now_lets_go_of_the_log_and_who_was_away_loses_nothing(vault: Vault) -> None:
    laptop = vault.add()
    laptop.call("sync")
    laptop.call("remember", "said on the laptop while it was away")
    _say_much(vault.core)
    done = vault.core.call("prune", "--now", "--yes", "--json").json
    assert done["log"]["floor"]["seq"] > 5
    assert done["snapshots"][0]["of"] == done["log"]["floor"]
    (reader,) = done["readers"]
    assert reader["at"]["seq"] < done["log"]["floor"]["seq"]
    assert reader["passed"] is not reader["holds"]
    vault.settle()
    late = vault.add()
    late.call("sync")
    vault.settle()
    assert len(vault.digests()) == 1
    assert late.found("laptop while it was away")


def test_sealing_anew_is_told_and_everything_is_still_there(vault: Vault) -> None:
    laptop = vault.add()
    (vault.core.home / "notes.md").write_text("The tide tables of March.")
    vault.settle()
    vault.core.call("devices", "renew-keys")
    done = vault.core.call("prune", "--rewrite", "--yes", "--json").json
    assert done["rewritten"]["lacking"] == {}
    vault.settle()
    assert (laptop.home / "notes.md").read_text() == "The tide tables of March."
    assert len(vault.digests()) == 1


def _say_much(machine: Machine) -> None:
    for number in range(12):
        machine.call("remember", f"entry {number} of the log book")
        machine.call("sync")
