"""The conversations: a year of sessions in all projects, made from a seed.

Each project gets some of the stories. A story becomes a thread: told once, asked again, changed to another value, or come back
with another cause. Its events are dealt to the project's sessions, between ordinary work and chatter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from random import Random

from bench.quality.coding.episodes import Kind, Said, Slots, Writer, plural
from bench.quality.coding.world import (
    COLUMNS,
    DATES,
    PEOPLE,
    Class,
    Part,
    Project,
    Story,
    Task,
    World,
    read_world,
)
from bench.quality.sets import DAY, NOW

SEEDS = {Part.DEV: 20_260, Part.HELD: 71_113}
SESSIONS_A_PROJECT = 21
STORIES_A_PROJECT = 27
YEAR_DAYS = 360
NEAREST_DAYS = 9
"""Days between two events of a thread, at least."""
TALK_SHARE = 0.35
DAYS_AHEAD_MIN, DAYS_AHEAD_MAX = 15, 110
"""How far off the dates are that are told."""
_MINUTE = 60_000
_TRIES_MAX = 50
_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip

Place = tuple[str, str]
"""A session and a message in it."""


@dataclass(frozen=True, slots=True)
class Message:
    id: str
    role: str
    text: str
    created_at: int
    kind: Kind


@dataclass(slots=True)
class Session:
    id: str
    project: Project
    agent: str
    source: str
    """The tool that the conversation was held with."""
    device: int
    began_at: int
    messages: list[Message] = field(default_factory=list[Message])


@dataclass(slots=True)
class Event:
    """One time that a thread comes up. ``value``: which of its values it tells; None where nothing is answered."""

    kind: str
    value: int | None
    session: Session
    places: set[Place] = field(default_factory=set[Place])
    """Where it is answered."""
    by_person: bool = False
    """Whether a person is named who wanted it."""


FIRST, AGAIN, UNANSWERED, CHANGED, RECURRED = "first", "again", "unanswered", "changed", "recurred"
_PLANS: Mapping[str, Mapping[tuple[str, ...], int]] = {
    RECURRED: {(FIRST, RECURRED, RECURRED): 1},
    Class.DECISION: {
        (FIRST,): 6,
        (FIRST, AGAIN): 2,
        (FIRST, UNANSWERED): 3,
        (FIRST, CHANGED): 3,
        (FIRST, CHANGED, AGAIN): 2,
        (FIRST, AGAIN, CHANGED): 1,
        (FIRST, CHANGED, UNANSWERED): 2,
        (FIRST, CHANGED, CHANGED): 1,
    },
    Class.ERROR: {(FIRST,): 8, (FIRST, AGAIN): 2, (FIRST, UNANSWERED): 3, (FIRST, UNANSWERED, AGAIN): 1},
    FIRST: {
        (FIRST,): 8,
        (FIRST, AGAIN): 2,
        (FIRST, UNANSWERED): 3,
        (FIRST, UNANSWERED, AGAIN): 1,
        (FIRST, CHANGED): 2,
    },
}
"""What happens to a thread, by its class, and how often."""


@dataclass(slots=True)
class Thread:
    story: Story
    project: Project
    values: Sequence[Slots]
    events: list[Event]

    def told(self, value: int) -> frozenset[Place]:
        """Where that value is told."""
        return frozenset(place for event in self.events if event.value == value for place in event.places)


@dataclass(frozen=True, slots=True)
class Corpus:
    world: World
    sessions: Sequence[Session]
    threads: Sequence[Thread]
    asked_in_vain: Mapping[str, Sequence[tuple[str, str]]]
    """By project: absent questions that were asked there, and never answered."""


def make_corpus(part: Part, seed: int | None = None) -> Corpus:
    """The set's conversations. The same seed makes the same ones."""
    world = read_world(part)
    random = Random(SEEDS[part] if seed is None else seed)
    sessions: list[Session] = []
    threads: list[Thread] = []
    in_vain: dict[str, Sequence[tuple[str, str]]] = {}
    texts: set[str] = set()
    for project in world.projects:
        own = _sessions(random, project, len(sessions))
        plan = [_thread(random, project, story, own) for story in _dealt(random, world, project)]
        in_vain[project.name] = random.sample(world.absent, 3)
        _told(random, world, own, plan, in_vain[project.name], texts)
        sessions += own
        threads += plan
    return Corpus(world, sessions, threads, in_vain)


