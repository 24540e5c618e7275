"""What is asked of the conversations, and where it is answered.

Of each thread its plain question; of what was changed, what holds now, why the old was left and what was before; of what came
back, the question with a date. What was never said: matters of other projects, matters of none, and what was asked in vain
before.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from random import Random

from bench.quality.coding.conversations import (
    CHANGED,
    FIRST,
    RECURRED,
    Corpus,
    Event,
    Place,
    Thread,
    day_of,
    month_of,
    slots_of,
)
from bench.quality.coding.world import Class, Project, Story
from bench.quality.sets import DAY, NOW

APART_SHARE = 0.7
"""Of the questions that could be asked in other words than the answer's."""
APART_NOW_SHARE = 0.5
DATED_SHARE = 0.12
BESIDE_SHARE = 0.5
"""Threads that are asked about a second time, by date or person."""
FOREIGN, ABSENT, IN_VAIN = 3, 2, 2
"""Questions in each project that nothing answers there, by kind."""


@dataclass(frozen=True, slots=True)
class Question:
    """``right``: the messages that answer it, none for what was never said. ``stale``: those that tell what held before."""

    cls: Class
    text: str
    named: str
    """The same, with the project's name in it."""
    project: Project
    language: str
    right: frozenset[Place] = frozenset()
    stale: frozenset[Place] = frozenset()
    apart: bool = False
    """Whether it is asked in other words than the answer's."""
    dated: bool = False


def make_questions(corpus: Corpus, seed: int = 1) -> list[Question]:
    """The same corpus and seed give the same questions. None is asked twice in a project."""
    asking = _Asking(corpus, Random(f"{corpus.world.part}-{seed}"))
    found: dict[tuple[str, str], Question] = {}
    for thread in corpus.threads:
        for question in asking.about(thread):
            found.setdefault((question.project.name, question.text.lower()), question)
    for project in corpus.world.projects:
        for question in asking.in_vain(project):
            found.setdefault((project.name, question.text.lower()), question)
    return list(found.values())


