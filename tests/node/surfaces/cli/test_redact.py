"""`crystal redact --again`: what newer rules find is replaced on all devices; of the former nothing is left."""

import os
import random
import signal
import string
from collections import Counter
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from unittest import mock

import pytest

from crystal_core.cutting.messages import join_pieces
from crystal_core.messages import SaidPiece, said_pieces
from crystal_mirror.operations import Forget
from crystal_node.base.settings import resolve
from crystal_node.capture.redaction import Redacted, redact
from crystal_node.capture.stored_redaction import survey
from crystal_node.device.device import Device, opened
from crystal_node.device.redaction_version import HINT, META_RULES, META_TOLD, UPGRADE_FIRST
from tests.support.machine import Machine, Vault, transcript
from tests.support.terminal import terminal


def token(seed: int) -> str:
    """A credential by its form; made at run time, so that no file holds one."""
    return "ghp" + "_" + "".join(random.Random(seed).choices(string.ascii_letters + string.digits, k=36))


def prose(seed: int, words: int) -> str:
    draw = random.Random(seed)
    return " ".join(
        "".join(draw.choices("bcdfghjklm", k=7)) + ("." if n % 9 == 8 else "") for n in range(words)
    )


def _unredacted(text: str) -> Redacted:
    return Redacted(text, redact("").counts)


@contextmanager
def earlier_rules() -> Generator[None]:
    """Rules that find nothing, in all that records."""
    with ExitStack() as stack:
        for module in ("capture.messages", "capture.recorder", "derive.sources.reader"):
            stack.enter_context(mock.patch(f"crystal_node.{module}.redact", _unredacted))
        yield


@contextmanager
def device_of(machine: Machine) -> Generator[Device]:
    with mock.patch.dict(os.environ, machine.environment, clear=True), opened(resolve()) as device:
        yield device


def said(machine: Machine) -> list[SaidPiece]:
    with device_of(machine) as device:
        return sorted(
            said_pieces(device.replica.database), key=lambda each: (each.session, each.message, each.part)
        )


def in_files(folder: Path, words: str) -> list[Path]:
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [path for path in found if words.encode() in path.read_bytes()]


@pytest.mark.timeout(400)
def test_it_replaces_what_newer_rules_find_on_all_devices(vault: Vault, tmp_path: Path) -> None:
    core, node = vault.core, vault.add()
    short, long, kept, read_in = token(1), token(2), token(3), token(4)
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.md").write_text(f"# Access\n\nThe robot signs in with {read_in} there.\n")
    message = f"{prose(1, 300)} {long} {prose(2, 850)}"
    with earlier_rules():
        transcript(node, "before", f"sign in with {short} please", message, "after")
        node.call("capture")
        core.call("remember", f"The deploy user has {kept}", "--scope", "everywhere", "--category", "skill")
        node.call("sources", "add", str(notes))
        node.call("sources", "sync")
        node.call("sync")
    vault.settle()
    core.call("jobs", "run", "artefacts")
    vault.settle()
    secrets = (short, long, kept, read_in)
    assert all(in_files(machine.home, secret) for machine in vault.machines for secret in secrets)
    before = said(core)
    with device_of(core) as device:
        devices: dict[str, bytes] = dict(
            device.replica.database.rows("SELECT message || part, device FROM occurrences ORDER BY rowid")
        )

    counted = core.call("redact", "--again", "--dry-run", "--json")
    assert counted.json["credentials"] == {"github-token": 4}
    assert counted.json["tools"] == {"claude-code": 2, "memories": 1, "documents of sources": 1}
    assert sorted(counted.json["devices"].values()) == [1, 3]
    assert core.call("redact", "--again", check=False).code == 2
    assert said(core) == before
    done = core.call("redact", "--again", "--yes")
    assert not any(secret in text for secret in secrets for text in (done.out, done.err, counted.out))
    vault.settle()
    core.call("jobs", "run", "artefacts")
    core.call("jobs", "run", "unweave", check=False)
    vault.settle()

    after = said(core)
    assert [(each.message, each.part, each.role, each.created_at) for each in after] == [
        (each.message, each.part, each.role, each.created_at) for each in before
    ]
    assert sum(now.text != then.text for now, then in zip(after, before, strict=True)) >= 2
    assert after == said(node)
    with device_of(core) as device:
        rows = device.replica.database.rows("SELECT message || part, device FROM occurrences ORDER BY rowid")
        assert dict(rows) == devices
    (memory,) = core.call("memories", "list", "--json").json["memories"]
    assert (memory["text"], memory["category"]) == ("The deploy user has [redacted:github-token]", "skill")
    assert any("robot" in text and "[redacted" in text for text in node.found("robot signs there"))
    assert [
        path for machine in vault.machines for secret in secrets for path in in_files(machine.home, secret)
    ] == []
    assert len(vault.digests()) == 1

    assert node.call("backfill", "--dry-run", "--json").json["new"] == 0
    again = core.call("redact", "--again", "--yes", "--json").json
    assert (again["found"], again["texts"], again["replaced"]) == (0, 0, False)