def _sessions(random: Random, project: Project, first: int) -> list[Session]:
    """More of them lie in the last months; the last ones in these days."""
    ages = sorted((YEAR_DAYS * random.random() ** 1.3 for _ in range(SESSIONS_A_PROJECT - 3)), reverse=True)
    ages += [random.uniform(12, 20), random.uniform(5, 11), random.uniform(1, 4)]
    ages.sort(reverse=True)
    found: list[Session] = []
    for number, age in enumerate(ages, first):
        day = NOW // DAY * DAY - max(int(age), 1) * DAY
        at = day + random.randint(7 * 60, 17 * 60) * _MINUTE + random.randint(0, 59_999)
        device = random.choices((0, 1, 2), (5, 3, 1))[0]
        source = random.choices(("claude-code", "codex", "gemini", "openclaw"), (6, 2, 1, 1))[0]
        name = f"{random.getrandbits(64):016x}-{number}"
        found.append(Session(name, project, ("main", "main", "assistant")[device], source, device, at))
    return sorted(found, key=lambda session: session.began_at)


def _dealt(random: Random, world: World, project: Project) -> list[Story]:
    """The project's stories: those of its own language all, of the others a choice."""
    fit = [story for story in world.stories if not story.code or project.code in story.code]
    own = [story for story in fit if story.language == project.language != "en"]
    english = [story for story in fit if story.language == "en"]
    return own + random.sample(english, min(len(english) * 2 // 3, STORIES_A_PROJECT - len(own)))


def _thread(random: Random, project: Project, story: Story, sessions: Sequence[Session]) -> Thread:
    plans = _PLANS[RECURRED if story.recurring else story.cls if story.cls in _PLANS else FIRST]
    kinds = random.choices(list(plans), list(plans.values()))[0]
    sessions = _apart(random, sessions, len(kinds))
    told = [one for kind, one in zip(kinds, sessions, strict=True) if kind in (FIRST, CHANGED, RECURRED)]
    values = _values(random, project, story, told)
    events: list[Event] = []
    value = -1
    for kind, session in zip(kinds, sessions, strict=True):
        value += session in told
        events.append(Event(kind, None if kind == UNANSWERED else value, session))
    return Thread(story, project, values, events)


def _apart(random: Random, sessions: Sequence[Session], count: int) -> list[Session]:
    """Sessions in order of time, with some days between them."""
    for _ in range(_TRIES_MAX):
        found = sorted(random.sample(sessions, count), key=lambda session: session.began_at)
        gaps = [after.began_at - before.began_at for before, after in pairwise(found)]
        if all(gap >= NEAREST_DAYS * DAY for gap in gaps):
            return found
    raise ValueError("the sessions lie too close together")


def _values(random: Random, project: Project, story: Story, told: Sequence[Session]) -> list[Slots]:
    """A value for each of the sessions in which one is told first, with the slots that hold for the whole thread."""
    common = slots_of(random, project) | {"topic": story.topic}
    count = len(told)
    drawn: list[dict[str, str]]
    if story.drawn == PEOPLE:
        drawn = [{"v": name} for name in random.sample(project.people, count)]
    elif story.drawn == DATES:
        ahead = random.sample(range(DAYS_AHEAD_MIN, DAYS_AHEAD_MAX), count)
        drawn = [{"v": day_of(one.began_at + days * DAY)} for one, days in zip(told, ahead, strict=True)]
    else:
        drawn = [dict(zip(COLUMNS, value, strict=False)) for value in random.sample(story.values, count)]
    return [
        common | value | ({"old": drawn[number - 1]["v"]} if number else {})
        for number, value in enumerate(drawn)
    ]


def slots_of(random: Random, project: Project) -> dict[str, str]:
    """Words of the project that stay the same in a thread."""
    words = {name: random.choice(choices) for name, choices in project.words.items()}
    words["nouns"] = plural(words["noun"])
    person, other = random.sample(project.people, 2)
    return words | {"person": person, "person2": other}


def _told(
    random: Random,
    world: World,
    sessions: Sequence[Session],
    threads: Sequence[Thread],
    in_vain: Sequence[tuple[str, str]],
    texts: set[str],
) -> None:
    """Fills the sessions. No text that answers occurs twice (``texts``)."""
    events: dict[str, list[tuple[Thread, Event]]] = {}
    for thread in threads:
        for event in thread.events:
            events.setdefault(event.session.id, []).append((thread, event))
    talks = random.sample(world.talks, len(world.talks))
    vain = {random.choice(sessions).id: ask for ask in in_vain}
    for session in sessions:
        writer = Writer(world, random, session.project, thinks=session.source in ("claude-code", "codex"))
        clock = _Clock(random, session)
        todo: list[tuple[Thread, Event] | Task | str | None] = list(events.get(session.id, []))
        if session.id in vain:
            todo.append(vain[session.id][1])
        if talks and random.random() < TALK_SHARE:
            todo.append(talks.pop())
        todo += [None] * (random.randint(1, 3) if todo else random.randint(2, 4))
        random.shuffle(todo)
        for one in todo:
            if one is None:
                clock.add(writer.work(slots_of(random, session.project)))
            elif isinstance(one, Task):
                clock.add(writer.talk(one, slots_of(random, session.project)))
            elif isinstance(one, str):
                clock.add(writer.in_vain(one, slots_of(random, session.project)))
            else:
                thread, event = one
                said = _unique(writer, thread, event, texts)
                event.places |= clock.add(said)
                event.by_person = any(part.by_person for part in said)
            if random.random() < 0.35:
                clock.add(writer.chatter())


def _unique(writer: Writer, thread: Thread, event: Event, texts: set[str]) -> list[Said]:
    for _ in range(_TRIES_MAX):
        said = _episode(writer, thread, event)
        right = {part.text for part in said if part.right}
        if not right & texts:
            texts |= right
            return said
    raise ValueError(f"{thread.story.id}: too few ways to say it")


def _episode(writer: Writer, thread: Thread, event: Event) -> list[Said]:
    story = thread.story
    if event.value is None:
        return writer.unanswered(story, thread.values[0])
    slots = dict(thread.values[event.value])
    told = [one for one in thread.events if one.value == event.value and one.kind != AGAIN]
    at = told[0].session.began_at
    slots["since"] = day_of(at)
    if event.kind == AGAIN:
        return writer.again(story, slots)
    if event.kind == CHANGED:
        slots["old_con"] = thread.values[event.value - 1].get("con", "")
        return writer.changed(story, slots)
    return writer.first(story, slots)


def day_of(at: int) -> str:
    """A moment's day, as "7 May"."""
    return f"{datetime.fromtimestamp(at / 1000, UTC).day} {month_of(at)}"


def month_of(at: int) -> str:
    return _MONTHS[datetime.fromtimestamp(at / 1000, UTC).month - 1]


class _Clock:
    """Puts what is said into a session, one after the other."""

    def __init__(self, random: Random, session: Session) -> None:
        self._random, self._session = random, session
        self._at = session.began_at

    def add(self, said: Sequence[Said]) -> set[Place]:
        """The places of what is right among it."""
        right: set[Place] = set()
        for part in said:
            wait = self._random.randint(20, 900) if part.role == "user" else self._random.randint(3, 90)
            self._at += wait * 1000 + self._random.randint(1, 999)
            name = f"{self._session.id}/{len(self._session.messages)}"
            self._session.messages.append(Message(name, part.role, part.text, self._at, part.kind))
            if part.right:
                right.add((self._session.id, name))
        return right
