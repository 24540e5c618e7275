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
from crystal_mirror.entries.offers import open_offer
from crystal_mirror.membership.authority import in_force
from crystal_mirror.membership.member import Member, load_log
from crystal_mirror.operations import Forget, Operation, decode_operation, encode_operation
from crystal_mirror.requests import Flow, PutNew, Request
from crystal_mirror.types import EntryState
from tests.mirror.support import seeded
from tests.sim import ending
from tests.sim.checks import Checks
from tests.sim.device import Clock, Crasher, Home, SimCrash, spoken
from tests.sim.filing import Filing
from tests.sim.guesser import Guesser
from tests.sim.measure import note_world
from tests.sim.model import Histories, Violation
from tests.sim.needs import Needs
from tests.sim.outsiders import Generations, Outsiders
from tests.sim.secrecy import Secrecy
from tests.sim.store import SimStore
from tests.sim.tracing import describe, hash_of
from tests.sim.writing import Writer, plant_writings

FLOW_STEPS_MAX = 5000
"""Requests after which a single flow counts as endless."""


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


def _puts_back_junk(member: Member, request: Request) -> bool:
    """Whether it is what the relay itself once showed there, kept and put back byte for byte (§11.13-1)."""
    if not isinstance(request, PutNew):
        return False
    void = [entry.data for entry in member.replica.kept(EntryState.VOID)]
    return request.body in void or request.body in (data for _, data, _ in member.journal.log_entries())