DYING = """
import os, signal, sys
from crystal_node.capture import stored_redaction
from crystal_node.device.device import Device

stored_redaction.BATCH_BYTES = 64
accept, calls = Device.accept, {"accept": 0, "inside": 0}

def count(frame, event, argument):
    calls["inside"] += event == "call"
    if calls["inside"] == 40:
        os.kill(os.getpid(), signal.SIGKILL)

def dying(device, operations):
    calls["accept"] += 1
    if calls["accept"] == 2:
        sys.setprofile(count)
    return accept(device, operations)

Device.accept = dying
"""
"""For ``sitecustomize``: the process kills itself within its second step."""


@pytest.mark.timeout(400)
def test_after_a_killed_process_the_next_run_makes_it_whole_on_both_devices(
    vault: Vault, tmp_path: Path
) -> None:
    core, node = vault.core, vault.add()
    secrets = [token(seed) for seed in range(10, 22)]
    with earlier_rules():
        transcript(node, *(f"number {n} has {secret}" for n, secret in enumerate(secrets)))
        node.call("capture")
        node.call("sync")
    vault.settle()
    before = said(core)
    (tmp_path / "dying").mkdir()
    (tmp_path / "dying" / "sitecustomize.py").write_text(DYING)
    killed = core.run("redact", "--again", "--yes", check=False, PYTHONPATH=str(tmp_path / "dying"))
    assert killed.code == -signal.SIGKILL
    with device_of(core) as device:
        assert device.journal.meta_get(META_RULES) == b"1"
        assert 0 < len(survey(device).replacements) < len(secrets)
    vault.settle()  # what the dead one had done is already everywhere
    again = core.run("redact", "--again", "--yes", "--json").json
    assert 0 < again["texts"] < len(secrets)
    vault.settle()
    assert len(vault.digests()) == 1
    for machine in vault.machines:
        kept = said(machine)
        assert len(kept) == len(before) == len(secrets)
        assert all("[redacted:" in each.text for each in kept)
        assert [(each.session, each.message, each.part) for each in kept] == [
            (each.session, each.message, each.part) for each in before
        ]
        assert not [secret for secret in secrets if in_files(machine.home / "memory", secret)]
    assert core.call("redact", "--again", "--yes", "--json").json["texts"] == 0


@pytest.mark.parametrize("extra", ["", "x" * 45])
def test_a_long_message_is_cut_as_a_capture_would_cut_it(vault: Vault, extra: str) -> None:
    """Also where it has a piece less than before, or one more."""
    core = vault.core
    texts = [f"{prose(n, 200)} {token(30)} {prose(n, 1000 + 10 * n)}{extra}" for n in range(50, 58)]
    with earlier_rules():
        transcript(core, *texts)
        core.call("capture")
    before = Counter(each.message for each in said(core))
    core.call("redact", "--again", "--yes")
    kept = said(core)
    assert not any(token(30) in each.text for each in kept)
    counts = Counter(each.message for each in kept)
    assert counts != before, "some have a piece less, or one more"
    for message in counts:
        assert join_pieces([each.text for each in kept if each.message == message]) is not None
    assert core.call("backfill", "--dry-run", "--json").json["new"] == 0


