"""Random histories: the replica against a model in plain dictionaries, and two replicas against each other.

After every step the running digest must be what a full scan gives, the indexes must be sound, and the rows must be the
model's. Provisional rows are made and dropped along the way and may change nothing of that. Transactions fail half way.
"""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from crystal_core.state.vectors import float16_vectors
from crystal_mirror.operations import Capture, Forget, Operation, Remember
from crystal_mirror.types import Origin
from tests.core.builders import (
    DEVICE,
    INCARNATION,
    OTHER_DEVICE,
    capture,
    content_hash,
    forget,
    keyword_rowids,
    new_replica,
    remember,
    target,
    vector,
    windows,
)

WORDS = ("amber", "birch", "cedar", "dune", "ember", "fjord")
texts_of = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3)


def captured(texts: list[str], session: str, agent: str) -> Operation:
    return capture(*texts, session=session, agent=agent)


def forgotten(texts: list[str]) -> Operation:
    return forget(*texts)


operations = st.one_of(
    st.builds(captured, texts_of, st.sampled_from("xyz"), st.sampled_from(["one", "two"])),
    st.builds(remember, st.sampled_from(WORDS), st.sampled_from(["fact", "event"])),
    st.builds(forgotten, texts_of),
)
origins = st.builds(
    Origin,
    st.sampled_from([DEVICE, OTHER_DEVICE]),
    st.just(INCARNATION),
    st.integers(min_value=0, max_value=12),
)


@dataclass
class Model:
    """What the replicated state should be."""

    chunks: dict[str, list[bytes]] = field(default_factory=dict[str, list[bytes]])
    places: dict[str, set[tuple[str, str, int]]] = field(default_factory=dict[str, set[tuple[str, str, int]]])
    memories: dict[str, str] = field(default_factory=dict[str, str])
    suppressed: set[bytes] = field(default_factory=set[bytes])
    done: set[Origin] = field(default_factory=set[Origin])

    def apply(self, operation: Operation) -> None:
        match operation:
            case Capture():
                for piece in operation.pieces:
                    if target(piece.text) not in self.suppressed:
                        self.chunks.setdefault(piece.text, windows(piece.text))
                        place = (operation.agent, operation.session, piece.part)
                        self.places.setdefault(piece.text, set()).add(place)
            case Remember():
                self.suppressed.discard(target(operation.text))
                self.chunks.setdefault(operation.text, windows(operation.text))
                self.memories[operation.text] = operation.category
            case Forget():
                self.suppressed.update(operation.targets)
                for text in [text for text in self.chunks if target(text) in operation.targets]:
                    del self.chunks[text]
                    self.places.pop(text, None)
                    self.memories.pop(text, None)
            case _:
                raise AssertionError("files, memories that change and documents have histories of their own")


