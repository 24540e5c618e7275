"""What is said about one matter, from the person's first word to the agent's last."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from bench.quality.coding.phrases import Phrases
from bench.quality.coding.world import Class, Project, Story, World

Slots = Mapping[str, str]

_EXTENSIONS = {
    "python": "py", "go": "go", "kotlin": "kt", "typescript": "ts", "rust": "rs", "csharp": "cs",
    "java": "java", "shell": "sh", "php": "php", "ruby": "rb", "javascript": "js",
}  # fmt: skip
LONG_SHARE = 0.25
"""Answers in whose middle the fact stands."""
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

    def first(self, story: Story, slots: Slots) -> list[Said]:
        """The matter comes up for the first time, and is answered."""
        words = self._words(slots)
        opening = self._asked(story.language, self._random.choice(story.open), words)
        if story.cls is not Class.DECISION:
            return [*opening, *self._answered(story, words)]
        way = self._random.random()
        if way < 0.5 and len(story.values) > 2:
            return [*opening, *self._options(story, words), *self._picked(story, words)]
        told = "told_by_person" if way > 0.75 else "told"
        order = self._say(story.language, told, words)
        named = told == "told_by_person"
        last = opening.pop()
        gap = self._random.choice((" ", " ", "\n\n"))
        joined = Said("user", f"{last.text}{gap}{order}", Kind.ORDER, True, named)
        return [*opening, joined, *self._answered(story, words)]

    def again(self, story: Story, slots: Slots) -> list[Said]:
        """It is asked again, and answered with what was said."""
        words = self._words(slots)
        return [*self._asks(story, words), *self._answered(story, words, lead="again_lead")]

    def unanswered(self, story: Story, slots: Slots) -> list[Said]:
        """It is asked again, and the agent knows nothing of it, or says nothing."""
        words = self._words(slots)
        return [*self._asks(story, words), *self._nothing(story.language, words)]

    def in_vain(self, question: str, slots: Slots) -> list[Said]:
        """Something is asked that is never answered."""
        words = self._words({**slots, "topic": "that"})
        return [*self._asked("en", question, words), *self._nothing("en", words)]

    def changed(self, story: Story, slots: Slots) -> list[Said]:
        """What held until now is replaced."""
        words = self._words(slots)
        rule = "changed_open" if story.cls is Class.DECISION and words.get("old_con") else "changed_plainly"
        order = self._say(story.language, rule, words)
        opening = Said("user", self._with_opener(story.language, order, words), Kind.ORDER, True)
        return [opening, *self._answered(story, words, lead="changed_lead")]

    def work(self, slots: Slots) -> list[Said]:
        """Ordinary work, which answers none of the questions."""
        language = self._project.language if self._random.random() < 0.35 else "en"
        said: list[Said] = []
        for _ in range(self._random.choices((1, 2, 3), (6, 3, 1))[0]):
            words = self._words({"topic": "this"} | dict(slots))
            said += self._asked(
                language, self._phrases(language).one(self._random, "work_open", words), words
            )
            said += self._before(language, words)
            said.append(Said("assistant", self._worked(language, words), Kind.ANSWER))
        return said

    def chatter(self) -> list[Said]:
        language = self._project.language
        words = self._words({})
        said = [Said("user", self._say(language, "chatter", words), Kind.CHATTER)]
        if self._random.random() < 0.7:
            said.append(Said("assistant", self._say(language, "chatter_back", words), Kind.CHATTER))
        return said

    def _say(self, language: str, rule: str, words: Slots) -> str:
        return self._phrases(language).one(self._random, rule, words)

    def _phrases(self, language: str) -> Phrases:
        return self._world.phrases[language]

    def _words(self, slots: Slots) -> dict[str, str]:
        """The slots, and others that are new each time."""
        random, project = self._random, self._project
        noun = random.choice(project.words["noun"])
        folder = random.choice(project.words["dir"])
        snake = noun.replace(" ", "_").replace("'", "")
        verb = random.choice(_VERBS)
        drawn = {
            "noun2": noun,
            "noun3": random.choice([one for one in project.words["noun"] if one != noun]),
            "service2": random.choice(project.words["service"]),
            "view2": random.choice(project.words["view"]),
            "module": f"{folder}/{snake}.{_EXTENSIONS[project.code]}",
            "module2": f"{random.choice(project.words['dir'])}/{random.choice(_VERBS)}.{_EXTENSIONS[project.code]}",
            "fn": f"{verb}_{snake}",
            "field": f"{snake}_{random.choice(('id', 'state', 'at', 'count', 'kind', 'owner'))}",
            "person2": random.choice(project.people),
            "n": str(random.randint(3, 97)),
            "n2": str(random.randint(100, 999)),
            "n3": str(random.randint(2, 9)),
            "sha": f"{random.getrandbits(28):07x}",
            "code": project.code,
            "ext": _EXTENSIONS[project.code],
        }
        return drawn | dict(slots)

    def _with_opener(self, language: str, text: str, words: Slots) -> str:
        if self._random.random() < 0.25:
            text = f"{self._say(language, 'opener', words)} {text}"
        return text[:1].upper() + text[1:] if self._random.random() < 0.4 else text

    def _asked(self, language: str, template: str, words: Slots) -> list[Said]:
        """The person's message; sometimes two, or one with a word in front or behind."""
        text = self._with_opener(
            language, self._phrases(language).filled(self._random, template, words), words
        )
        if self._random.random() < 0.12:
            text = f"{text} {self._say(language, 'closer', words)}"
        said = [Said("user", text, Kind.QUESTION)]
        if self._random.random() < 0.08:
            said.append(Said("user", self._say(language, "second_message", words), Kind.ORDER))
        return said

    def _asks(self, story: Story, words: Slots) -> list[Said]:
        choices = [*story.ask, *story.ask, *story.apart]
        return self._asked(story.language, self._random.choice(choices), words)

    def _nothing(self, language: str, words: Slots) -> list[Said]:
        way = self._random.random()
        if way < 0.12:
            return []
        before = self._before(language, words)
        if way < 0.2:
            return before
        return [*before, Said("assistant", self._say(language, "no_record", words), Kind.NOTHING)]

    def _before(self, language: str, words: Slots) -> list[Said]:
        """What the agent thinks and says before it answers."""
        said: list[Said] = []
        if self._thinks and self._random.random() < 0.45:
            said.append(Said("thinking", self._say(language, "thinking", words), Kind.THINKING))
        for rule, share in (("filler", 0.6), ("progress", 0.3), ("filler", 0.15)):
            if self._random.random() < share:
                said.append(Said("assistant", self._say(language, rule, words), Kind.FILLER))
        return said

    def _answered(self, story: Story, words: Slots, *, lead: str = "lead") -> list[Said]:
        phrases = self._phrases(story.language)
        core = phrases.filled(
            self._random, self._random.choice(story.answer or ("{decision_answer}",)), words
        )
        if lead != "lead" or self._random.random() < 0.5:
            core = f"{self._say(story.language, lead, words)} {core}"
        if self._random.random() < 0.5:
            core = f"{core} {self._say(story.language, 'tail', words)}"
        text = self._longer(story, core, words)
        before = self._before(story.language, words)
        if self._thinks and self._random.random() < 0.3:
            before.insert(0, Said("thinking", self._say(story.language, "thinking", words), Kind.THINKING))
        return [*before, Said("assistant", text, Kind.ANSWER, True)]

    def _longer(self, story: Story, core: str, words: Slots) -> str:
        paragraphs = [core]
        if story.output and self._random.random() < 0.6:
            output = self._phrases(story.language).filled(self._random, story.output, words)
            paragraphs.insert(0, f"{self._say(story.language, 'output_lead', words)}\n\n```\n{output}\n```")
        if self._random.random() < LONG_SHARE:
            paragraphs.insert(0, self._padding(story.language, words))
            paragraphs.append(self._padding(story.language, words))
            if self._random.random() < 0.5:
                paragraphs.append(self._say("en", "output", words))
        return "\n\n".join(paragraphs)

    def _padding(self, language: str, words: Slots) -> str:
        count = self._random.randint(2, 6)
        sentences = [
            self._phrases(language).filled(self._random, one, self._words(words))
            for one in self._phrases(language).templates(self._random, "padding", count)
        ]
        if count > 3 and self._random.random() < 0.4:
            return "\n".join(f"- {sentence}" for sentence in sentences)
        return " ".join(sentences)

    def _options(self, story: Story, words: Slots) -> list[Said]:
        """The agent names what could be done, and the person has not chosen yet."""
        others = [value for value in story.values if value[0] != words["v"] and len(value) > 3]
        chosen = next(value for value in story.values if value[0] == words["v"])
        offered = [chosen, *self._random.sample(others, min(len(others), 2))]
        self._random.shuffle(offered)
        lines = [self._option(story.language, value, words) for value in offered]
        text = f"{self._say(story.language, 'options', words)}\n\n" + "\n".join(f"- {line}" for line in lines)
        if self._random.random() < 0.5:
            text += f"\n\n{self._say(story.language, 'options_end', words)}"
        return [*self._before(story.language, words), Said("assistant", text, Kind.ANSWER)]

    def _option(self, language: str, value: Sequence[str], words: Slots) -> str:
        slots = dict(words) | dict(zip(("v", "why", "how", "con"), value, strict=False))
        return self._say(language, "option", slots)

    def _picked(self, story: Story, words: Slots) -> list[Said]:
        named = self._random.random() < 0.3
        pick = self._say(story.language, "pick_by_person" if named else "pick", words)
        return [Said("user", pick, Kind.ORDER, True, named), *self._answered(story, words)]

    def _worked(self, language: str, words: Slots) -> str:
        phrases = self._phrases(language)
        sentences = [phrases.one(self._random, "work_done", words)]
        details = phrases.templates(self._random, "work_detail", self._random.randint(1, 4))
        sentences += [phrases.filled(self._random, one, self._words(words)) for one in details]
        text = " ".join(sentences)
        if self._random.random() < 0.3:
            text = f"{sentences[0]}\n\n" + "\n".join(f"- {sentence}" for sentence in sentences[1:])
        if self._random.random() < 0.35:
            text += f"\n\n{self._say('en', self._random.choice(('output', f'snippet_{self._project.code}')), words)}"
        if self._random.random() < 0.4:
            text += f"\n\n{self._say(language, 'work_next', words)}"
        return text
