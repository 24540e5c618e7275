"""The made conversations are what they claim to be, and their figures are what their names say."""

import re
from collections import Counter
from collections.abc import Generator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from random import Random

import pytest

from bench.quality.coding.conversations import (
    FIRST,
    Corpus,
    Message,
    Place,
    day_of,
    make_corpus,
    slots_of,
)
from bench.quality.coding.episodes import Kind, Writer, plural
from bench.quality.coding.measures import figures
from bench.quality.coding.memory import CodingMemory, Found, Shown, memory_of
from bench.quality.coding.phrases import Phrases
from bench.quality.coding.questions import Question, make_questions
from bench.quality.coding.world import COLUMNS, Class, Part, read_world
from bench.quality.sets import DAY, NOW
from crystal_core.embed.builtin import BuiltinEmbedder
from crystal_core.search.by import By

PARTS = tuple(Part)


@pytest.fixture(scope="module", params=PARTS)
def corpus(request: pytest.FixtureRequest) -> Corpus:
    return make_corpus(request.param)


@pytest.fixture(scope="module")
def questions(corpus: Corpus) -> list[Question]:
    return make_questions(corpus)


@pytest.fixture(scope="module")
def messages(corpus: Corpus) -> Mapping[Place, Message]:
    return {(session.id, one.id): one for session in corpus.sessions for one in session.messages}


def test_there_are_as_many_sessions_projects_and_tools_as_claimed(corpus: Corpus) -> None:
    sessions = corpus.sessions
    assert len(sessions) >= 300
    assert len({session.id for session in sessions}) == len(sessions)
    assert len({session.project.name for session in sessions}) >= 12
    assert any(session.project.client for session in sessions)
    assert len({session.source for session in sessions}) >= 3
    assert len({session.device for session in sessions}) >= 3
    ages = [(NOW - session.began_at) / DAY for session in sessions]
    assert 330 < max(ages) < 366
    assert 0 < min(ages) < 5


def test_the_conversations_hold_all_that_makes_them_hard(corpus: Corpus) -> None:
    kinds = Counter(one.kind for session in corpus.sessions for one in session.messages)
    assert min(kinds[kind] for kind in Kind) >= 50
    texts = [one.text for session in corpus.sessions for one in session.messages]
    assert 6_000 <= len(texts) <= 10_000
    assert sum("```" in text for text in texts) > 200
    assert sum(bool(re.search("[\u3040-\u30ff]", text)) for text in texts) > 50
    assert len({text for text in texts if len(text) > 600}) > 100
    assert len({text for text in texts if len(text) > 1500}) > 20


def test_messages_of_a_session_follow_each_other_in_time(corpus: Corpus) -> None:
    for session in corpus.sessions:
        moments = [one.created_at for one in session.messages]
        assert moments == sorted(set(moments))
        assert max(moments) < NOW


@pytest.mark.slow
def test_the_same_seed_makes_the_same_and_another_makes_another() -> None:
    first, second, other = make_corpus(Part.DEV, 3), make_corpus(Part.DEV, 3), make_corpus(Part.DEV, 4)
    assert first.sessions == second.sessions
    assert make_questions(first) == make_questions(second)
    assert first.sessions != other.sessions


def test_what_is_held_out_has_stories_and_wordings_of_its_own() -> None:
    dev, held = read_world(Part.DEV), read_world(Part.HELD)
    assert not {story.id for story in dev.stories} & {story.id for story in held.stories}
    asked = [
        {words for story in world.stories for words in (*story.ask, *story.apart, *story.open)}
        for world in (dev, held)
    ]
    assert not asked[0] & asked[1]
    assert not {words for _, words in dev.absent} & {words for _, words in held.absent}
    rules = [
        {
            rule: set(world.phrases["en"].templates(Random(1), rule, 99))
            for rule in ("lead", "tail", "no_record", "q_now")
        }
        for world in (dev, held)
    ]
    assert all(not rules[0][rule] & rules[1][rule] for rule in rules[0])


@pytest.mark.parametrize("part", PARTS)
def test_every_template_can_be_filled_in(part: Part) -> None:
    world = read_world(part)
    known = {
        *slots_of(Random(1), world.projects[0]),
        *Writer(world, Random(1), world.projects[0], thinks=True).words(
            "en", slots_of(Random(1), world.projects[0])
        ),
        *COLUMNS,
        *("old", "old_con", "since", "ask", "date", "q", "project"),
    }
    for language, phrases in world.phrases.items():
        templates = [
            words
            for story in world.stories
            if story.language == language
            for words in (
                *story.open,
                *story.answer,
                *story.ask,
                *story.apart,
                story.output,
                *(text for value in story.values for text in value),
            )
        ]
        templates += [
            words for task in world.tasks if task.language == language for words in (*task.open, *task.done)
        ]
        templates += [words for rule in phrases.names for words in phrases.templates(Random(1), rule, 999)]
        for template in templates:
            for slot in re.findall(r"\{[?^]?([a-z][a-z_0-9]*)\}", template):
                assert slot in known or slot in phrases, f"{template!r} has no {slot}"


