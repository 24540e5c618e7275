"""A home that was put back from a backup gives the names of its operations a second time: to other versions of its files."""

import shutil
from pathlib import Path

from crystal_mirror.entries.control_state import published_floor, read_base
from crystal_mirror.replication.publish import publish
from crystal_mirror.retention.gc import retain
from crystal_mirror.snapshots.creation import make_snapshot
from tests.support.desks import Desk, Desks, settle


def let_go_of_the_log(core: Desk) -> None:
    core.store.run(make_snapshot(core.member))
    core.memory()
    for _ in range(2):
        core.store.run(retain(core.member, core.now(), force=True))
        core.store.run(publish(core.member))
    assert read_base(core.replica) is not None
    core.store.lose("conversations/")
    floor = published_floor(core.replica)
    for key in list(core.store.keys()):
        if "/mirror/" in key and key < core.member.keys.mirror(*floor):
            core.store.lose(key)


def contents(desk: Desk) -> set[bytes]:
    return set(desk.tree().values())


def test_an_edit_under_a_name_that_another_copy_of_the_device_used_up_is_kept(
    desks: Desks, core: Desk, tmp_path: Path
) -> None:
    laptop = desks.open("laptop")
    laptop.write("plan.md", "as it was")
    settle(core, laptop)
    laptop.close()
    shutil.copytree(laptop.root, tmp_path / "backup")
    laptop = desks.open("laptop")
    laptop.write("plan.md", "edited before the disk broke")
    settle(laptop, core)
    for number in range(70):
        laptop.write("other.md", f"version {number}")
        settle(laptop, core, rounds=1)
    let_go_of_the_log(core)
    laptop.close()
    shutil.rmtree(laptop.root)
    shutil.copytree(tmp_path / "backup", laptop.root)
    laptop = desks.open("laptop")
    laptop.write("plan.md", "edited in the restored home")
    laptop.files()  # before it has read the log: the offer gets the name that the other edit has
    settle(laptop, core, rounds=5)
    assert contents(core) == contents(laptop)
    assert {b"edited before the disk broke", b"edited in the restored home"} <= contents(core)
    laptop.close()