class World:
    """A vault and its devices. `say` is called with each line of the trace."""

    def __init__(self, seed: str) -> None:
        self.seed = seed
        self.draw = Random(f"{seed}/world")
        self.roots = [Root.from_bytes(seeded(f"{seed}/root")(32))]
        """Every root that was ever drawn; which one is in force, the device log says."""
        self.vault = self.roots[0].vault
        self.store = SimStore(Random(f"{seed}/weather"))
        self.secrecy = self.store.secrecy = Secrecy()
        plant_writings(self.secrecy)
        self.secrecy.plant_root(self.roots[0])
        self.crasher = Crasher()
        self.homes: list[Home] = []
        self.former: list[Home] = []
        """Homes of devices that were revoked, and that go on in their own way."""
        self.trace: list[str] = []
        self.steps = 0
        self.clock = Clock()
        self.has_clocks = False
        """Whether devices that come from now on have a clock."""
        self.has_files = False
        self.lost: set[bytes] = set()
        """Operations that went with a disk before they were durable, or with disk and relay together."""
        self.on_relay_only: set[bytes] = set()
        """Operations that no disk held any more at some time. A relay that lies or was harmed may lose them as well."""
        self.deceived = False
        """Whether the relay ever lied or was harmed."""
        self.accepted: dict[bytes, Operation] = {}
        self.made: dict[bytes, Operation] = {}
        self.made_by: dict[bytes, bytes] = {}
        """Every operation, those of revoked devices too, and the device at which it was made."""
        self.faults: Counter[str] = Counter()
        self.power_cuts = 0.0
        """How often a process dies because the power is cut."""
        self.rounds_to_agree = 0
        self.core = self.add_home("core", founds=True)
        self.run_round(self.core)
        member = self.core.open()
        assert member is not None, "it has founded the vault"
        self.secret = member.secret
        self.generations = Generations(member.generation_key)
        self.outsiders = Outsiders(load_log(member.journal, self.vault))
        self.checks = Checks(Histories(self.generations.of, self.secret), self.store.acknowledged)
        self.outsiders.take_as_put(self.store.objects.values())
        self.secrecy.plant_secret(self.secret)
        self.secrecy.plant_generation(member.generation_key)
        self.store.watch = self._watch
        self.guesser = Guesser(self.vault, self.secret, self.generations)
        self.guesser.take_as_known(self.store.objects)
        self.store.asked = self._asked
        self.writer = Writer(self.secret)
        self.filing = Filing(self.checks.histories, self.say, self.secrecy.plant)
        self.needs = Needs(self.vault, self.checks.histories, lambda: self.homes, self.store.objects)
        self.store.swept = self.needs.p6_nothing_needed_is_deleted
        self.checks.histories.on_announced = self.needs.p6_an_announced_snapshot_is_whole

    @property
    def root(self) -> Root:
        """The newest recovery kit: of the root in force."""
        if not hasattr(self, "outsiders"):
            return self.roots[0]
        return next(root for root in self.roots if in_force(self.outsiders.truth, root))

    def new_root(self) -> Root:
        self.roots.append(Root.from_bytes(seeded(f"{self.seed}/root/{len(self.roots)}")(32)))
        self.secrecy.plant_root(self.roots[-1])
        return self.roots[-1]

    def say(self, line: str) -> None:
        self.trace.append(f"{self.steps} {line}")

    def add_home(
        self, name: str, *, founds: bool = False, keeps_root: bool = True, has_kit: bool = True
    ) -> Home:
        """A device that founds or joins by the root, or (not ``has_kit``) waits until another one has added it."""
        identity = DeviceIdentity.generate(seeded(f"{self.seed}/{name}/identity"))
        self.secrecy.plant_identity(identity)
        self.secrecy.plant("a device's name", spoken(name).encode())
        root = self.root if has_kit else None
        random = seeded(f"{self.seed}/{name}")
        home = Home(name, identity, self.vault, root, self.crasher, random, founds, keeps_root and has_kit)
        home.clock = self.clock if self.has_clocks else None
        if self.has_files:
            self.give_files(home)
        self.homes.append(home)
        return home

    def give_files(self, home: Home) -> None:
        """From now on the device syncs files."""
        home.have_files(
            lambda removed: self.filing.p7_only_what_others_have_is_overwritten(home.name, removed)
        )

    def home(self, name: str) -> Home:
        return next(home for home in self.homes if home.name == name)

    # Steps. Each may kill the process; the disk stays.

    def step_beside(self, home: Home, flow: Callable[[Member], Flow[Any]] | None = None) -> None:
        """One request of what goes on beside a device's rounds, or the beginning of it."""
        self._tick()
        self.store.models[home.name] = home.model
        try:
            if home.beside is not None:
                request = home.advance(lambda request: self.store.perform(home.name, request), home.beside)
                self.say(f"{home.name} beside {describe(request)}")
            elif flow is not None:
                home.start_beside(flow)
                self.say(f"{home.name} begins beside")
        except SimCrash:
            self._died(home)
        self._check(home)

    def _tick(self) -> None:
        self.steps += 1
        self.clock.now_ms += self.clock.tick_ms

    def step(self, home: Home, flow: Callable[[Member], Flow[Any]] | None = None) -> bool:
        """One request of one device, or the beginning of a flow. True if the flow is over."""
        self._tick()
        self.store.models[home.name] = home.model
        try:
            if not home.busy:
                adds = flow is not None or home.open() is None
                if home.root is not None:
                    home.root = self.root
                (self.store.joining.add if adds else self.store.joining.discard)(home.name)
            if home.busy:
                request = home.advance(lambda request: self.store.perform(home.name, request))
                self.say(f"{home.name} {describe(request)}")
            else:
                home.start(flow)
                self.say(f"{home.name} starts")
        except SimCrash:
            self._died(home)
        except Violation:
            raise
        except (AssertionError, ValueError, KeyError, IndexError, TypeError, RuntimeError) as error:
            raise Violation(f"defect: {home.name}: {type(error).__name__}: {error}") from error
        if home.error:
            self.say(f"{home.name} ends by {home.error.partition(':')[0]}")
        self._check(home)
        return not home.busy

    def look_at(self, home: Home) -> None:
        """Checks the promises on a device now. Raises Violation."""
        self._check(home)

    def _check(self, home: Home) -> None:
        if not hasattr(self, "checks") or home in self.former:
            return
        if home.member is not None:
            gone = self.outsiders.learn(home.member)
            for key in self.generations.learn(home.member):
                self.secrecy.plant_generation(key)
            for device in gone:
                self._expel(device)
            if home.book is not None:
                self._take_up_files(home, home.member)
        if home not in self.former:
            self.checks.after_step(home)

    def _take_up_files(self, home: Home, member: Member) -> None:
        """What a round of files had the device accept counts as any other operation."""
        for name in member.journal.names():
            row = (
                member.journal.row(name.incarnation, name.sequence) if name.digest not in self.made else None
            )
            if row is None:
                continue
            self.made[name.digest] = operation = decode_operation(row.operation)
            self.made_by[name.digest] = home.identity.id
            if home in self.former:
                self.checks.histories.forbidden.add(name.digest)
            else:
                self.accepted[name.digest] = operation
                self.checks.accepted(home, name.digest)

    def _expel(self, device: bytes) -> None:
        """A device is out. What it had not stored before is its own affair from here on, and so is what it makes."""
        homes = [home for home in self.homes if home.identity.id == device]
        for home in homes:
            self.say(f"{home.name} is out")
            self.homes.remove(home)
            self.former.append(home)
        self.outsiders.expel(homes[0].identity)
        theirs = {name for home in homes for name in self.checks.released(home)}
        held = {name for home in self.homes for name in self.checks.held(home)}
        stored = self.on_relay(device)
        self.on_relay_only |= theirs - held
        self.lost |= theirs - held - stored

    def _watch(self, name: str, body: bytes) -> None:
        sender = next((home for home in self.homes if home.name == name), None)
        if sender is None:
            self.outsiders.take_as_put([body])
        else:
            self.outsiders.check_put(sender.member, name, body)

    def _asked(self, name: str, request: Request) -> None:
        sender = next((home for home in self.homes if home.name == name), None)
        if sender is None or sender.member is None or not sender.asked_in:
            return
        if not _puts_back_junk(sender.member, request):
            self.guesser.check(name, request, sender.asked_in)

    def _died(self, home: Home) -> None:
        if self.power_cuts and self.draw.random() < self.power_cuts:
            home.cut_power()
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
        self.made[encoded], self.made_by[encoded] = operation, home.identity.id
        if home in self.former:
            self.checks.histories.forbidden.add(encoded)
            return True
        self.accepted[encoded] = operation
        self.checks.accepted(home, encoded)
        self._check(home)
        return True

    def new_operation(self, draw: Random) -> Operation:
        return self.writer.new_operation(draw)

    def forget(self, text: str) -> Forget:
        return self.writer.forget(text)

    # Disasters: what protocols cannot prevent. They may lose what nobody else holds, and nothing else.

    def disaster(self, home: Home | None, strike: Callable[[], None]) -> None:
        """Runs `strike`, which puts back the disk of `home` or (None) harms the relay; books what is lost by it."""
        armed, self.crasher.kill_at = self.crasher.kill_at, None
        answered = self.checks.released(home) if home else set[bytes]()
        strike()
        if home is not None:
            home.open()
            self._check(home)
            for operation in answered & self.checks.held(home):
                self.checks.accepted(home, operation)
        held: set[bytes] = set()
        for other in self.homes:
            held |= self.checks.held(other)
        self.on_relay_only |= self.accepted.keys() - held
        self.lost |= self.accepted.keys() - held - self.on_relay()
        self.crasher.kill_at = armed

    def harm(self, strike: Callable[[], None]) -> None:
        """Harms the relay. The device log may only be harmed while every device has all of it: else two devices could go on
        from different heads, a fork of the log for good, which is named and not healed.
        """
        self.deceived = self.needs.harmed = True
        log = {key: self.store.objects[key] for key in self.store.keys("devlog")}
        self.disaster(None, strike)
        self.outsiders.take_as_put(
            self.store.objects.values()
        )  # damaged bytes too may be put back as they were seen
        known = [home.journal.execute("SELECT count(*) FROM device_log").fetchone() for home in self.homes]
        if any(row is None or row[0] != len(log) for row in known) or any(home.busy for home in self.homes):
            for key in self.store.keys("devlog"):
                del self.store.objects[key]
            self.store.objects.update(log)

    def on_relay(self, device: bytes | None = None, *, held: bool = False) -> set[bytes]:
        """The operations on the relay. With ``device`` only those of its streams that count although it was revoked, or
        (``held``) those that do not."""
        info = self.outsiders.truth.member(device) if device else None
        found: set[bytes] = set()
        for data in self.store.objects.values():
            try:
                entry = parse(data)
                place = (entry.header.incarnation, entry.header.sequence)
                counts = info is None or (
                    info.revoked is not None
                    and info.revoked.counts(*place) is not held
                    and entry.header.sender == device
                )
                if entry.header.kind is Kind.OFFER and counts:
                    found.add(sha256(open_offer(entry, self.generations.of(entry)).data).digest())
                elif entry.header.kind is Kind.BATCH and info is None:
                    found |= self.checks.histories.operations_in(data)
            except (CryptoError, Violation):
                continue
        return found

    # The end.

    def agree(self, *, newcomer: bool = True) -> int:
        """Stops all faults and syncs until all devices are equal. Returns the rounds that took. Raises Violation (P10).

        With `newcomer` a device joins last and has to reach the same state from the relay alone.
        """
        try:
            self.rounds_to_agree = ending.agree(self, newcomer=newcomer)
        finally:
            note_world(self)
        return self.rounds_to_agree

    @property
    def trace_hash(self) -> str:
        """Names the whole run: the same seed gives the same (P12)."""
        return hash_of(self.trace)

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