class _Asking:
    def __init__(self, corpus: Corpus, random: Random) -> None:
        self._corpus, self._random = corpus, random

    def about(self, thread: Thread) -> Iterator[Question]:
        if thread.story.recurring:
            for event in thread.events:
                if self._random.random() < 0.7:
                    yield self._of_that_day(thread, event)
        elif len(thread.values) > 1:
            yield from self._changed(thread)
        else:
            yield self._plain(thread)
        if thread.story.cls is Class.DECISION and thread.story.language == "en":
            yield from self._beside(thread)

    def in_vain(self, project: Project) -> Iterator[Question]:
        random, corpus = self._random, self._corpus
        own = {thread.story.id for thread in corpus.threads if thread.project is project}
        foreign = [
            story
            for story in corpus.world.stories
            if story.id not in own and story.language == "en" and not story.recurring
        ]
        for story in random.sample(foreign, FOREIGN):
            apart = self._apart(story)
            ask = random.choice(story.apart if apart else story.ask)
            yield self._asked(Class.NEVER, project, story.language, "q_plain", ask, story.topic, apart=apart)
        vain = corpus.asked_in_vain[project.name]
        known = {topic for topic, _ in vain}
        others = [one for one in corpus.world.absent if one[0] not in known]
        for topic, ask in [*random.sample(vain, IN_VAIN), *random.sample(others, ABSENT)]:
            yield self._asked(Class.NEVER, project, "en", "q_plain", ask, topic)

    def _plain(self, thread: Thread) -> Question:
        story = thread.story
        apart = self._apart(story)
        right = thread.told(0)
        ask = self._random.choice(story.apart if apart else story.ask)
        if story.language == "en" and self._random.random() < DATED_SHARE:
            return self._thread(
                thread, story.cls, "q_dated", ask, right, apart=apart, at=thread.events[0].session.began_at
            )
        return self._thread(thread, story.cls, "q_plain", ask, right, apart=apart)

    def _of_that_day(self, thread: Thread, event: Event) -> Question:
        ask = self._random.choice(thread.story.ask)
        others = [one.session.began_at for one in thread.events if one is not event]
        return self._thread(
            thread,
            thread.story.cls,
            "q_dated",
            ask,
            frozenset(event.places),
            at=event.session.began_at,
            others=others,
        )

    def _changed(self, thread: Thread) -> Iterator[Question]:
        story, last = thread.story, len(thread.values) - 1
        right = thread.told(last)
        stale = frozenset[Place]().union(*(thread.told(number) for number in range(last))) - right
        ask = self._random.choice(story.ask)
        if story.language == "en" and self._random.random() < APART_NOW_SHARE and self._apart(story):
            apart = self._random.choice(story.apart)
            yield self._thread(
                thread, Class.NOW, "q_now_apart", apart, right, stale=stale, apart=True, value=last
            )
        else:
            yield self._thread(thread, Class.NOW, "q_now", ask, right, stale=stale, value=last)
        if story.language == "en" and self._random.random() < 0.5:
            first = thread.events[0].session.began_at
            others = [one.session.began_at for one in thread.events[1:]]
            yield self._thread(
                thread, story.cls, "q_dated", ask, thread.told(0), value=0, at=first, others=others
            )
        if story.cls is not Class.DECISION:
            return
        change = next(event for event in thread.events if event.kind == CHANGED and event.value == last)
        if self._random.random() < 0.5:
            yield self._thread(thread, Class.DECISION, "q_left", ask, frozenset(change.places), value=last)
        if story.language == "en" and self._random.random() < 0.4:
            before = frozenset(change.places) | thread.told(last - 1)
            yield self._thread(thread, Class.DECISION, "q_before", ask, before, value=last)

    def _beside(self, thread: Thread) -> Iterator[Question]:
        """When it was settled, and who wanted it."""
        for event in thread.events:
            if event.value is None or event.kind not in (FIRST, CHANGED, RECURRED):
                continue
            ask = self._random.choice(thread.story.ask)
            if event.by_person:
                right = frozenset(event.places)
                yield self._thread(thread, Class.WHO, "q_who_wanted", ask, right, value=event.value)
            elif self._random.random() < BESIDE_SHARE / 2:
                yield self._thread(
                    thread, Class.WHEN, "q_when_settled", ask, thread.told(event.value), value=event.value
                )

    def _apart(self, story: Story) -> bool:
        return bool(story.apart) and self._random.random() < APART_SHARE

    def _thread(
        self,
        thread: Thread,
        cls: Class,
        rule: str,
        ask: str,
        right: frozenset[Place],
        *,
        stale: frozenset[Place] = frozenset(),
        apart: bool = False,
        value: int = 0,
        at: int | None = None,
        others: list[int] | None = None,
    ) -> Question:
        slots = dict(thread.values[value])
        if at is not None:
            slots["date"] = self._date(at, others or [])
        return self._asked(
            cls, thread.project, thread.story.language, rule, ask, thread.story.topic,
            right=right, stale=stale, apart=apart, dated=at is not None, slots=slots,
        )  # fmt: skip

    def _asked(
        self,
        cls: Class,
        project: Project,
        language: str,
        rule: str,
        ask: str,
        topic: str,
        *,
        right: frozenset[Place] = frozenset(),
        stale: frozenset[Place] = frozenset(),
        apart: bool = False,
        dated: bool = False,
        slots: dict[str, str] | None = None,
    ) -> Question:
        phrases = self._corpus.world.phrases[language]
        words = slots_of(self._random, project) | {"topic": topic} | (slots or {}) | {"ask": ask}
        template = phrases.templates(self._random, rule, 1)[0]
        text = phrases.filled(self._random, template, words)
        where = phrases.templates(self._random, "q_in_project", 1)[0]
        core = ask if "{ask}" in template else text
        there = phrases.filled(self._random, where, words | {"q": core, "project": project.name})
        named = phrases.filled(self._random, template, words | {"ask": there}) if core is ask else there
        return Question(cls, text, named, project, language, right, stale, apart, dated)

    def _date(self, at: int, others: list[int]) -> str:
        """A way to speak of that day that covers none of the others."""
        choices = [(f"on {day_of(at)}", _day(at), _day(at))]
        month = _day(at).replace(day=1)
        if (NOW - at) // DAY < 330:
            choices += [(f"in {month_of(at)}", month, _month_end(month))] * 2
        today = _day(NOW)
        monday = today - timedelta(days=today.weekday())
        last_month_end = today.replace(day=1) - timedelta(days=1)
        choices += [
            ("last week", monday - timedelta(days=7), monday - timedelta(days=1)),
            ("this week", monday, today),
            ("yesterday", today - timedelta(days=1), today - timedelta(days=1)),
            ("last month", last_month_end.replace(day=1), last_month_end),
        ] * 3  # fmt: skip
        fit = [
            text
            for text, first, last in choices
            if first <= _day(at) <= last and not any(first <= _day(other) <= last for other in others)
        ]
        return self._random.choice(fit)


def _day(at: int) -> date:
    return datetime.fromtimestamp(at / 1000, UTC).date()


def _month_end(month: date) -> date:
    return (month + timedelta(days=31)).replace(day=1) - timedelta(days=1)