class Histories(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.replica = new_replica()
        self.twin = new_replica()
        self.model = Model()

    @rule(batch=st.lists(st.tuples(origins, operations), min_size=1, max_size=4))
    def apply(self, batch: list[tuple[Origin, Operation]]) -> None:
        for replica in (self.replica, self.twin):
            with replica.transaction() as transaction:
                for origin, operation in batch:
                    transaction.apply(origin, operation, windows)
                    transaction.mark_done(origin)
        for origin, operation in batch:
            self.model.apply(operation)
            self.model.done.add(origin)

    @rule(batch=st.lists(st.tuples(origins, operations), min_size=1, max_size=4), wipe=st.booleans())
    def fail_half_way(self, batch: list[tuple[Origin, Operation]], wipe: bool) -> None:
        before = self.replica.digest()
        try:
            with self.replica.transaction() as transaction:
                for origin, operation in batch:
                    transaction.apply(origin, operation, windows)
                    transaction.mark_done(origin)
                if wipe:
                    transaction.wipe()
                raise LookupError
        except LookupError:
            assert self.replica.digest() == before

    @rule(origin=origins, operation=operations)
    def index_provisional(self, origin: Origin, operation: Operation) -> None:
        self.replica.index_provisional(origin, operation)

    @rule(origin=origins)
    def drop_provisional(self, origin: Origin) -> None:
        self.replica.drop_provisional(origin)

    @rule(text=st.sampled_from(WORDS), count=st.integers(0, 2))
    def embed_anew(self, text: str, count: int) -> None:
        anew = [vector(text, 9 + number) for number in range(count)]
        for replica in (self.replica, self.twin):
            with replica.transaction() as transaction:
                transaction.embed_anew(content_hash(text), anew)
        if text in self.model.chunks:
            self.model.chunks[text] = anew

    @rule()
    def drop_vectors(self) -> None:
        for replica in (self.replica, self.twin):
            with replica.transaction() as transaction:
                transaction.drop_vectors()
        self.model.chunks = {text: [] for text in self.model.chunks}

    @rule()
    def restore_the_twin_from_a_snapshot(self) -> None:
        self.twin = new_replica()
        with self.replica.export() as moment, self.twin.transaction() as transaction:
            for part in moment.parts():
                transaction.load(part)

    @rule()
    def wipe(self) -> None:
        """The twin is not wiped but made anew: both must come to the same."""
        with self.replica.transaction() as transaction:
            transaction.wipe()
        self.twin = new_replica()
        self.model = Model()

    @rule()
    def move_to_another_connection(self) -> None:
        self.replica = self.replica.clone()

    @invariant()
    def digests_agree(self) -> None:
        assert self.replica.digest() == self.replica.recompute_digest() == self.twin.digest()

    @invariant()
    def rows_are_the_models(self) -> None:
        database = self.replica.database
        chunks = {
            text: float16_vectors(database, rowid)
            for rowid, text in database.rows("SELECT rowid, text FROM chunks WHERE provisional = 0")
        }
        assert chunks == self.model.chunks
        lacking = {text for text, vectors in chunks.items() if not vectors}
        assert {text for _, text in self.replica.without_vectors(99)} == lacking
        places: dict[str, set[tuple[str, str, int]]] = {}
        for text, *place in database.rows(
            "SELECT c.text, o.agent, o.session, o.part FROM occurrences o JOIN chunks c ON c.rowid = o.chunk"
        ):
            places.setdefault(text, set()).add((place[0], place[1], place[2]))
        assert places == self.model.places
        memories = database.rows(
            "SELECT c.text, m.category FROM memories m JOIN chunks c ON c.rowid = m.chunk"
        )
        assert dict(tuple[str, str](row) for row in memories) == self.model.memories
        assert {
            row[0] for row in database.rows("SELECT forget_hash FROM suppressed")
        } == self.model.suppressed

    @invariant()
    def acks_are_the_operations_done(self) -> None:
        for device in (DEVICE, OTHER_DEVICE):
            numbers = {origin.sequence for origin in self.model.done if origin.device == device}
            ack = self.replica.ack(device, INCARNATION)
            assert ack + 1 not in numbers
            assert set(range(ack + 1)) <= numbers
            for sequence in range(13):
                assert self.replica.done(Origin(device, INCARNATION, sequence)) == (sequence in numbers)

    @invariant()
    def indexes_are_sound(self) -> None:
        database = self.replica.database
        assert database.check() == []
        assert database.value("SELECT deferred FROM index_state") == 0
        for word in WORDS:
            known = [row[0] for row in database.rows("SELECT rowid FROM chunks WHERE text = ?", (word,))]
            assert keyword_rowids(database, word) == known
        lone = "SELECT count(*) FROM chunks WHERE provisional AND rowid NOT IN (SELECT chunk FROM provisional_places)"
        assert database.value(lone) == 0

    @invariant()
    def ids_are_the_texts_hashes(self) -> None:
        for content, text in self.replica.database.rows("SELECT id, text FROM chunks"):
            assert content == content_hash(text)


Histories.TestCase.settings = settings(max_examples=80, stateful_step_count=25, deadline=None)
TestHistories = Histories.TestCase
