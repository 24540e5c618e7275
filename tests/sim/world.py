"""The simulated world: homes, one relay, and a scheduler that advances one request of one device at a time.

Everything that happens is drawn from the seed and written to `trace`; the only thing that the seed does not govern is the
randomness inside HPKE, so that bytes differ between runs while names, sizes and order do not.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from random import Random
from typing import Any

from crystal_crypto.entry import Kind, parse
from crystal_crypto.errors import CryptoError
from crystal_crypto.hierarchy import Root
from crystal_crypto.identity import DeviceIdentity
from crystal_mirror.claim import claim
from crystal_mirror.devicelog import DeviceLog
from crystal_mirror.founding import root_keys
from crystal_mirror.member import Member
from crystal_mirror.offers import open_offer
from crystal_mirror.operations import Capture, Forget, Operation, Piece, Remember, encode_operation
from crystal_mirror.requests import Embed, Flow, Get, GetMany, List, Put, PutNew, Request
from crystal_mirror.types import EntryState, Origin
from tests.sim.checks import Checks, compare
from tests.sim.device import Crasher, Home, SimCrash, seeded
from tests.sim.model import Histories, Violation
from tests.sim.store import SimStore

TEXTS = (
    "tea, no sugar",
    "the spare key is under the third stone",
    "ship on Friday",
    "a text that is long enough to need two windows of the embedder",
    "Böhm's number: +49 30 1234",
    "forget me",
)
NEWCOMER_ROUNDS_MAX = 4
FLOW_STEPS_MAX = 5000
"""Requests after which a single flow counts as endless."""
ROUNDS_TO_AGREE_MAX = 12
"""Rounds of every device after which all must be equal once faults have stopped."""


@dataclass
class Summary:
    """What a run did."""

    steps: int = 0
    checks: int = 0
    kills: int = 0
    points: int = 0
    operations: int = 0
    rounds_to_agree: int = 0
    faults: Counter[str] | None = None


class World:
    """A vault and its devices. `say` is called with each line of the trace."""

    def __init__(self, seed: str) -> None:
        self.seed = seed
        self.draw = Random(f"{seed}/world")
        self.root = Root.from_bytes(seeded(f"{seed}/root")(32))
        self.store = SimStore(Random(f"{seed}/weather"))
        self.crasher = Crasher()
        self.homes: list[Home] = []
        self.trace: list[str] = []
        self.steps = 0
        self.lost: set[bytes] = set()
        """Operations that went with a disk before they were durable, or with disk and relay together."""
        self.on_relay_only: set[bytes] = set()
        """Operations that no disk held any more at some time. A relay that lies or was harmed may lose them as well."""
        self.deceived = False
        """Whether the relay ever lied or was harmed."""
        self.accepted: dict[bytes, Operation] = {}
        self.faults: Counter[str] = Counter()
        self.rounds_to_agree = 0
        self._serial = 0
        self.core = self.add_home("core", founds=True)
        self.run_round(self.core)
        log = DeviceLog(self.root.vault)
        for key in self.store.keys("devlog"):
            log.extend(self.store.objects[key])
        self.key, secret = root_keys(self.root, log)
        self.secret = secret
        self.checks = Checks(Histories(self.key, secret), self.store.acknowledged)

    def say(self, line: str) -> None:
        self.trace.append(f"{self.steps} {line}")

    def add_home(self, name: str, *, founds: bool = False, keeps_root: bool = True) -> Home:
        identity = DeviceIdentity.generate(seeded(f"{self.seed}/{name}/identity"))
        home = Home(
            name, identity, self.root, self.crasher, seeded(f"{self.seed}/{name}"), founds, keeps_root
        )
        self.homes.append(home)
        return home

    def home(self, name: str) -> Home:
        return next(home for home in self.homes if home.name == name)

    # Steps. Each may kill the process; the disk stays.

    def step(self, home: Home, flow: Callable[[Member], Flow[Any]] | None = None) -> bool:
        """One request of one device, or the beginning of a flow. True if the flow is over."""
        self.steps += 1
        try:
            if not home.busy:
                adds = flow is not None or home.open() is None
                (self.store.joining.add if adds else self.store.joining.discard)(home.name)
            if home.busy:
                request = home.advance(lambda request: self.store.perform(home.name, request))
                self.say(f"{home.name} {describe(request)}")
            else:
                home.start(flow)
                self.say(f"{home.name} starts")
        except SimCrash:
            self._died(home)
        except (AssertionError, ValueError, KeyError, IndexError, TypeError, RuntimeError) as error:
            raise Violation(f"defect: {home.name}: {type(error).__name__}: {error}") from error
        if home.error:
            self.say(f"{home.name} ends by {home.error.partition(':')[0]}")
        if hasattr(self, "checks"):
            self.checks.after_step(home)
        return not home.busy

    def _died(self, home: Home) -> None:
        home.die()
        self.faults["crash"] += 1
        self.say(f"{home.name} died")

    def run(self, home: Home, flow: Callable[[Member], Flow[Any]] | None = None) -> bool:
        """A whole flow of one device. False if the process died or the flow ended by an error."""
        if home.busy:
            home.die()
        before = self.faults["crash"]
        end = self.steps + FLOW_STEPS_MAX
        while not self.step(home, flow):
            if self.steps > end:
                raise Violation(f"P10: a flow of {home.name} does not end")
        return not home.error and self.faults["crash"] == before

    def run_round(self, home: Home) -> bool:
        return self.run(home)

    def accept(self, home: Home, operation: Operation) -> bool:
        """The device is given an operation. False if it is no member yet, or if its process died before accepting."""
        self.steps += 1
        encoded = sha256(encode_operation(operation)).digest()
        alive = True
        try:
            member = home.open()
            if member is None:
                return False
            member.accept(operation)
        except SimCrash:
            self._died(home)
            alive = False
        if (
            not alive
            and not home.journal.execute("SELECT 1 FROM outbox WHERE digest = ?", (encoded,)).fetchone()
        ):
            return False
        self.say(f"{home.name} accepts {type(operation).__name__}")
        self.accepted[encoded] = operation
        self.checks.accepted(home, encoded)
        self.checks.after_step(home)
        return True

    def new_operation(self, draw: Random) -> Operation:
        """One of few texts, so that they meet again; made unique by a serial number; with a clock that is off by years."""
        self._serial += 1
        clock = draw.choice((0, 1, 10**12, 2 * 10**12, 2**50)) + self._serial
        match draw.randrange(6):
            case 0:
                return Remember(draw.choice(TEXTS), draw.choice(("fact", "event")), f"a{self._serial}", clock)
            case 1:
                return self.forget(draw.choice(TEXTS))
            case _:
                pieces = tuple(
                    Piece(draw.choice(TEXTS), "user", clock, f"m{draw.randrange(4)}", part)
                    for part in range(draw.randint(1, 3))
                )
                return Capture(
                    "agent", draw.choice(("s1", "s2")), f"p{self._serial}", "", "claude-code", pieces
                )

    def forget(self, text: str) -> Forget:
        """A second target that no text has makes every forget different from all others."""
        self._serial += 1
        nothing = sha256(f"nothing {self._serial}".encode()).digest()
        return Forget((self.secret.forget_hash(sha256(text.encode()).digest()), nothing))

    # Disasters: what protocols cannot prevent. They may lose what nobody else holds, and nothing else.

    def disaster(self, home: Home | None, strike: Callable[[], None]) -> None:
        """Runs `strike`, which puts back the disk of `home` or (None) harms the relay; books what is lost by it."""
        armed, self.crasher.kill_at = self.crasher.kill_at, None
        answered = self.checks.released(home) if home else set[bytes]()
        strike()
        if home is not None:
            home.open()
            self.checks.after_step(home)
            for operation in answered & self.checks.held(home):
                self.checks.accepted(home, operation)
        held: set[bytes] = set()
        for other in self.homes:
            held |= self.checks.held(other)
        self.on_relay_only |= self.accepted.keys() - held
        self.lost |= self.accepted.keys() - held - self._on_relay()
        self.crasher.kill_at = armed

    def harm(self, strike: Callable[[], None]) -> None:
        """Harms the relay. The device log may only be harmed while every device has all of it: else two devices could go on
        from different heads, a fork of the log for good, which is named and not healed.
        """
        self.deceived = True
        log = {key: self.store.objects[key] for key in self.store.keys("devlog")}
        self.disaster(None, strike)
        known = [home.journal.execute("SELECT count(*) FROM device_log").fetchone() for home in self.homes]
        if any(row is None or row[0] != len(log) for row in known) or any(home.busy for home in self.homes):
            for key in self.store.keys("devlog"):
                del self.store.objects[key]
            self.store.objects.update(log)

    def _on_relay(self) -> set[bytes]:
        found: set[bytes] = set()
        for data in self.store.objects.values():
            try:
                entry = parse(data)
                if entry.header.kind is Kind.OFFER:
                    found.add(sha256(open_offer(entry, self.key).data).digest())
                elif entry.header.kind is Kind.BATCH:
                    found |= self.checks.histories.operations_in(data)
            except CryptoError:
                continue
        return found

    # The end.

    def agree(self, *, newcomer: bool = True) -> int:
        """Stops all faults and syncs until all devices are equal. Returns the rounds that took. Raises Violation (P10).

        With `newcomer` a device joins last and has to reach the same state from the relay alone.
        """
        self.store.calm_down()
        self.crasher.kill_at = None
        for home in self.homes:
            home.die()
        for number in range(1, ROUNDS_TO_AGREE_MAX + 1):
            for home in self.homes:
                if (
                    number % 4 == 0
                ):  # a process that starts looks at everything again, as a running one does now and then
                    home.die()
                self.run_round(home)
            if number == 3:
                self._appoint()
            if not self._disagreement():
                self.rounds_to_agree = number
                if newcomer:
                    self._join_last()
                self._check_outcome()
                return number
        raise Violation(f"P10: after {ROUNDS_TO_AGREE_MAX} rounds: {self._disagreement()}")

    def _appoint(self) -> None:
        """What a person does when no device leads any more, or the one that leads says that others are further.

        The Core's disk was put back to before it claimed the lead, or its log was, and the relay has lost its own.
        """
        members = [(home, member) for home in self.homes if (member := home.open()) is not None]
        if any(member.is_core and not home.error.startswith("BehindTheFloor") for home, member in members):
            return
        able = [home for home, member in members if member.root is not None]
        home = max(able, key=lambda home: home.member.replica.position()[:2] if home.member else (0, 0))
        self.faults["claim by hand"] += 1
        home.abandons = True
        self.run(home, lambda member: claim(member, member.root, force=True, abandon=True))

    def _disagreement(self) -> str:
        digests: dict[str, str] = {}
        for home in self.homes:
            member = home.open()
            if member is None:
                return f"{home.name} is no member: {home.error}"
            notices = member.notices.current()
            waiting = len(member.journal.names())
            if waiting or member.replica.kept(EntryState.UNSENT):
                return f"{home.name} still has {waiting} operations in its outbox; {home.error} {notices}"
            position = member.replica.position()
            digests[home.name] = f"{position[:2]} {member.replica.digest().hex()[:8]} {home.error} {notices}"
        return "" if len({d.split(" {")[0] for d in digests.values()}) == 1 else f"{digests}"

    def _join_last(self) -> None:
        newcomer = self.add_home("newcomer")
        for home in (newcomer, *self.homes * NEWCOMER_ROUNDS_MAX):
            if home is self.homes[0]:
                home.die()
            self.run_round(home)
        last = newcomer.open()
        if last is None or self._disagreement():
            raise Violation(
                f"P10: a device that joins last does not reach the state of the others: {self._disagreement()}"
            )
        self.homes.remove(newcomer)

    def _check_outcome(self) -> None:
        """Every operation that was accepted and not lost is in the log all agree on, and nothing else is."""
        member = self.homes[0].open()
        assert member is not None, "checked before"
        history = self.checks.histories.get(member.replica.position().previous)
        assert history is not None, "checked after the step"
        missing = self.accepted.keys() - self.lost - history.operations
        if self.deceived:
            missing -= self.on_relay_only
        if missing:
            raise Violation(f"P1: lost: {[self.accepted[name] for name in sorted(missing)]}")
        if history.operations - self.accepted.keys():
            raise Violation("P2: the log holds operations that nobody made")
        for home in self.homes:
            assert home.replica is not None
            damage = home.replica.check() or compare(home.replica, history.state)
            if damage:
                raise Violation(f"P2: {home.name}: {damage}")
            shown = home.member.replica.provisional_origins() if home.member else set[Origin]()
            # Where the outbox was put back to before it was told of them, they are all that is left: those stay findable.
            if shown & history.state.done or (shown and not home.restores):
                raise Violation(f"P2: {home.name} still shows provisional rows")

    def summary(self) -> Summary:
        return Summary(
            self.steps,
            self.checks.count,
            self.crasher.kills,
            self.crasher.points,
            len(self.accepted),
            self.rounds_to_agree,
            self.faults + self.store.counts,
        )


def describe(request: Request | None) -> str:
    """A request without its ciphertext: its kind, key and size."""
    match request:
        case Get(key):
            return f"get {key}"
        case GetMany(keys):
            return f"get {len(keys)} from {keys[:1]}"
        case PutNew(key, body) | Put(key, body):
            return f"put {key} {len(body)}"
        case List(prefix, after, _):
            return f"list {prefix} after {after}"
        case Embed(texts):
            return f"embed {len(texts)}"
        case None:
            return "nothing"
