"""Waiting over several processes: against a model that remembers every write, tokens are good everywhere, nothing that
was heard of is missed, and a client that goes round between the processes comes to rest."""

import asyncio
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from crystal_relay.limits import WAIT_TOKEN_CHARS_MAX, WAIT_TOKEN_ORIGINS_MAX
from crystal_relay.notify import Notifier

PROCESSES = 3
keys = st.sampled_from([f"v/{vault}/{channel}/{name}" for vault in "ab" for channel in "xy" for name in "12"])
prefixes = st.sampled_from(
    ["", "v", "v/", "v/a", "v/a/", "v/b/", "v/a/x", "v/a/x/", "v/a/x/1", "v/b/y/2", "w/"]
)
process = st.integers(0, PROCESSES - 1)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), process, keys),
        st.tuples(st.just("push"), process, process),
        st.tuples(st.just("lose"), process, process),
        st.tuples(st.just("token"), process, prefixes),
        st.tuples(st.just("ask"), process, prefixes),
    ),
    max_size=60,
)


@dataclass
class Process:
    """A notifier, what it wrote, and how much of that each other one was told, or will never be told."""

    notifier: Notifier
    written: list[str] = field(default_factory=list[str])
    pending: dict[str, tuple[int, dict[str, int]]] = field(
        default_factory=dict[str, tuple[int, dict[str, int]]]
    )
    known: dict[str, int] = field(default_factory=dict[str, int])
    """How many writes of each other process it was told of, or knows to have missed."""

    def __post_init__(self) -> None:
        self.notifier.on_written = self._note

    def _note(self, group: str, number: int) -> None:
        for _, groups in self.pending.values():
            groups[group] = number

    def push(self, other: "Process") -> None:
        first, groups = self.pending[other.notifier.name]
        last = self.notifier.number
        missed = other.notifier.heard(self.notifier.name, first, last, list(groups.items()))
        assert missed == (first > other.known[self.notifier.name] + 1)
        self.pending[other.notifier.name] = (last + 1, {})
        other.known[self.notifier.name] = last

    def lose(self, other: "Process") -> None:
        self.pending[other.notifier.name] = (self.notifier.number + 1, {})


def fleet(groups_max: int) -> list[Process]:
    processes = [
        Process(Notifier(name=f"{number:016x}", groups_max=groups_max, heard_groups_max=groups_max))
        for number in range(PROCESSES)
    ]
    for one in processes:
        for other in processes:
            if one is not other:
                one.pending[other.notifier.name] = (1, {})
                one.known[other.notifier.name] = 0
    return processes


@given(steps, st.integers(1, 8))
@settings(deadline=None)
def test_no_write_that_was_heard_of_is_missed_wherever_the_token_is_from(
    steps: list[tuple[str, int, str | int]], groups_max: int
) -> None:
    asyncio.run(_play(steps, groups_max))


async def _play(steps: list[tuple[str, int, str | int]], groups_max: int) -> None:
    processes = fleet(groups_max)
    tokens: list[tuple[str, list[int]]] = []
    for step, at, what in steps:
        here = processes[at]
        if isinstance(what, int):
            if what != at:
                (here.push if step == "push" else here.lose)(processes[what])
        elif step == "write":
            here.notifier.written(what)
            here.written.append(what)
        elif step == "token":
            tokens.append((await here.notifier.wait(what, None, 0), _seen(processes, here)))
        else:
            for token, seen in tokens:
                fresh = await here.notifier.wait(what, token, 0)
                known = _seen(processes, here)
                missed = any(
                    key.startswith(what)
                    for number, origin in enumerate(processes)
                    for key in origin.written[seen[number] : known[number]]
                )
                assert fresh != token or not missed, f"a write under {what!r} was missed"
                assert await here.notifier.wait(what, fresh, 0) == fresh, "woken again for nothing"
    await _comes_to_rest(processes, tokens)


def _seen(processes: list[Process], here: Process) -> list[int]:
    """How many writes of each process the token of this one covers: no more than it knows of."""
    return [
        len(origin.written) if origin is here else here.known[origin.notifier.name] for origin in processes
    ]


async def _comes_to_rest(processes: list[Process], tokens: list[tuple[str, list[int]]]) -> None:
    """Nothing is written any more. A client that is sent elsewhere each time is woken a few times at most."""
    for presented, _ in tokens:
        token, woken = presented, 0
        for turn in range(6 * PROCESSES):
            fresh = await processes[turn % PROCESSES].notifier.wait("v/", token, 0)
            woken += fresh != token
            token = fresh
        assert woken <= PROCESSES
        assert len(token) <= WAIT_TOKEN_CHARS_MAX


def pair() -> tuple[Notifier, Notifier]:
    one, other = Notifier(), Notifier()
    assert not one.heard(other.name, 1, 0, [])
    assert not other.heard(one.name, 1, 0, [])
    return one, other


