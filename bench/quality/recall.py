"""What recall is worth: each question of the conversations as a prompt in its project, by the way that a hook goes.

    coverage    of prompts whose answer was said: whether one of the records told is the passage that answers
    precision   of all records told: the share that are such passages
    tokens      what was told costs the agent at a prompt, nothing where it was silent; estimated, rather too high
    silence     of prompts whose answer was never said: whether nothing is told
    filler      of prompts that ask nothing ("yes, go on"): whether nothing is told
    leak        of all records told: the share of other projects

By words and meaning, and by words alone as while no service runs. `python -m bench.quality.recall` prints the figures;
`--thresholds` prints those of other thresholds of relevance, to choose one by on the conversations to tune with.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from itertools import product
from pathlib import Path
from unittest import mock

from bench.quality.coding.conversations import Corpus, Place, make_corpus
from bench.quality.coding.memory import memory_of
from bench.quality.coding.questions import Question, make_questions
from bench.quality.coding.world import Part
from bench.quality.measuring import ALL, Measured
from bench.quality.sets import NOW
from bench.quality.vectors import KeptVectors
from crystal_core.cutting.messages import split_message
from crystal_core.embed.builtin import BuiltinEmbedder
from crystal_core.embed.port import Embedder
from crystal_node.base.settings import Settings, child_environment, resolve
from crystal_node.search.finding.finder import Finder
from crystal_node.search.recall.hook import HookEvent, HookInput, Recalled
from crystal_node.search.recall.selection import recall

HYBRID, KEYWORD = "hybrid", "keyword"
COVERAGE, PRECISION, TOKENS = "coverage", "precision", "tokens"
SILENCE, FILLER, LEAK = "silence", "filler", "leak"
NAMES = (COVERAGE, PRECISION, TOKENS, SILENCE, FILLER, LEAK)
_AT_THRESHOLDS = (COVERAGE, PRECISION, SILENCE, TOKENS)
THRESHOLDS = (0.08, 0.1, 0.12, 0.14, 0.16, 0.2, 0.22, 0.24, 0.28, 0.34)
FILLERS = (
    "yes", "ok", "go on", "thanks", "yes please", "do it", "looks good to me", "continue", "no, the other one",
    "great, thanks!", "sure, go ahead", "try again", "please do that", "perfect", "hm", "stop", "and now?",
    "what else?", "keep going", "👍", "ja, mach weiter", "danke", "sí, gracias", "oui, merci", "はい",
)  # fmt: skip
"""What people say between two questions."""


class RecallSet:
    """A home that holds the conversations, and what a hook recalls in it."""

    def __init__(self, corpus: Corpus, settings: Settings, finder: Finder) -> None:
        self.settings = settings
        self.finder = finder
        self._places: dict[str, set[tuple[str, Place]]] = {}
        for session in corpus.sessions:
            for message in session.messages:
                for piece in split_message(message.text):
                    name = sha256(piece.encode()).hexdigest()
                    place = (session.project.name, (session.id, message.id))
                    self._places.setdefault(name, set()).add(place)

    def recalled(self, question: Question, prompt: str, *, words_only: bool) -> Recalled:
        folder = str(self.settings.person_home / question.project.path)
        hook = HookInput(HookEvent.PROMPT, cwd=folder, prompt=prompt)
        return recall(hook, self.settings, lambda: self.finder, NOW, words_only=words_only)

    def figures(self, question: Question, recalled: Recalled) -> dict[str, float]:
        """Of one question. Of prompts at which nothing was told there is neither precision nor leak."""
        found = [self._places.get(name, set()) for name in recalled.ids]
        right = [any(place in question.right for _, place in places) for places in found]
        away = [all(project != question.project.name for project, _ in places) for places in found]
        scores = {TOKENS: float(recalled.tokens)}
        scores |= {COVERAGE: float(any(right))} if question.right else {SILENCE: float(not found)}
        if found:
            scores |= {PRECISION: sum(right) / len(found), LEAK: sum(away) / len(found)}
        return scores


@contextmanager
def recall_set(corpus: Corpus, embedder: Embedder) -> Generator[RecallSet]:
    """Real folders and a real home, in the system's folder for temporary files. The clock stands where the set's does."""
    with tempfile.TemporaryDirectory(prefix="crystal-recall-") as folder:
        home = Path(folder) / ".ldm"
        for name in ("memory", "state"):
            (home / name).mkdir(parents=True, mode=0o700)
        (home / "config.json").write_text(json.dumps({"version": 1, "vault": "00" * 16}))
        for project in corpus.world.projects:
            config = Path(folder) / project.path / ".git" / "config"
            config.parent.mkdir(parents=True)
            if project.repository:
                config.write_text(f'[remote "origin"]\n\turl = https://{project.repository}.git\n')
        with memory_of(corpus, embedder, home / "memory" / "crystal.db"):
            pass
        settings = resolve(environment=child_environment({"CRYSTAL_HOME": str(home), "HOME": folder}))
        with (
            Finder(settings) as finder,
            mock.patch("crystal_node.search.finding.finder.now_ms", return_value=NOW),
        ):
            yield RecallSet(corpus, settings, finder)


def measured(recalls: RecallSet, questions: Sequence[Question]) -> Measured:
    """Figures of all questions, and of filler in the first project."""
    by_mode: dict[str, list[Mapping[str, float]]] = {}
    for mode in (HYBRID, KEYWORD):
        rows: list[Mapping[str, float]] = []
        for question in questions:
            recalled = recalls.recalled(question, question.text, words_only=mode == KEYWORD)
            if recalled.mode != mode and recalled.given:
                raise RuntimeError(f"searched by {recalled.mode}, not {mode}")
            rows.append(recalls.figures(question, recalled))
        for filler in FILLERS:
            told = recalls.recalled(questions[0], filler, words_only=mode == KEYWORD)
            rows.append({FILLER: float(not told.text)})
        by_mode[mode] = rows
    kinds = [question.cls.value for question in questions] + ["filler"] * len(FILLERS)
    return Measured("recall", kinds, by_mode)


def by_threshold(recalls: RecallSet, questions: Sequence[Question], least: Iterable[float]) -> str:
    """Coverage, precision, silence and tokens of all questions, by words and meaning and by words alone, at each threshold."""
    lines = [f"{'':12}{'threshold':>10}" + "".join(f"{name:>12}" for name in _AT_THRESHOLDS)]
    for mode, at in product((HYBRID, KEYWORD), least):
        with (
            mock.patch("crystal_node.search.recall.prompt.RELEVANCE_MIN", at),
            mock.patch("crystal_node.search.recall.prompt.RELEVANCE_MIN_BY_WORDS", at),
        ):
            rows = [
                recalls.figures(each, recalls.recalled(each, each.text, words_only=mode == KEYWORD))
                for each in questions
            ]
        values = ([row[name] for row in rows if name in row] for name in _AT_THRESHOLDS)
        lines.append(
            f"{mode:12}{at:10.2f}" + "".join(f"{sum(each) / max(len(each), 1):12.3f}" for each in values)
        )
    return "\n".join(lines)


def table(found: Measured) -> str:
    """The figures of all questions with their 95 % intervals, and by class without."""
    lines = [f"{'':20}" + "".join(f"{name:>22}" for name in NAMES)]
    for mode in found.by_mode:
        for kind in (ALL, *found.names):
            cells = "".join(f"{_cell(found, mode, kind, name):>22}" for name in NAMES)
            lines.append(f"{f'{mode}, {kind}':20}{cells}")
    return "\n".join(lines)


def _cell(found: Measured, mode: str, kind: str, name: str) -> str:
    mean = found.mean(mode, kind, name)
    if mean is None:
        return ""
    digits = 0 if name == TOKENS else 3
    shown = f"{mean.value:.{digits}f}"
    return f"{shown} ({mean.low:.{digits}f}-{mean.high:.{digits}f})" if kind == ALL else shown


def run(part: Part, embedder: Embedder, questions: Iterable[Question] | None = None) -> Measured:
    """The figures of a part of the corpus."""
    corpus = make_corpus(part)
    asked = list(make_questions(corpus) if questions is None else questions)
    with recall_set(corpus, embedder) as recalls:
        return measured(recalls, asked)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.quality.recall", description="What hooks recall, and what it is worth."
    )
    parser.add_argument(
        "--part", choices=tuple(Part), type=Part, default=Part.DEV, help="held: nobody tunes to it"
    )
    parser.add_argument(
        "--thresholds", action="store_true", help="the figures of other thresholds of relevance"
    )
    options = parser.parse_args(arguments)
    kept = KeptVectors(BuiltinEmbedder())
    if options.thresholds:
        corpus = make_corpus(options.part)
        with recall_set(corpus, kept) as recalls:
            print(by_threshold(recalls, list(make_questions(corpus)), THRESHOLDS))
    else:
        print(table(run(options.part, kept)))
    kept.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
