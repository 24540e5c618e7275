"""What is said about one matter, from the person's first word to the agent's last."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from bench.quality.coding.phrases import Phrases
from bench.quality.coding.world import COLUMNS, Class, Project, Story, Task, World

Slots = Mapping[str, str]

_EXTENSIONS = {
    "python": "py", "go": "go", "kotlin": "kt", "typescript": "ts", "rust": "rs", "csharp": "cs",
    "java": "java", "shell": "sh", "php": "php", "ruby": "rb", "javascript": "js",
}  # fmt: skip
FACTS = (Class.WHO, Class.WHEN, Class.WHERE)
"""Answered in a sentence or two."""
LONG_SHARE = 0.3
"""Answers in whose middle the fact stands."""
OWN_LANGUAGE_SHARE = 0.3
"""Work that is done in the language of the project."""
_VERBS = (
    "parse",
    "load",
    "merge",
    "build",
    "check",
    "sync",
    "render",
    "collect",
    "resolve",
    "flush",
    "apply",
    "export",
)


class Kind(StrEnum):
    """What a message does."""

    QUESTION = "question"
    """A person wants to know something."""
    ORDER = "order"
    """A person tells something, or wants something done."""
    ANSWER = "answer"
    NOTHING = "nothing"
    """The agent says that it does not know."""
    FILLER = "filler"
    THINKING = "thinking"
    CHATTER = "chatter"


@dataclass(frozen=True, slots=True)
class Said:
    role: str
    text: str
    kind: Kind
    right: bool = False
    """Whether it tells the story's value."""
    by_person: bool = False
    """Whether it names the person who wanted that."""