def test_a_key_that_is_longer_than_a_piece_goes_from_every_piece(vault: Vault) -> None:
    core = vault.core
    body = "\n".join(token(seed)[4:] + token(seed + 1)[4:62] for seed in range(100, 160, 2))
    key = f"-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----"
    with earlier_rules():
        transcript(core, f"{prose(7, 500)}\n{key}\n{prose(8, 800)}")
        core.call("capture")
    core.call("redact", "--again", "--yes")
    texts = [each.text for each in said(core)]
    assert not any(line in text for line in body.splitlines() for text in texts)
    words = {word for text in texts for word in text.split()}
    assert set(prose(7, 500).split()) | set(prose(8, 800).split()) <= words
    assert core.call("redact", "--again", "--yes", "--json").json["texts"] == 0


def test_a_piece_that_also_stands_elsewhere_is_not_recut(vault: Vault) -> None:
    core = vault.core
    start = prose(9, 1500)
    with earlier_rules():
        transcript(core, f"{token(40)} {start}", name="one")
        core.call("capture")
        with device_of(core) as device:
            pieces = list(said_pieces(device.replica.database))
        core.call("remember", pieces[3].text, "--scope", "everywhere")
    core.call("redact", "--again", "--yes")
    after = said(core)
    assert [each.text for each in after[1:]] == [
        each.text for each in sorted(pieces, key=lambda p: p.part)[1:]
    ]
    assert "[redacted:" in after[0].text
    assert core.call("memories", "list", "--json").json["memories"][0]["text"] == pieces[3].text


def test_newer_rules_are_told_of_once(vault: Vault) -> None:
    core = vault.core
    with terminal(core, "capture", TERM="dumb") as shown:
        shown.end()
        assert HINT not in shown.shown, "a new home has nothing older"
    with device_of(core) as device, device.journal.transaction() as journal:
        journal.meta_set(META_RULES, None)
    for told in (True, False):
        with terminal(core, "capture", TERM="dumb") as shown:
            shown.end()
            assert (HINT in shown.shown) is told
    with device_of(core) as device, device.journal.transaction() as journal:
        assert journal.meta_get(META_TOLD) == b"1"
        journal.meta_set(META_TOLD, None)
    core.call("redact", "--again")
    with terminal(core, "capture", TERM="dumb") as shown:
        shown.end()
        assert HINT not in shown.shown


@pytest.mark.parametrize("others", [False, True])
def test_whoever_has_other_devices_is_told_to_upgrade_them_before_and_after(
    vault: Vault, *, others: bool
) -> None:
    core = vault.core
    if others:
        vault.add()
        core.call("sync")
    with earlier_rules():
        core.call("remember", f"The robot signs in with {token(50)} there.")
    with terminal(core, "redact", "--again", TERM="dumb") as shown:
        shown.until("for good? [yes/no]")
        assert (UPGRADE_FIRST in shown.shown) is others
        shown.type("yes\n")
        shown.end()
        assert shown.shown.count(UPGRADE_FIRST) == (2 if others else 0)
    assert UPGRADE_FIRST in HINT


def test_its_progress_has_an_end_where_some_texts_are_hidden(vault: Vault) -> None:
    core = vault.core
    core.call("remember", "The crane stands at the dock.")
    core.call("remember", "The dock floods in spring.")
    told: list[tuple[str, int, int]] = []
    with device_of(core) as device:
        device.accept(
            [Forget((device.member.secret.forget_hash(sha256(b"The dock floods in spring.").digest()),))]
        )
        survey(device, lambda what, done, total: told.append((what, done, total)))
    assert told[-1] == ("reading", 2, 2)


def test_without_again_nothing_is_done(machine: Machine) -> None:
    assert "redact --again" in machine.call("redact", check=False).err
