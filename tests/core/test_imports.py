"""A cold `crystal search` pays for what it uses: importing search loads nothing heavy."""

import subprocess
import sys

SCRIPT = """
import sys
import crystal_core.search.search
heavy = {"numpy", "onnxruntime", "cryptography", "httpx", "asyncio", "sqlite_vec"}
print(sorted(heavy & set(sys.modules)))
from crystal_core.database import Database
from crystal_core.search.search import search
search(Database.open(":memory:"), "by words alone", now_ms=0, embedder=None)
print(sorted((heavy - {"sqlite_vec"}) & set(sys.modules)))
"""


def test_searching_by_words_loads_neither_numpy_nor_model_nor_cryptography() -> None:
    finished = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=True
    )
    assert finished.stdout == "[]\n[]\n"