def test_there_are_enough_questions_of_each_class(questions: list[Question]) -> None:
    assert len(questions) >= 500
    classes = Counter(question.cls for question in questions)
    assert min(classes[one] for one in Class) >= 35
    answerable = [question for question in questions if question.right]
    assert sum(question.apart for question in questions) >= len(questions) / 3
    assert sum(question.dated for question in questions) > 80
    assert {question.language for question in answerable} == {"en", "de", "es", "fr", "ja"}
    assert all(bool(question.right) == (question.cls is not Class.NEVER) for question in questions)
    named = [(question.project.name, question.text.lower()) for question in questions]
    assert len(set(named)) == len(named)


def test_what_answers_tells_what_was_asked_for(corpus: Corpus, messages: Mapping[Place, Message]) -> None:
    for thread in corpus.threads:
        for event in thread.events:
            texts = " ".join(messages[place].text for place in event.places)
            assert (event.value is None) == (texts == "")
            if event.value is not None:
                project = thread.project.name
                assert {place[0] for place in event.places} == {event.session.id}
                words = thread.values[event.value]["v"]
                words = re.split(r"(?:\ban? )?\{", words)[0]
                assert words.lower() in texts.lower(), f"{project}, {thread.story.id}"


def test_what_was_changed_is_told_newest_last_and_nothing_old_holds(corpus: Corpus) -> None:
    changed = [thread for thread in corpus.threads if len(thread.values) > 1]
    assert len(changed) > 80
    for thread in changed:
        told = [event for event in thread.events if event.value is not None]
        assert told == sorted(told, key=lambda event: event.session.began_at)
        assert [event.value for event in told] == sorted(event.value or 0 for event in told)
        assert len({value["v"] for value in thread.values}) == len(thread.values)


def test_what_holds_now_is_right_and_what_held_is_stale(
    questions: list[Question], messages: Mapping[Place, Message]
) -> None:
    for question in questions:
        assert not question.right & question.stale
        if question.cls is Class.NOW:
            newest = max(messages[place].created_at for place in question.stale)
            assert all(messages[place].created_at > newest for place in question.right)


def test_a_date_in_a_question_is_the_day_of_one_event_only(
    corpus: Corpus, questions: list[Question], messages: Mapping[Place, Message]
) -> None:
    checked = 0
    for question in questions:
        found = re.search(r"\bon (\d+ [A-Z][a-z]+)", question.text) if question.dated else None
        if found:
            checked += 1
            assert found.group(1) in {day_of(messages[place].created_at) for place in question.right}
        month = re.search(r"\bin ([A-Z][a-z]+)\b", question.text) if question.dated else None
        if month:
            checked += 1
            months = {
                datetime.fromtimestamp(messages[place].created_at / 1000, UTC).strftime("%B")
                for place in question.right
            }
            assert month.group(1) in months
    assert checked > 40


def test_what_was_never_said_is_nobodys_story_in_that_project(
    corpus: Corpus, questions: list[Question]
) -> None:
    own: dict[str, set[str]] = {}
    for thread in corpus.threads:
        own.setdefault(thread.project.name, set()).update([*thread.story.ask, *thread.story.apart])
    for question in questions:
        if question.cls is Class.NEVER:
            assert not any("{" not in ask and ask in question.text for ask in own[question.project.name])


def test_texts_that_answer_occur_once(corpus: Corpus, messages: Mapping[Place, Message]) -> None:
    answers = [
        messages[place].text
        for thread in corpus.threads
        for event in thread.events
        for place in event.places
        if messages[place].role == "assistant"
    ]
    assert len(set(answers)) == len(answers)


@pytest.mark.parametrize("part", PARTS)
def test_questions_in_other_words_hardly_share_any_with_the_answers(part: Part) -> None:
    common = set(
        re.findall(
            r"\w+", "what with that when does have from they there where which this into only before people"
        )
    )
    shared: list[int] = []
    for story in read_world(part).stories:
        told = " ".join([*story.answer, story.topic, *(text for value in story.values for text in value)])
        words = set(re.findall(r"\w{4,}", re.sub(r"\{.*?\}", "", told).lower())) - common
        shared += [len(words & set(re.findall(r"\w{4,}", ask.lower()))) for ask in story.apart]
    assert sum(count > 1 for count in shared) <= len(shared) / 6


