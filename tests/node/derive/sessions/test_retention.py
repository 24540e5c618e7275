"""Which sessions go, and what stays of them."""

from pathlib import Path

from crystal_node.derive.sessions.layout import Head
from crystal_node.derive.sessions.retention import DAY_MS, GB, remove, to_remove
from tests.node.derive.sessions.machines import Machine
from tests.node.derive.sessions.support import SESSION, head_of, lines
from tests.node.derive.sessions.test_writer import turns

NOW = 100 * DAY_MS


def _head(session: str, days: float, packed: int = 0, device: str = "a") -> Head:
    from msgspec import structs

    head = head_of(device, [lines(0, 3)], at=int(NOW - days * DAY_MS))
    segment = structs.replace(head.main.segments[0], packed=packed)
    return structs.replace(head, session=session, main=structs.replace(head.main, segments=(segment,)))


def test_old_sessions_go_and_one_that_any_machine_still_uses_stays() -> None:
    heads = [_head("old", 40), _head("used", 40), _head("used", 2, device="b"), _head("new", 3)]
    found = to_remove(heads, NOW, keep_days=30, max_gb=0)
    assert [each.session for each in found] == ["old"]
    assert to_remove(heads, NOW, keep_days=0, max_gb=0) == []


def test_the_oldest_go_until_the_rest_fits_but_never_what_grew_within_a_day() -> None:
    heads = [_head("a", 9, 2 * GB), _head("b", 8, 2 * GB), _head("c", 0.5, 3 * GB), _head("d", 7, GB)]
    assert [each.session for each in to_remove(heads, NOW, keep_days=0, max_gb=5)] == ["a", "b"]
    assert [each.session for each in to_remove(heads, NOW, keep_days=0, max_gb=1)] == ["a", "b", "d"]


def test_a_removed_session_is_not_copied_again_until_it_grows(tmp_path: Path) -> None:
    one = Machine(tmp_path, "a")
    one.says(turns(0, 4))
    one.copy()
    [removal] = to_remove(one.copies.heads(), 10**14, keep_days=1, max_gb=0)
    remove(one.copies, removal, 5)
    [head] = one.copies.heads()
    assert head.removed == 5
    assert list(one.root.rglob("*.zst")) == []
    assert one.copies.branches("claude-code", SESSION) == []
    assert one.copy() == 0
    one.says(turns(4, 5))
    one.copy()
    assert one.tip() == turns(0, 5)