async def test_a_sleeper_is_woken_by_what_another_process_wrote() -> None:
    one, other = pair()
    token = await one.wait("", None, 0)
    prefixes = ["v/a/", "v/a/x/", "v/a/x/1", "v/a", "v", ""]
    asleep = ["v/b/", "v/a/y/", "w/"]
    waits = {prefix: asyncio.create_task(other.wait(prefix, token, 5)) for prefix in prefixes + asleep}
    await asyncio.sleep(0)
    assert other.waiting == len(waits)
    one.written("v/a/x/1")
    assert not other.heard(one.name, 1, 1, [("v/a/x/", 1)])
    fresh = await asyncio.wait_for(asyncio.gather(*(waits[prefix] for prefix in prefixes)), 4)
    assert token not in fresh
    assert not any(waits[prefix].done() for prefix in asleep)
    assert await one.wait("v/a/", fresh[0], 0) == fresh[0], "woken again where it was written"
    for prefix in asleep:
        waits[prefix].cancel()
    await asyncio.gather(*waits.values(), return_exceptions=True)
    assert other.waiting == 0


async def test_what_the_token_knows_already_does_not_end_the_sleep() -> None:
    """The client was woken where it was written, and waits elsewhere before the news has come there."""
    one, other = pair()
    one.written("v/a/x/1")
    token = await one.wait("v/a/", None, 0)
    wait = asyncio.create_task(other.wait("v/a/", token, 5))
    await asyncio.sleep(0)
    other.heard(one.name, 1, 1, [("v/a/x/", 1)])
    await asyncio.sleep(0.01)
    assert not wait.done()
    other.heard(one.name, 2, 2, [("v/a/x/", 2)])
    assert await asyncio.wait_for(wait, 4) != token


async def test_numbers_that_were_skipped_wake_everybody_once() -> None:
    one, other = pair()
    token = await other.wait("v/a/", None, 0)
    waits = [asyncio.create_task(other.wait(prefix, token, 5)) for prefix in ("v/a/", "v/b/x/1", "w/")]
    await asyncio.sleep(0)
    assert other.heard(one.name, 6, 7, [("v/c/x/", 7)])
    fresh = await asyncio.wait_for(asyncio.gather(*waits), 4)
    assert token not in fresh
    for prefix in ("v/a/", "v/b/x/1", "w/", ""):
        assert await other.wait(prefix, fresh[0], 0) == fresh[0]


async def test_what_is_heard_twice_counts_once() -> None:
    one, other = pair()
    other.heard(one.name, 1, 3, [("v/a/x/", 3)])
    token = await other.wait("v/a/", None, 0)
    wait = asyncio.create_task(other.wait("v/a/", token, 5))
    await asyncio.sleep(0)
    for first, last, groups in (
        (1, 3, [("v/a/x/", 3)]),
        (2, 2, [("v/a/x/", 2)]),
        (1, 0, []),
        (4, 3, []),
        (1, 3, [("v/a/x/", 9)]),
    ):
        assert not other.heard(one.name, first, last, groups)
    await asyncio.sleep(0.01)
    assert not wait.done()
    assert await other.wait("v/a/", token, 0) == token
    assert not other.heard(one.name, 2, 4, [("v/a/x/", 4)])
    assert await asyncio.wait_for(wait, 4) != token


async def test_all_end_when_anything_may_have_been_written() -> None:
    notifier = Notifier()
    token = await notifier.wait("", None, 0)
    waits = [asyncio.create_task(notifier.wait(prefix, token, 5)) for prefix in ("", "v/a/", "v/a/x/1")]
    await asyncio.sleep(0)
    notifier.everything_written()
    fresh = await asyncio.wait_for(asyncio.gather(*waits), 4)
    assert token not in fresh
    assert await notifier.wait("v/a/", fresh[1], 0) == fresh[1]


async def test_a_process_that_was_forgotten_wakes_nobody_and_stays_in_the_token() -> None:
    one, other = pair()
    other.heard(one.name, 1, 1, [("v/a/x/", 1)])
    token = await other.wait("v/a/", None, 0)
    assert f"{one.name}-1" in token
    other.forget(one.name)
    assert await other.wait("v/a/", token, 0) == token
    other.written("v/a/x/2")
    assert f"{one.name}-1" in await other.wait("v/a/", token, 0)


async def test_tokens_stay_within_their_limit_however_many_processes_there_were() -> None:
    notifier = Notifier()
    token = ""
    for number in range(100):
        notifier.heard(f"{number:016x}", 1, 10**17, [("v/a/x/", 10**17)])
        token = await notifier.wait("v/a/", token, 0)
        assert len(token) <= WAIT_TOKEN_CHARS_MAX
    assert token.count("-") == WAIT_TOKEN_ORIGINS_MAX
    assert token.startswith(notifier.name)
    elsewhere = Notifier()
    fresh = await elsewhere.wait("v/a/", token, 0)
    assert fresh.count("-") == WAIT_TOKEN_ORIGINS_MAX
    assert await elsewhere.wait("v/a/", fresh, 0) == fresh


async def test_a_token_that_names_a_process_twice_or_in_an_odd_way_is_answered_at_once() -> None:
    notifier = Notifier()
    token = await notifier.wait("", None, 0)
    for odd in (
        f"{token}.{token}",
        f"{token}.",
        f".{token}",
        f"{token}.x-1",
        f"{token}.{'A' * 16}-1",
        token * 2,
    ):
        assert await notifier.wait("", odd, 5) == token
    many = ".".join([token, *(f"{number:016x}-1" for number in range(WAIT_TOKEN_ORIGINS_MAX))])
    assert await notifier.wait("", many, 5) == token