class Writer:
    """Writes the episodes of one session."""

    def __init__(self, world: World, random: Random, project: Project, *, thinks: bool) -> None:
        self._world, self._random, self._project, self._thinks = world, random, project, thinks
        self._tasks: dict[str, list[Task]] = {}

    def first(self, story: Story, slots: Slots) -> list[Said]:
        """The matter comes up for the first time, and is answered."""
        words = self.words(story.language, slots)
        opening = self._asked(story.language, self._random.choice(story.open), words)
        if story.cls is not Class.DECISION:
            return [*opening, *self._answered(story, words)]
        way = self._random.random()
        if way < 0.5 and len(story.values) > 2:
            return [*opening, *self._options(story, words), *self._picked(story, words)]
        told = "told_by_person" if way > 0.75 else "told"
        order = self._say(story.language, told, words)
        joined = Said("user", self._joined(opening[0].text, order), Kind.ORDER, True, told != "told")
        return [joined, *opening[1:], *self._answered(story, words)]

    def again(self, story: Story, slots: Slots) -> list[Said]:
        """It is asked again, and answered with what was said."""
        words = self.words(story.language, slots)
        return [*self._asks(story, words), *self._answered(story, words, lead="again_lead")]

    def unanswered(self, story: Story, slots: Slots) -> list[Said]:
        """It is asked again, and the agent knows nothing of it, or says nothing."""
        words = self.words(story.language, slots)
        return [*self._asks(story, words), *self._nothing(story.language, words)]

    def in_vain(self, question: str, slots: Slots) -> list[Said]:
        """Something is asked that is never answered."""
        words = self.words("en", slots)
        return [*self._asked("en", question, words), *self._nothing("en", words)]

    def changed(self, story: Story, slots: Slots) -> list[Said]:
        """What held until now is replaced."""
        words = self.words(story.language, slots)
        rule = "changed_open" if story.cls is Class.DECISION and words.get("old_con") else "changed_plainly"
        order = self._say(story.language, rule, words)
        opening = Said("user", self._opened(story.language, order, words), Kind.ORDER, True)
        return [opening, *self._answered(story, words, lead="changed_lead")]

    def work(self, slots: Slots) -> list[Said]:
        """Ordinary work, which answers none of the questions."""
        language = self._project.language if self._random.random() < OWN_LANGUAGE_SHARE else "en"
        said: list[Said] = []
        for _ in range(self._random.choices((1, 2, 3), (6, 3, 1))[0]):
            words = self.words(language, slots)
            task = self._task(language)
            said += self._asked(language, self._random.choice(task.open), words)
            said += self._before(language, words, works=True)
            said.append(Said("assistant", self._worked(task, words), Kind.ANSWER))
        return said

    def talk(self, talk: Task, slots: Slots) -> list[Said]:
        """Something in general is asked and answered."""
        words = self.words(talk.language, slots)
        question, answer = self._random.choice(list(zip(talk.open, talk.done, strict=True)))
        text = self._phrases(talk.language).filled(self._random, answer, words)
        return [*self._asked(talk.language, question, words), Said("assistant", text, Kind.ANSWER)]

    def chatter(self) -> list[Said]:
        language = self._project.language
        words = self.words(language, {})
        said = [Said("user", self._say(language, "chatter", words), Kind.CHATTER)]
        if self._random.random() < 0.7:
            said.append(Said("assistant", self._say(language, "chatter_back", words), Kind.CHATTER))
        return said

    def words(self, language: str, slots: Slots) -> dict[str, str]:
        """The slots, and others that are new each time."""
        random, project = self._random, self._project
        noun, noun3 = random.sample(project.words["noun"], 2)
        folder = random.choice(project.words["dir"])
        snake = noun.lower().replace(" ", "_").replace("'", "")
        drawn = {
            "topic": self._phrases(language).one(random, "matter", {}),
            "noun2": noun,
            "noun3": noun3,
            "service2": random.choice(project.words["service"]),
            "view2": random.choice(project.words["view"]),
            "module": f"{folder}/{snake}.{_EXTENSIONS[project.code]}",
            "module2": f"{random.choice(project.words['dir'])}/{random.choice(_VERBS)}.{_EXTENSIONS[project.code]}",
            "fn": f"{random.choice(_VERBS)}_{snake}",
            "field": f"{snake}_{random.choice(('id', 'state', 'at', 'count', 'kind', 'owner'))}",
            "person2": random.choice(project.people),
            "code": project.code,
            "ext": _EXTENSIONS[project.code],
        }
        words = drawn | self._numbers() | dict(slots)
        return words | {
            f"{name}s": plural(words[name]) for name in ("noun", "noun2", "noun3") if name in words
        }

    def _task(self, language: str) -> Task:
        """One that was not done yet in this session, while there is one."""
        if not self._tasks.get(language):
            fit = [task for task in self._world.tasks if task.language == language]
            self._tasks[language] = self._random.sample(fit, len(fit))
        return self._tasks[language].pop()

    def _say(self, language: str, rule: str, words: Slots) -> str:
        """Without such a rule, by the one of which the name begins so: lead for lead_fact."""
        phrases = self._phrases(language)
        return phrases.one(self._random, rule if rule in phrases else rule.partition("_")[0], words)

    def _phrases(self, language: str) -> Phrases:
        return self._world.phrases[language]

    def _numbers(self) -> dict[str, str]:
        random = self._random
        return {
            "n": str(random.randint(3, 97)),
            "n2": str(random.randint(100, 999)),
            "n3": str(random.randint(2, 9)),
            "sha": f"{random.getrandbits(28):07x}",
        }

    def _opened(self, language: str, text: str, words: Slots) -> str:
        if self._random.random() < 0.25:
            text = f"{self._say(language, 'opener', words)} {text}"
        return _capital(text) if self._random.random() < 0.4 else text

    def _joined(self, asked: str, order: str) -> str:
        gap = self._random.choice((" ", " ", "\n\n"))
        return f"{asked}{gap if asked[-1] in '?.!？。' else '.' + gap}{order}"

    def _asked(self, language: str, template: str, words: Slots) -> list[Said]:
        """The person's message; sometimes two, or one with a word in front or behind."""
        text = self._opened(language, self._phrases(language).filled(self._random, template, words), words)
        if self._random.random() < 0.12:
            text = self._joined(text, self._say(language, "closer", words))
        said = [Said("user", text, Kind.QUESTION)]
        if self._random.random() < 0.08:
            said.append(Said("user", self._say(language, "second_message", words), Kind.CHATTER))
        return said

    def _asks(self, story: Story, words: Slots) -> list[Said]:
        choices = [*story.ask, *story.ask, *story.apart]
        return self._asked(story.language, self._random.choice(choices), words)

    def _nothing(self, language: str, words: Slots) -> list[Said]:
        way = self._random.random()
        if way < 0.12:
            return []
        before = self._before(language, words, works=False)
        if way < 0.2:
            return before
        return [*before, Said("assistant", self._say(language, "no_record", words), Kind.NOTHING)]

    def _before(self, language: str, words: Slots, *, works: bool) -> list[Said]:
        """What the agent thinks and says before it answers. ``works``: it does something, and not only looks it up."""
        said: list[Said] = []
        if self._thinks and self._random.random() < 0.5:
            said.append(Said("thinking", self._say(language, "thinking", words), Kind.THINKING))
        fillers = ("filler_work", "progress", "filler_work") if works else ("filler", "progress", "filler")
        for rule, share in zip(fillers, (0.55, 0.3 if works else 0.1, 0.15), strict=True):
            text = self._say(language, rule, words)
            if self._random.random() < share and all(text != one.text for one in said):
                said.append(Said("assistant", text, Kind.FILLER))
        return said

    def _answered(self, story: Story, words: dict[str, str], *, lead: str = "") -> list[Said]:
        phrases, fact = self._phrases(story.language), "_fact" if story.cls in FACTS else ""
        core = phrases.filled(
            self._random, self._random.choice(story.answer or ("{decision_answer}",)), words
        )
        if lead or self._random.random() < 0.5:
            core = f"{self._say(story.language, lead or 'lead' + fact, words)} {_capital(core)}"
        if self._random.random() < 0.5:
            core = f"{core} {self._say(story.language, 'tail' + fact, words)}"
        before = self._before(story.language, words, works=not fact and not lead)
        return [*before, Said("assistant", self._longer(story, core, words), Kind.ANSWER, True)]

    def _longer(self, story: Story, core: str, words: dict[str, str]) -> str:
        paragraphs = [core]
        if story.output and self._random.random() < 0.6:
            output = self._phrases(story.language).filled(self._random, story.output, words)
            paragraphs.insert(0, f"{self._say(story.language, 'output_lead', words)}\n\n```\n{output}\n```")
        if story.cls not in FACTS and self._random.random() < LONG_SHARE:
            bounds = (4, 12) if self._random.random() < 0.75 else (14, 26)
            count = self._random.randint(*bounds)
            padding = self._phrases(story.language).templates(self._random, "padding", count)
            half = self._random.randint(2, len(padding) - 1)
            paragraphs.insert(0, self._padding(story.language, padding[:half], words, leads=True))
            paragraphs.append(self._padding(story.language, padding[half:], words, leads=False))
            if self._random.random() < 0.5:
                paragraphs.append(self._say("en", "output", words))
        return "\n\n".join(paragraphs)

    def _padding(self, language: str, templates: list[str], words: dict[str, str], *, leads: bool) -> str:
        phrases = self._phrases(language)
        sentences = [
            _capital(phrases.filled(self._random, one, words | self._numbers())) for one in templates
        ]
        lead = [self._say(language, "padding_lead", words)] if leads and "padding_lead" in phrases else []
        if len(sentences) > 3 and self._random.random() < 0.4:
            return "\n".join([*lead, *(f"- {sentence}" for sentence in sentences)])
        return " ".join([*lead, *sentences])

    def _options(self, story: Story, words: Slots) -> list[Said]:
        """The agent names what could be done, and the person has not chosen yet."""
        others = [value for value in story.values if value[0] != words["v"]]
        chosen = next(value for value in story.values if value[0] == words["v"])
        offered = [chosen, *self._random.sample(others, 2)]
        self._random.shuffle(offered)
        lines = "\n".join(f"- {_capital(self._option(story.language, value, words))}" for value in offered)
        text = f"{self._say(story.language, 'options', words)}\n\n{lines}"
        if self._random.random() < 0.5:
            text += f"\n\n{self._say(story.language, 'options_end', words)}"
        return [*self._before(story.language, words, works=True), Said("assistant", text, Kind.ANSWER)]

    def _option(self, language: str, value: Sequence[str], words: Slots) -> str:
        slots = dict(words) | dict(zip(COLUMNS, value, strict=False))
        return self._say(language, "option", slots)

    def _picked(self, story: Story, words: dict[str, str]) -> list[Said]:
        named = self._random.random() < 0.3
        pick = self._say(story.language, "pick_by_person" if named else "pick", words)
        return [Said("user", pick, Kind.ORDER, True, named), *self._answered(story, words)]

    def _worked(self, task: Task, words: dict[str, str]) -> str:
        language = task.language
        phrases = self._phrases(language)
        sentences = [phrases.filled(self._random, self._random.choice(task.done), words)]
        sentences += [
            _capital(phrases.filled(self._random, one, words | self._numbers()))
            for one in phrases.templates(self._random, "work_detail", self._random.randint(0, 3))
        ]
        text = " ".join(sentences)
        if len(sentences) > 2 and self._random.random() < 0.4:
            text = "\n".join([f"{sentences[0]}\n", *(f"- {sentence}" for sentence in sentences[1:])])
        if self._random.random() < 0.35:
            text += f"\n\n{self._say('en', self._random.choice(('output', f'snippet_{self._project.code}')), words)}"
        if self._random.random() < 0.4:
            text += f"\n\n{self._say(language, 'work_next', words)}"
        return text


def plural(noun: str) -> str:
    """Of an English noun, which may have words behind it ("message to parents")."""
    for middle in (" of ", " to "):
        head, found, rest = noun.partition(middle)
        if found:
            return f"{plural(head)}{found}{rest}"
    if noun.endswith(("s", "x", "sh", "ch")):
        return f"{noun}es"
    return f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeiou" else f"{noun}s"


def _capital(text: str) -> str:
    """With a capital letter in front, unless it begins with a path or a name of the code."""
    first = text.partition(" ")[0]
    return text if "/" in first or "_" in first else text[:1].upper() + text[1:]
