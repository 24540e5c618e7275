"""What becomes of a device that asks for the lead, and of a Core that is asked: to be compared with the drawings."""

import contextlib
from collections.abc import Callable

from crystal_mirror.errors import ProtocolError
from crystal_mirror.handover.successor import stage_of, take
from crystal_mirror.handover.terms import COURTESY_MS, LEASE_MS
from crystal_mirror.membership.cursors import read_cursors
from crystal_mirror.replication.claim import adopt_claim, claim
from tests.mirror.handover import Moving, core_stage, killed_at_write
from tests.support.drawings import Edge, tried


def allowed(event: Callable[[Moving], object]) -> Callable[[Moving], None]:
    """The event, or nothing where it is refused."""

    def run(home: Moving) -> None:
        with contextlib.suppress(ProtocolError):
            event(home)

    return run


def _drains(home: Moving) -> None:
    home.round(home.core)
    home.run(read_cursors(home.laptop))


def _dies_at_the_log(home: Moving) -> None:
    with contextlib.suppress(StopIteration):
        killed_at_write(home, take(home.laptop, None, home.about), home.core.keys.log_prefix)
    home.laptop = home.restarted(home.laptop)
    home.read(home.laptop)
    adopt_claim(home.laptop)


def _another_leads(home: Moving) -> None:
    home.run(claim(home.desk, None, force=True))
    home.look(home.laptop)


def _left_alone(home: Moving) -> None:
    home.now += LEASE_MS
    home.round(home.laptop)


def asking() -> set[Edge]:
    return tried(
        Moving,
        {
            "it asks": allowed(lambda h: h.ask(h.laptop)),
            "the Core drains": allowed(_drains),
            "it takes the lead": allowed(lambda h: h.take(h.laptop)),
            "it dies after its entry in the log": allowed(_dies_at_the_log),
            "it withdraws": lambda h: h.withdraw(h.laptop),
            "half a minute": _left_alone,
            "a round": lambda h: h.round(h.laptop),
            "another's lead": allowed(_another_leads),
        },
        lambda home: stage_of(home.laptop).value,
    )


def _asks(home: Moving) -> None:
    home.ask(home.laptop)
    home.round(home.core)


def _asks_without_a_grant(home: Moving) -> None:
    with home.tablet.journal.transaction() as transaction:
        transaction.meta_set("handover.asks", bytes(range(16)))
    home.round(home.tablet, heed=False)
    with home.tablet.journal.transaction() as transaction:
        transaction.meta_set("handover.asks", None)
    home.round(home.core)


def _withdraws(home: Moving) -> None:
    home.withdraw(home.laptop)
    home.round(home.core)


def _a_minute(home: Moving) -> None:
    home.now += COURTESY_MS
    home.round(home.core)


def _takes_up(home: Moving) -> None:
    home.round(home.desk)
    home.round(home.core)


def _leads(home: Moving) -> None:
    home.run(claim(home.laptop, None, force=True))
    home.round(home.core)


def giving() -> set[Edge]:
    return tried(
        Moving,
        {
            "a device asks that may lead": allowed(_asks),
            "a device asks that may not": _asks_without_a_grant,
            "it withdraws": _withdraws,
            "a minute": _a_minute,
            "the Core offers": allowed(lambda h: h.offer(h.desk)),
            "the device takes the offer up": _takes_up,
            "the Core calls off": lambda h: h.call_off(),
            "another's lead": allowed(_leads),
            "the Core freezes": allowed(Moving.freeze),
        },
        lambda home: core_stage(home.core).value,
    )
