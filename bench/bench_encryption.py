"""Databases encrypted at rest against plain ones: import, search by words and hybrid, opening, a cold search, and encrypting.

Both memories hold the same messages and are asked in turns, in one process. Times are the thread's processor time: what the
machine does besides does not count, and encryption is nothing but processor time. What is read from a disk takes as long in
both.
"""

import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.bench_search import short_queries
from bench.harness import Row, ratio_at_most
from bench.memories import NOW, Passages, embedded, filled, passages, sentences
from crystal_core import key_finder
from crystal_core.database import Database
from crystal_core.embed.builtin import BuiltinEmbedder
from crystal_core.encryption import KEY_BYTES, MARKER_NAME, EncryptionState, Marker, key_id
from crystal_core.search.search import Searcher
from crystal_node.base.settings import child_environment
from crystal_node.surfaces.demo.machines import DemoRelay

KEY = bytes(range(KEY_BYTES))
SUBJECTS = 300
FORMS = ("plain", "encrypted")
RATIO_MAX = 1.15
"""How much longer a search may take."""

_Times = dict[str, list[float]]


def run(quick: bool) -> list[Row]:
    size, imported, asked, repeat = (2_000, 500, 20, 3) if quick else (20_000, 4_000, 200, 15)
    key_finder.use(lambda _folder, _wanted: KEY)
    texts = sentences()
    with tempfile.TemporaryDirectory() as name, BuiltinEmbedder() as embedder:
        vectors = embedded(embedder, texts[:SUBJECTS])
        homes = {form: _home(Path(name) / form, form) for form in FORMS}
        memory = passages(size, texts[:SUBJECTS], vectors)
        for home in homes.values():
            filled(home / "crystal.db", memory, embedder.identity).close()
        questions = texts[SUBJECTS : SUBJECTS + asked]
        words = short_queries(questions, asked)
        small = passages(imported, texts[:SUBJECTS], vectors)
        imports = _imports(Path(name), small, embedder.identity, repeat=min(repeat, 7))
        rows = [_row("import", imports, f"{imported:,} messages")]
        rows += _searches(homes, embedder, questions, words, size)
        rows += _openings(homes, embedder, questions[:repeat])
        return [*rows, *_commands(Path(name), repeat)]


def _home(folder: Path, form: str) -> Path:
    folder.mkdir()
    if form == "encrypted":
        marker = Marker(EncryptionState.ENCRYPTED, key_id(KEY))
        (folder / MARKER_NAME).write_bytes(marker.to_bytes())
    return folder


def _imports(folder: Path, memory: Passages, identity: str, *, repeat: int) -> _Times:
    found: _Times = {form: [] for form in FORMS}
    for number in range(repeat):
        for form in FORMS:
            home = _home(folder / f"{form}-{number}", form)
            found[form].append(_taken(lambda: filled(home / "crystal.db", memory, identity).close()))  # noqa: B023
    return found


def _searches(
    homes: dict[str, Path], embedder: BuiltinEmbedder, questions: list[str], words: list[str], size: int
) -> list[Row]:
    open_ = {form: Database.open(home / "crystal.db") for form, home in homes.items()}
    hybrid = {form: Searcher(database, embedder) for form, database in open_.items()}
    by_words = {form: Searcher(database, None) for form, database in open_.items()}
    rows: list[Row] = []
    for name, searchers, queries in (
        ("hybrid search of a sentence", hybrid, questions),
        ("hybrid search of one to four words", hybrid, words),
        ("search by words alone, of a sentence", by_words, questions),
        ("search by words alone, of one to four", by_words, words),
    ):
        found: _Times = {form: [] for form in FORMS}
        for searcher in searchers.values():
            searcher.search(queries[0], now_ms=NOW)
        for query in queries:
            for form, searcher in searchers.items():
                found[form].append(_taken(lambda: searcher.search(query, now_ms=NOW)))  # noqa: B023
        rows.append(_row(name, found, f"{size:,} messages; embedding included", target=True))
    for database in open_.values():
        database.close()
    return rows


def _openings(homes: dict[str, Path], embedder: BuiltinEmbedder, questions: list[str]) -> list[Row]:
    opened: _Times = {form: [] for form in FORMS}
    cold: _Times = {form: [] for form in FORMS}
    for question in questions:
        for form, home in homes.items():
            path = home / "crystal.db"
            opened[form].append(_taken(lambda: Database.open(path).close()))  # noqa: B023

            def search_cold() -> None:
                with Database.open(path) as database:  # noqa: B023
                    Searcher(database, embedder).search(question, now_ms=NOW)  # noqa: B023

            cold[form].append(_taken(search_cold))
    return [
        _row("opening a database", opened, "the key at hand"),
        _row("opening, and the first search", cold, "every vector's sign is read", target=True),
    ]


def _commands(folder: Path, repeat: int) -> list[Row]:
    """The whole command in a process of its own, which has to find the key: in a file, without a passphrase."""
    relay = DemoRelay(folder / "relay")
    relay.start()
    try:
        _crystal(folder / "p", "init", "--role", "core", "--relay", relay.url, "--yes", token=relay.token)
    finally:
        relay.stop()
    _crystal(folder / "p", "remember", "the export runs at dawn")
    shutil.copytree(folder / "p", folder / "e")
    _crystal(folder / "e", "keys", "encrypt")
    found: _Times = {form: [] for form in FORMS}
    for _ in range(repeat):
        for form, home in zip(FORMS, (folder / "p", folder / "e"), strict=True):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            _crystal(home, "search", "--fast", "--json", "export")
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent = (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)
            found[form].append(1000 * spent)
    return [_row("`crystal search --fast --json`, a process", found, "its key in a file", target=True)]


def _crystal(home: Path, *arguments: str, token: str = "") -> None:
    variables = {"CRYSTAL_HOME": str(home), "HOME": str(home.parent), "CRYSTAL_KEY_STORE": "file"}
    if token:
        variables["CRYSTAL_RELAY_ENROLL_TOKEN"] = token
    subprocess.run(
        [sys.executable, "-P", "-m", "crystal_node", *arguments],
        env=child_environment(variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )


def _row(name: str, found: _Times, note: str, *, target: bool = False) -> Row:
    plain, encrypted = (statistics.median(found[form]) for form in FORMS)
    return Row(
        name=name,
        value=encrypted,
        unit="ms",
        baseline="plain",
        baseline_value=plain,
        target=ratio_at_most(RATIO_MAX) if target else None,
        note=note,
    )


def _taken(work: Callable[[], object]) -> float:
    """Milliseconds of this process's processor time."""
    start = time.process_time()
    work()
    return 1000 * (time.process_time() - start)
