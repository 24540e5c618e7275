"""A member that sends more than anybody needs: what the one who is asked keeps of it is bounded."""

from pathlib import Path

import pytest

from crystal_mirror.commands import target
from crystal_mirror.commands.database import command_notices
from crystal_mirror.commands.entries import seal_message
from crystal_mirror.commands.messages import Withdraw, encode_message
from crystal_mirror.types import ZERO_HASH
from tests.mirror.commands.office import Office


def test_withdrawals_of_what_was_never_asked_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "RECEIVED_KEPT_MAX", 5)
    office = Office(tmp_path)
    sender, core = office.laptop_member, office.core
    info = sender.log.member(core.device_id)
    assert info is not None
    for number in range(9):
        data, incarnation = encode_message(Withdraw(bytes([number]) * 16)), bytes([number + 1]) * 8
        office.store[sender.keys.command(sender.device_id, incarnation, 0)] = seal_message(
            sender, data, info, incarnation=incarnation, sequence=0, previous=ZERO_HASH
        )
    office.desk.exchange()
    assert len(office.desk.book.all_received()) == 5
    assert command_notices(office.desk.book)["overfull"].count == 4
