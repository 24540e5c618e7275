"""What must hold at the end of every storm: all is on every device, once; all agree; what was forgotten is nowhere."""

from collections import Counter
from collections.abc import Callable, Iterable

import apsw

from tests.support.machine import Machine, Vault
from tests.support.watchers import until

BUSY_TIMEOUT_MS = 10_000


def places(machine: Machine) -> Counter[str]:
    """How often each text of a conversation stands in the memory, by the places that it came from."""
    return _texts(machine, "SELECT text FROM occurrences JOIN chunks ON chunks.rowid = occurrences.chunk")


def text_ids(machine: Machine) -> dict[str, str]:
    """All texts that this machine's memory has, conversations and memories, with their ids."""
    connection = _opened(machine)
    try:
        return {
            str(text): bytes(key).hex() for text, key in connection.execute("SELECT text, id FROM chunks")
        }
    finally:
        connection.close()


def settle_until(vault: Vault, condition: Callable[[], bool], what: str) -> None:
    """Settles again and again until it holds."""

    def settled() -> bool:
        vault.settle()
        return condition()

    until(settled, what)


def check_rest(machine: Machine) -> None:
    """Nothing waits, nothing is provisional, nothing was set aside, and the digest computed from the rows is the kept one."""
    status = machine.call("status", "--json").json
    waiting = (status["outbox"]["pending"], status["quarantined"], status["memory"]["provisional"])
    assert waiting == (0, 0, 0), f"{machine.root.name}: {waiting}"
    assert machine.call("verify", "--json").json["ok"] is True


def check_agreement(
    vault: Vault,
    said: Iterable[str],
    *,
    remembered: Iterable[str] = (),
    forgotten: Iterable[str] = (),
    about: str = "",
) -> None:
    """`said`: the texts of all conversations, as often as they were said. `about` stands in front of what fails: the seed."""
    expected = Counter(said)
    kept, gone = set(remembered), set(forgotten)
    for machine in vault.machines:
        here = f"{about} {machine.root.name}"
        found = places(machine)
        assert found == expected, f"{here}: lacks {expected - found}, has besides {found - expected}"
        all_texts = set(_texts(machine, "SELECT text FROM chunks"))
        assert kept <= all_texts, f"{here}: lacks memories {kept - all_texts}"
        check_rest(machine)
        held = home_holds(machine, gone)
        assert held == [], f"{here}: forgotten, and still there: {held}"
    assert len(vault.digests()) == 1, about


def home_holds(machine: Machine, texts: Iterable[str]) -> list[tuple[str, str]]:
    """Which of these texts stand in clear in which file of the home."""
    needles = {text: text.encode() for text in texts}
    found: list[tuple[str, str]] = []
    for path in sorted(machine.home.rglob("*")) if needles else ():
        if path.is_file():
            data = path.read_bytes()
            found += [(path.name, text) for text, needle in needles.items() if needle in data]
    return found


def _texts(machine: Machine, statement: str) -> Counter[str]:
    connection = _opened(machine)
    try:
        return Counter(str(text) for (text,) in connection.execute(statement))
    finally:
        connection.close()


def _opened(machine: Machine) -> apsw.Connection:
    connection = apsw.Connection(str(machine.home / "memory" / "crystal.db"), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    return connection
