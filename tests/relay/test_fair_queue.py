"""Who is served next: shares of the work, limits at once, and what is remembered. Without a clock."""

from collections import Counter
from random import Random

import pytest

from crystal_relay.server.fair_queue import FairQueue


def served(queue: FairQueue[str], count: int, *, cost_of: dict[str, float] | None = None) -> list[str]:
    """The flows of the next so many requests, each ended before the next is taken."""
    order: list[str] = []
    for _ in range(count):
        flow = queue.take()
        if flow is None:
            break
        order.append(flow)
        queue.end(flow, extra=(cost_of or {}).get(flow, 0.0))
    return order


def blocked() -> FairQueue[str]:
    """A queue of one at a time, in which something runs: end "first" to let others run."""
    queue = FairQueue[str](at_once=1)
    assert queue.start("first", 1)
    return queue


def test_what_fits_starts_at_once_and_the_rest_waits() -> None:
    queue = FairQueue[str](at_once=2)
    assert queue.start("a", 1)
    assert queue.start("b", 1)
    assert not queue.start("c", 1)
    queue.add("c", 1, "c")
    assert (queue.running, queue.waiting, queue.waiting_of("c"), queue.take()) == (2, 1, 1, None)
    queue.end("a")
    assert queue.take() == "c"
    assert (queue.running, queue.waiting) == (2, 0)


def test_flows_are_served_in_turn_whatever_the_number_of_their_requests() -> None:
    queue = blocked()
    for _ in range(100):
        queue.add("greedy", 1, "greedy")
    for _ in range(3):
        queue.add("modest", 1, "modest")
    queue.end("first")
    order = served(queue, 8)
    assert Counter(order[:6]) == {"greedy": 3, "modest": 3}
    assert order[6:] == ["greedy", "greedy"]


def test_a_newcomer_waits_for_no_backlog() -> None:
    queue = blocked()
    greedy = [f"greedy {number}" for number in range(10)]
    for flow in greedy * 50:
        queue.add(flow, 1, flow)
    queue.end("first")
    assert Counter(served(queue, 100)) == dict.fromkeys(greedy, 10)
    queue.add("modest", 1, "modest")
    assert "modest" in served(queue, 11)


def test_who_was_idle_has_saved_nothing_up() -> None:
    queue = blocked()
    for _ in range(200):
        queue.add("a", 1, "a")
    queue.end("first")
    served(queue, 100)
    for _ in range(100):
        queue.add("b", 1, "b")
    assert Counter(served(queue, 40)) == {"a": 20, "b": 20}


def test_who_was_idle_is_next_until_its_credit_is_used_up() -> None:
    queue = FairQueue[str](at_once=1, credit=3)
    assert queue.start("first", 1)
    greedy = [f"greedy {number}" for number in range(10)]
    for flow in greedy * 50:
        queue.add(flow, 1, flow)
    queue.end("first")
    served(queue, 100)
    for _ in range(50):
        queue.add("was idle", 1, "was idle")
    order = served(queue, 3 + 11 * 10)
    assert order[:3] == ["was idle"] * 3
    assert order.count("was idle") == pytest.approx(13, abs=1), "no more than its share besides"


def test_a_modest_flow_is_always_next() -> None:
    """One that asks for less than its share, again and again: it is never behind more than what runs."""
    queue = FairQueue[str](at_once=1, credit=2)
    assert queue.start("first", 1)
    greedy = [f"greedy {number}" for number in range(10)]
    for flow in greedy * 200:
        queue.add(flow, 1, flow)
    queue.end("first")
    served(queue, 50)
    for _ in range(50):
        queue.add("modest", 1, "modest")
        order = served(queue, 20)
        assert order[0] == "modest"


def test_the_last_places_are_for_those_who_have_credit() -> None:
    queue = FairQueue[str](at_once=4, reserve=1, credit=2)
    for flow in ("a", "b", "a", "b", "a", "b"):
        if not queue.start(flow, 1):
            queue.add(flow, 1, flow)
    for _ in range(20):
        queue.add("a", 1, "a")
        queue.add("b", 1, "b")
    for _ in range(5):  # by now nothing is left of their credit
        queue.end("a")
        while queue.take() is not None:
            pass
        queue.end("b")
        while queue.take() is not None:
            pass
    assert queue.running == 3
    assert queue.start("c", 1), "it need not wait for what runs"
    assert not queue.start("d", 1), "all places are taken"
    queue.add("d", 1, "d")
    queue.end("c")
    assert queue.take() == "d"
    assert queue.take() is None


def test_credit_does_not_grow_by_coming_and_going() -> None:
    """A flow that is idle for a moment after each request gets its share, and its credit once."""
    queue = FairQueue[str](at_once=1, credit=5)
    assert queue.start("first", 1)
    for flow in ["a", "b"] * 500:
        queue.add(flow, 1, flow)
    queue.end("first")
    served(queue, 20)
    order: list[str] = []
    for _ in range(300):
        if not queue.waiting_of("comes and goes"):
            queue.add("comes and goes", 1, "comes and goes")
        order += served(queue, 1)
    assert order.count("comes and goes") == pytest.approx(105, abs=5)


def test_work_counts_not_requests() -> None:
    queue = blocked()
    for _ in range(100):
        queue.add("large", 4, "large")
        queue.add("small", 1, "small")
    queue.end("first")
    order = Counter(served(queue, 50))
    assert order == {"small": 40, "large": 10}


def test_a_cost_that_shows_at_the_end_is_charged() -> None:
    queue = blocked()
    for _ in range(100):
        queue.add("reads much", 1, "reads much")
        queue.add("reads little", 1, "reads little")
    queue.end("first")
    order = Counter(served(queue, 50, cost_of={"reads much": 3.0}))
    assert order["reads little"] == pytest.approx(40, abs=1)


