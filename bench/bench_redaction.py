"""How fast text is searched for credentials before it is recorded: source code, conversation, and a tool's answers in JSON.

The baseline reads the same texts once, as words: what any reader of every word would have to spend.
"""

import json
import sysconfig
from pathlib import Path

from bench.harness import Row, interleaved, value_at_least
from bench.memories import sentences
from crystal_node.capture.redaction import redact

_SOURCE_FILES = (
    "argparse",
    "decimal",
    "_pydecimal",
    "inspect",
    "pathlib",
    "tarfile",
    "typing",
    "turtle",
    "zipfile",
    "doctest",
)
_MESSAGE_CHARS = 1200
_TALK_CHARS = 1_000_000
_MB = 1e6
_SPEED_MIN = 20


def run(quick: bool) -> list[Row]:
    """One row for each sort of text, in MB of text a second."""
    repeat = 3 if quick else 11
    return [_row(name, texts, repeat) for name, texts in _texts().items()]


def _texts() -> dict[str, list[str]]:
    folder = Path(sysconfig.get_path("stdlib"))
    code = [path.read_text("utf-8") for name in _SOURCE_FILES if (path := folder / f"{name}.py").is_file()]
    talk = " ".join(sentences())[:_TALK_CHARS]
    messages = [talk[at : at + _MESSAGE_CHARS] for at in range(0, len(talk), _MESSAGE_CHARS)]
    answers = [json.dumps({"stdout": text[:20_000], "code": 0}) for text in code]
    return {"source code": code, "messages of 1,200 characters": messages, "tools' answers in JSON": answers}


def _row(name: str, texts: list[str], repeat: int) -> Row:
    size = sum(map(len, texts)) / _MB

    def search() -> None:
        for text in texts:
            redact(text)

    def words() -> None:
        for text in texts:
            set(text.split())

    timings = interleaved({"redact": search, "words": words}, repeat=repeat)
    return Row(
        name=f"redaction of {name}",
        value=size / timings["redact"].median,
        unit="MB/s",
        baseline="its distinct words",
        baseline_value=size / timings["words"].median,
        target=value_at_least(_SPEED_MIN),
    )
