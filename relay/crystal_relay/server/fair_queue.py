"""A queue in front of a resource that many vaults share: start-time fair queueing with a depth, SFQ(D).

Each flow (a vault) has a virtual time, which grows by the cost of what it was given. The flow that is furthest behind is served
next, so backlogged flows get equal shares of the work, whatever the number of their requests. A flow that was idle begins a
little behind the present virtual time, by its `credit`: so it is next, before those that always have something, until it has
used that up. It saves up no more. At most `at_once` requests run, of one flow at most `of_flow_at_once`; the last `reserve`
places are for flows that have credit left, so that these need not even wait for what runs. What a request costs may be
corrected at its end. Within a flow, requests that are `ahead` come before the others; they take nothing from other flows.

P. Goyal, H. Vin, H. Cheng, "Start-time fair queueing", 1996; W. Jin, J. Chase, J. Kaur, "Interposed proportional sharing for a
storage service utility", 2004. Pure: no clock, no tasks, no I/O.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Generic, TypeVar

UNLIMITED = 1 << 30
_PRUNE_MIN = 1024

Item = TypeVar("Item")


@dataclass(slots=True)
class _Flow(Generic[Item]):
    name: str
    due: float
    """Virtual time at which the next request starts."""
    weight: float
    running: int = 0
    ahead: deque[tuple[float, Item]] = field(default_factory=deque[tuple[float, Item]])
    """Costs and items, served before `behind`."""
    behind: deque[tuple[float, Item]] = field(default_factory=deque[tuple[float, Item]])
    listed: bool = False
    """Whether it stands in the heap: something waits, and may run."""

    @property
    def waiting(self) -> bool:
        """Whether anything waits."""
        return bool(self.ahead or self.behind)


class FairQueue(Generic[Item]):
    """Requests that run, and those that wait for it. Each that was started needs an `end`."""

    def __init__(
        self,
        *,
        at_once: int = UNLIMITED,
        of_flow_at_once: int = UNLIMITED,
        reserve: int = 0,
        credit: float = 0.0,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        """`credit`: the cost by which a flow that was idle may be ahead of its share.

        `weights`: the share of flows by name; 1 for all others.
        """
        assert at_once >= 1, "nothing could ever run"
        assert of_flow_at_once >= 1, "no flow could ever run"
        assert 0 <= reserve < at_once, "who has used up its credit could never run"
        self._at_once = at_once
        self._of_flow_at_once = of_flow_at_once
        self._open_to_all = at_once - reserve
        self._credit = credit
        self._weights = weights or {}
        self._flows: dict[str, _Flow[Item]] = {}
        self._heap: list[tuple[float, int, _Flow[Item]]] = []
        self._now = 0.0
        """Virtual time: the start of the request that was started last."""
        self._number = 0
        self._prune_at = _PRUNE_MIN
        self._spare: _Flow[Item] | None = None
        """A flow that was dropped, to be used again for the next one."""
        self.running = 0
        self.waiting = 0

    def __len__(self) -> int:
        """Number of flows that it remembers."""
        return len(self._flows)

    def waiting_of(self, flow: str, *, ahead: bool = False) -> int:
        """Number of waiting requests of a flow: of those that are ahead of the others, or of the others."""
        found = self._flows.get(flow)
        return 0 if found is None else len(found.ahead if ahead else found.behind)

    def start(self, flow: str, cost: float) -> bool:
        """Start a request at once if nothing is before it. False: `add` it.

        Call `take` until it returns None after each `end`, so that nothing waits while it could run."""
        if self.running >= self._at_once:
            return False
        found = self._flows.get(flow) or self._new(flow)
        if found.ahead or found.behind or found.running >= self._of_flow_at_once:
            return False
        due = max(found.due, self._now - self._credit)
        if not self._has_place(due):
            return False
        found.due = due
        self._begin(found, cost)
        return True

    def add(self, flow: str, cost: float, item: Item, *, ahead: bool = False) -> None:
        """Let a request wait. `take` returns the item when it is started. `ahead`: before its flow's others."""
        found = self._flows.get(flow) or self._new(flow)
        (found.ahead if ahead else found.behind).append((cost, item))
        self.waiting += 1
        self._list(found)

    def withdraw(self, flow: str, item: Item) -> bool:
        """Forget a request that waits; its flow is not charged for it. False: it was started already."""
        found = self._flows[flow]
        for line in (found.ahead, found.behind):
            for at, (_, waiting) in enumerate(line):
                if waiting is item:
                    del line[at]
                    self.waiting -= 1
                    self._drop_if_idle(found)
                    return True
        return False

    def take(self) -> Item | None:
        """Start the waiting request whose turn it is. None if none may run now."""
        while self._heap and self._has_place(self._heap[0][0]):
            due, _, found = heappop(self._heap)
            found.listed = False
            if due < found.due:  # charged since it was listed
                self._list(found)
                continue
            if not found.waiting:  # all were withdrawn
                self._drop_if_idle(found)
                continue
            cost, item = (found.ahead or found.behind).popleft()
            self.waiting -= 1
            self._begin(found, cost)
            self._list(found)
            return item
        return None

    def end(self, flow: str, *, extra: float = 0.0) -> None:
        """End a started request. `extra`: what it cost beyond what was said at its start."""
        found = self._flows[flow]
        found.running -= 1
        self.running -= 1
        found.due += extra / found.weight
        if self.waiting:
            self._list(found)
        self._drop_if_idle(found)

    # --- inside ---

    def _new(self, name: str) -> _Flow[Item]:
        made, self._spare = self._spare, None
        if made is None:
            made = _Flow[Item](name, 0.0, 1.0)
        made.name, made.weight = name, self._weights.get(name, 1.0)
        made.due = self._now - self._credit
        self._flows[name] = made
        if len(self._flows) > self._prune_at:
            for flow in tuple(self._flows.values()):
                if flow is not made:
                    self._drop_if_idle(flow)
            self._prune_at = max(_PRUNE_MIN, 2 * len(self._flows))
        return made

    def _has_place(self, due: float) -> bool:
        """Whether a flow of which that is due may run one more."""
        return self.running < (self._at_once if due < self._now else self._open_to_all)

    def _begin(self, flow: _Flow[Item], cost: float) -> None:
        self._now = max(self._now, flow.due)
        flow.due += cost / flow.weight
        flow.running += 1
        self.running += 1

    def _list(self, flow: _Flow[Item]) -> None:
        """Put a flow into the heap if it has something that may run."""
        if flow.listed or not flow.waiting or flow.running >= self._of_flow_at_once:
            return
        # It may have been idle, or held back by its own limit.
        flow.due = max(flow.due, self._now - self._credit)
        self._number += 1
        flow.listed = True
        heappush(self._heap, (flow.due, self._number, flow))

    def _drop_if_idle(self, flow: _Flow[Item]) -> None:
        """Forget a flow that has nothing here and owes nothing. While nothing waits, nobody owes anything."""
        if not self.running and not self.waiting:
            self._flows.clear()
            self._heap.clear()
            flow.listed = False
            self._spare = flow
            self._now = 0.0
            self._prune_at = _PRUNE_MIN
        elif not (flow.running or flow.waiting or flow.listed) and (
            flow.due <= self._now - self._credit or not self.waiting
        ):
            del self._flows[flow.name]
            self._spare = flow