def test_a_weight_is_a_share() -> None:
    queue = FairQueue[str](at_once=1, weights={"heavy": 4.0})
    assert queue.start("first", 1)
    for _ in range(100):
        queue.add("heavy", 1, "heavy")
        queue.add("light", 1, "light")
    queue.end("first")
    assert Counter(served(queue, 50)) == {"heavy": 40, "light": 10}


def test_no_flow_runs_more_at_once_than_it_may() -> None:
    queue = FairQueue[str](at_once=4, of_flow_at_once=2)
    assert queue.start("a", 1)
    assert queue.start("a", 1)
    assert not queue.start("a", 1), "though two places are free"
    for _ in range(10):
        queue.add("a", 1, "a")
    assert queue.take() is None
    assert queue.start("b", 1)
    queue.end("a")
    assert queue.take() == "a"
    assert queue.take() is None


def test_who_was_held_back_by_its_own_limit_does_not_catch_up_at_the_cost_of_others() -> None:
    queue = FairQueue[str](at_once=2, of_flow_at_once=1)
    assert queue.start("slow", 1)
    assert queue.start("a", 1)
    for _ in range(100):
        for flow in ("slow", "a", "b"):
            queue.add(flow, 1, flow)
    # The one request of "slow" lasts, while the other place serves the others.
    queue.end("a")
    for _ in range(60):
        taken = queue.take()
        assert taken in ("a", "b")
        queue.end(taken)
    queue.end("slow")
    order: list[str] = []
    for _ in range(30):
        running = [flow for flow in (queue.take(), queue.take()) if flow]
        order += running
        for flow in running:
            queue.end(flow)
    assert Counter(order) == {"slow": 20, "a": 20, "b": 20}


def test_what_is_ahead_comes_before_its_own_flow_and_takes_nothing_from_others() -> None:
    queue = blocked()
    for number in range(3):
        queue.add("a", 1, f"a{number}")
    queue.add("b", 1, "b0")
    for number in range(2):
        queue.add("a", 1, f"a-ahead{number}", ahead=True)
    assert (queue.waiting_of("a"), queue.waiting_of("a", ahead=True)) == (3, 2)
    queue.end("first")
    order: list[str] = []
    while (item := queue.take()) is not None:
        order.append(item)
        queue.end(item[0])
    assert order == ["a-ahead0", "b0", "a-ahead1", "a0", "a1", "a2"]


def test_what_is_withdrawn_is_neither_served_nor_charged() -> None:
    queue = FairQueue[tuple[str, int]](at_once=1)
    assert queue.start("first", 1)
    items = [("a", number) for number in range(4)]
    for item in items:
        queue.add("a", 1, item)
    queue.add("b", 1, ("b", 0))
    queue.withdraw("a", items[0])
    queue.withdraw("a", items[2])
    assert queue.waiting == 3
    queue.end("first")
    order: list[tuple[str, int]] = []
    while (taken := queue.take()) is not None:
        order.append(taken)
        queue.end(taken[0])
    assert [item for item in order if item[0] == "a"] == [items[1], items[3]]
    assert ("b", 0) in order[:2]


def test_a_flow_whose_requests_were_all_withdrawn_holds_up_nobody() -> None:
    queue = blocked()
    queue.add("gone", 1, "gone")
    queue.withdraw("gone", "gone")
    queue.add("b", 1, "b")
    queue.end("first")
    assert queue.take() == "b"
    queue.end("b")
    assert (len(queue), queue.running, queue.waiting) == (0, 0, 0)


def test_flows_that_are_idle_are_forgotten() -> None:
    queue = FairQueue[str](at_once=8)
    assert queue.start("stays", 1)
    for number in range(100_000):
        assert queue.start(f"flow {number}", 1)
        queue.end(f"flow {number}")
    assert len(queue) < 3_000
    queue.end("stays")
    assert len(queue) == 0


@pytest.mark.parametrize("seed", range(20))
def test_whatever_comes_nothing_is_lost_and_no_limit_is_passed(seed: int) -> None:
    random = Random(seed)
    at_once, of_flow = random.randint(1, 5), random.randint(1, 3)
    reserve = random.randrange(at_once)
    queue = FairQueue[tuple[str, int]](
        at_once=at_once, of_flow_at_once=of_flow, reserve=reserve, credit=3, weights={"0": 3.0}
    )
    running: list[tuple[str, int]] = []
    waiting: list[tuple[str, int]] = []
    began: set[tuple[str, int]] = set()

    def check() -> None:
        assert (queue.running, queue.waiting) == (len(running), len(waiting))
        count = Counter(flow for flow, _ in running)
        assert len(running) <= at_once
        assert all(each <= of_flow for each in count.values())
        may_run = any(count[flow] < of_flow for flow, _ in waiting)
        assert not (may_run and len(running) < at_once - reserve), (
            "a place is free, and somebody waits for it"
        )

    def end() -> None:
        item = running.pop(random.randrange(len(running)))
        queue.end(item[0], extra=random.choice((0, 0, 5)))
        while (taken := queue.take()) is not None:
            waiting.remove(taken)
            running.append(taken)
            began.add(taken)

    for number in range(2_000):
        action = random.random()
        if action < 0.5:
            item = (str(random.randrange(6)), number)
            cost = random.choice((1, 2, 30))
            if queue.start(item[0], cost):
                running.append(item)
                began.add(item)
            else:
                queue.add(item[0], cost, item, ahead=random.random() < 0.2)
                waiting.append(item)
        elif action < 0.9 and running:
            end()
        elif waiting:
            item = waiting.pop(random.randrange(len(waiting)))
            queue.withdraw(item[0], item)
        check()
    while running:
        end()
        check()
    assert not waiting
    assert len(queue) == 0
