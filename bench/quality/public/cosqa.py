"""CoSQA: what people asked the web about Python, and the functions that answer it.

Every function is a document of one piece, or (``as_messages``) a message in a conversation without a person. All are of one
day, so that recency tells them apart by nothing.
"""

import json
from pathlib import Path

from bench.quality.public.corpus import Corpus, Question, Text

FOLDER = "cosqa"
KIND = "web query"
DAY_MS = 1_700_000_000_000
FUNCTIONS_A_SESSION = 50
PARTS = ("dev", "test")


def read_cosqa(folder: Path, *, as_messages: bool = False) -> Corpus | None:
    """The set, or None if the folder does not hold it."""
    if not (folder / FOLDER).is_dir():
        return None
    functions: dict[str, int] = json.loads((folder / FOLDER / "code_idx_map.txt").read_bytes())
    texts = [
        Text(
            function.strip(),
            "cosqa/functions",
            f"cosqa-{number // FUNCTIONS_A_SESSION}",
            str(number),
            "assistant",
            DAY_MS + number,
            "" if as_messages else f"functions/{number}.py",
        )
        for function, number in functions.items()
    ]
    by_number = {int(text.message): text.place for text in texts}
    parts = {
        part: [
            Question(
                KIND,
                one["doc"],
                "",
                DAY_MS + len(texts),
                frozenset({by_number[one["retrieval_idx"]]}),
            )
            for one in json.loads((folder / FOLDER / f"cosqa-retrieval-{part}-500.json").read_bytes())
        ]
        for part in PARTS
    }
    return Corpus("CoSQA", texts, parts)