def test_phrases_fill_slots_rules_and_articles() -> None:
    phrases = Phrases({"hail": ["hello {name}"], "name": ["Ada"]})
    assert phrases.one(Random(1), "hail", {}) == "hello Ada"
    assert phrases.filled(Random(1), '{^name}: a {noun} in { "a": 1 }', {"name": "bo", "noun": "order"}) == (
        'Bo: an order in { "a": 1 }'
    )
    assert {phrases.filled(Random(seed), "x {?name} y", {}) for seed in range(9)} == {"x y", "x Ada y"}
    with pytest.raises(KeyError):
        phrases.filled(Random(1), "{unknown}", {})


def test_plurals() -> None:
    assert [
        plural(one) for one in ("class", "ledger entry", "day", "message to parents", "scan of a passport")
    ] == [
        "classes",
        "ledger entries",
        "days",
        "messages to parents",
        "scans of a passport",
    ]


PROJECT = read_world(Part.DEV).projects[0]
ASKED = Question(Class.NOW, "?", "?", PROJECT, "en", frozenset({("s", "new")}), frozenset({("s", "old")}))
NEVER = replace(ASKED, cls=Class.NEVER, right=frozenset(), stale=frozenset())


def shown(name: str, *, project: str = PROJECT.name, empty: bool = False) -> Shown:
    place = ("s", name)
    return Shown(place, frozenset({place}), project, empty)


def test_the_second_of_three_hits_answers() -> None:
    found = figures(
        Found([shown("old"), shown("new"), shown("x", empty=True)], weak=False), ASKED, scoped=True
    )
    assert (found["answer@1"], found["answer@5"], found["MRR@10"], found["recall@10"]) == (0, 1, 0.5, 1)
    assert found["newest first"] == 0
    assert found["echo@5"] == pytest.approx(1 / 3)
    assert (found["leak@10"], found["false silence"]) == (0, 0)
    assert "silence" not in found


def test_the_newest_first_and_one_of_another_project() -> None:
    found = figures(Found([shown("new"), shown("old", project="other")], weak=True), ASKED, scoped=True)
    assert (found["newest first"], found["leak@10"], found["false silence"]) == (1, 0.5, 1)
    assert "leak@10" not in figures(Found([shown("new")], weak=False), ASKED, scoped=False)


@pytest.mark.parametrize(
    ("hits", "weak", "silent"), [([], False, 1), ([shown("x")], True, 1), ([shown("x")], False, 0)]
)
def test_silence_where_nothing_was_said(hits: list[Shown], weak: bool, silent: float) -> None:
    found = figures(Found(hits, weak), NEVER, scoped=True)
    assert found["silence"] == silent
    assert "answer@1" not in found
    assert ("echo@5" in found) == (not weak)


@pytest.fixture(scope="module")
def memory() -> Generator[CodingMemory]:
    """Two projects with a few sessions each, of which some answer."""
    whole = make_corpus(Part.DEV)
    names = {one.name for one in whole.world.projects[:2]}
    threads = [one for one in whole.threads if one.project.name in names and len(one.events) == 1][:12]
    kept = {event.session.id for thread in threads for event in thread.events if event.kind == FIRST}
    sessions = [session for session in whole.sessions if session.id in sorted(kept)[:4]]
    some = [one for one in threads if one.events[0].session in sessions]
    with (
        BuiltinEmbedder() as embedder,
        memory_of(replace(whole, sessions=sessions, threads=some), embedder) as found,
    ):
        yield found


@pytest.mark.slow
def test_the_words_of_an_answer_find_it_by_turn_and_by_message(memory: CodingMemory) -> None:
    for thread in memory.corpus.threads:
        right = thread.told(0)
        place = next(place for place in right if memory.message(place).role == "assistant")
        text = memory.message(place).text[:300]
        question = replace(
            ASKED, text=text, named=text, project=thread.project, right=right, stale=frozenset()
        )
        for by in By:
            for mode, ranking in memory.rankings(by, scoped=True).items():
                scores = figures(ranking(question), question, scoped=True)
                assert scores["answer@5"] == 1, f"{mode} by {by}: {thread.story.id}"
                assert scores["leak@10"] == 0


@pytest.mark.slow
def test_a_search_that_forgets_its_project_leaks(memory: CodingMemory) -> None:
    project = memory.corpus.sessions[0].project
    question = replace(ASKED, text="what did we decide", named="what did we decide", project=project)
    unbound = memory.found(question, By.TURN, scoped=False)
    assert figures(unbound, question, scoped=True)["leak@10"] > 0


@pytest.mark.slow
def test_a_turn_shows_the_question_with_what_was_answered(memory: CodingMemory) -> None:
    session = memory.corpus.sessions[0]
    asked = next(one for one in session.messages if one.kind is Kind.QUESTION)
    question = replace(ASKED, text=asked.text, named=asked.text, project=session.project)
    best = memory.found(question, By.TURN, scoped=True).hits[0]
    roles = {memory.message(place).role for place in best.places}
    assert {"user", "assistant"} <= roles
    assert not best.empty
