"""`crystal trash` says a name that another device has chosen: it gives a terminal no commands."""

import json

from tests.support.machine import Vault


def test_a_restored_files_name_gives_a_terminal_no_commands(vault: Vault) -> None:
    name = "plan\x9b2J\u202etxt"
    item = vault.core.home / ".trash" / "1"
    item.mkdir(parents=True)
    (item / name).write_bytes(b"a plan")
    record = {"path": name, "at": 1, "clock": 1, "size": 6}
    (item.parent / "1.json").write_text(json.dumps(record))
    listed = vault.core.call("trash", "list")
    restored = vault.core.call("trash", "restore", "1")
    assert (vault.core.home / name).read_bytes() == b"a plan"
    for said in (listed, restored):
        assert "plan" in said.out
        assert not {"\x9b", "\u202e"} & set(said.out + said.err)
