"""What the built-in embedder promises: the port's rules, the published model's meaning, and that it forgets nothing
that stands late in a text."""

import base64
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tokenizers import Tokenizer

from crystal_core.embed.builtin import BuiltinEmbedder
from crystal_core.embed.port import VECTOR_COMPONENT_BYTES, Embedder, EmbedderClosed
from tests.core.embed.conftest import MODEL

Vector = NDArray[np.float32]

PARAPHRASES = (
    ("How can I undo the last commit?", "Reverting the most recent change in git"),
    (
        "The deployment failed because the certificate had expired.",
        "Our TLS cert ran out, so the release broke.",
    ),
    ("Anna prefers tea to coffee in the morning.", "She'd rather drink tea when she wakes up than coffee."),
    ("Which port does the database listen on?", "The Postgres server accepts connections at 5432."),
    ("We postponed the meeting to Thursday.", "The appointment was moved two days later."),
    ("The unit tests are slow because they sleep.", "Our test suite takes long as it waits for timers."),
)

LATE_FACTS = (
    (
        "The invoice from the electrician was 1,240 euros and is still unpaid.",
        "how much money do we owe the electrician?",
    ),
    (
        """Before I forget, about the cabin in the woods: I hid the spare key behind the blue flower pot beside the
        shed, because the lock of the cabin's front door is stiff and guests keep locking themselves out.""",
        "where is the key of the cottage hidden?",
    ),
    (
        """And something nice at last: my daughter turns seven on the fourteenth of June. What she wants for her
        birthday is a telescope, the small one with the red tube that she saw at the museum.""",
        "what present does my daughter wish for?",
    ),
)
OTHER_MESSAGES = (
    "The cottage cheese in the fridge goes off on Monday.",
    "We painted the garden fence green last summer.",
    "The quarterly report is due at the end of the month.",
    "Turn left behind the church to reach the parking lot.",
    "Tests run in parallel on two cores and take four minutes.",
    "The train to the coast leaves every hour, and tickets are cheaper in advance.",
    "She learned to play the cello when she was seven.",
)


def vectors(embedder: Embedder, text: str) -> list[Vector]:
    return [decode(window) for window in embedder.embed_windows([text])[0]]


def decode(stored: bytes) -> Vector:
    return np.frombuffer(stored, "<f2").astype(np.float32)


def long_message(sentences: int) -> str:
    """Prose on migrating a database, about twenty tokens a sentence, the same sentence only every 1,001."""
    openers = (
        "As agreed,",
        "After the review,",
        "To be safe,",
        "In the end,",
        "For now,",
        "On the old cluster,",
        "Later,",
    )
    subjects = (
        "the schema of the orders table", "the nightly backup", "the read replica", "the connection pool",
        "the query planner", "the index on customer names", "the migration script", "the retry policy",
        "the audit log", "the staging environment", "the cache in front of it",
    )  # fmt: skip
    endings = (
        "was left as it is", "needs another look by somebody else", "turned out slower than expected", "is now documented",
        "was rebuilt without stopping the service", "goes live once the others agree", "has been simplified a good deal",
        "caused no trouble at all", "will be removed with the next release", "was tested with production data",
        "is monitored from today on", "depends on the version of the driver", "was moved to the other team",
    )  # fmt: skip
    lines = (f"{openers[n % 7]} {subjects[n % 11]} {endings[n % 13]}." for n in range(sentences))
    return " ".join(lines)


def test_it_satisfies_the_port(embedder: BuiltinEmbedder) -> None:
    port: Embedder = embedder
    assert port.dimensions == 384
    assert port.identity.isascii()
    assert port.identity.isprintable()
    assert " " not in port.identity
    assert port.identity.startswith("all-MiniLM-L6-v2/int8/")
    assert "/384/" in port.identity


def test_stored_vectors_are_normalised_halves(embedder: BuiltinEmbedder) -> None:
    for windows in embedder.embed_windows(["", "one", "two words", long_message(60)]):
        assert windows
        for stored in windows:
            assert len(stored) == embedder.dimensions * VECTOR_COMPONENT_BYTES
            assert np.linalg.norm(decode(stored)) == pytest.approx(1, abs=1e-3)


def test_a_query_is_single_precision_and_normalised(embedder: BuiltinEmbedder) -> None:
    query = embedder.embed_query("where is the key?")
    assert query.shape == (384,)
    assert query.dtype == np.float32
    assert np.linalg.norm(query) == pytest.approx(1, abs=1e-5)


def test_no_texts_give_no_vectors(embedder: BuiltinEmbedder) -> None:
    assert embedder.embed_windows([]) == []


def test_it_is_the_published_model(embedder: BuiltinEmbedder) -> None:
    """Cosine to vectors of the published float32 weights, computed in double precision by the export script."""
    references = json.loads(Path(__file__).with_name("reference.json").read_text(encoding="utf-8"))
    cosines = [
        float(embedder.embed_query(row["text"]) @ np.frombuffer(base64.b64decode(row["vector"]), "<f4"))
        for row in references
    ]
    assert len(cosines) >= 15
    assert min(cosines) > 0.99
    assert np.mean(cosines) > 0.997


def test_paraphrases_are_nearer_than_anything_else(embedder: BuiltinEmbedder) -> None:
    left = np.stack([embedder.embed_query(one) for one, _ in PARAPHRASES])
    right = np.stack([vectors(embedder, other)[0] for _, other in PARAPHRASES])
    similarity = left @ right.T
    assert list(similarity.argmax(axis=1)) == list(range(len(PARAPHRASES)))
    assert list(similarity.argmax(axis=0)) == list(range(len(PARAPHRASES)))


@pytest.mark.parametrize(("fact", "question"), LATE_FACTS)
def test_what_stands_at_the_end_of_a_long_message_is_found_by_meaning(
    embedder: BuiltinEmbedder, fact: str, question: str
) -> None:
    message = f"{long_message(150)} {fact}"
    assert _count_tokens(message) >= 2000
    query = embedder.embed_query(question)
    best_other = max(float(vectors(embedder, text)[0] @ query) for text in OTHER_MESSAGES)
    scores = [float(window @ query) for window in vectors(embedder, message)]
    assert scores[-1] == max(scores)
    assert scores[-1] > best_other
    assert scores[0] < best_other, "the first window alone would not have found it"


def test_a_text_has_the_same_bytes_in_any_company(embedder: BuiltinEmbedder) -> None:
    texts = [
        "ok",
        "A sentence of a usual length, no more.",
        long_message(9),
        long_message(45),
        "…!?" * 40,
        "",
    ]
    alone = [embedder.embed_windows([text])[0] for text in texts]
    assert embedder.embed_windows(texts) == alone
    assert embedder.embed_windows(texts[::-1]) == alone[::-1]
    assert embedder.embed_windows([*texts, *texts]) == [*alone, *alone]


def test_short_texts_have_the_same_bytes_in_a_batch(embedder: BuiltinEmbedder) -> None:
    """Texts of equal length run together; each must come out as if it had been alone."""
    words = ("time", "work", "house", "water", "people", "city", "music", "garden", "river", "paper", "story")
    texts = [" ".join(words[(n + m) % len(words)] for m in range(1 + n % 20)) for n in range(120)]
    assert len({_count_tokens(text) for text in texts}) == 20
    alone = [embedder.embed_windows([text])[0] for text in texts]
    assert embedder.embed_windows(texts) == alone


def test_the_number_of_threads_and_a_new_start_change_nothing(embedder: BuiltinEmbedder) -> None:
    texts = [long_message(40), "short", LATE_FACTS[0][0]]
    with BuiltinEmbedder(threads=1) as single:
        before = single.embed_windows(texts)
        single.release()
        assert not single.loaded
        assert single.embed_windows(texts) == before
        assert single.identity == embedder.identity
    assert embedder.embed_windows(texts) == before


def test_a_query_is_the_first_window_of_the_same_text(embedder: BuiltinEmbedder) -> None:
    for text in ("where is the key?", long_message(10)):
        stored = embedder.embed_windows([text])[0][0]
        assert embedder.embed_query(text).astype("<f2").tobytes() == stored


def test_threads_may_share_an_embedder_and_release_it_meanwhile(embedder: BuiltinEmbedder) -> None:
    texts = [f"{LATE_FACTS[0][0]} {number}" for number in range(12)]
    expected = [embedder.embed_windows([text])[0] for text in texts]
    stop = threading.Event()
    with BuiltinEmbedder(threads=2) as shared, ThreadPoolExecutor(3) as pool:

        def keep_releasing() -> None:
            while not stop.wait(0.01):
                shared.release()

        def embed(text: str) -> list[bytes]:
            return shared.embed_windows([text])[0]

        releasing = pool.submit(keep_releasing)
        found = list(pool.map(embed, texts))
        stop.set()
        releasing.result()
    assert found == expected


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.characters(), max_size=120))
def test_any_text_has_a_vector(text: str) -> None:
    """Also with lone surrogates, which a command line can hold."""
    embedder = _shared()
    stored = embedder.embed_windows([text])[0][0]
    assert np.isfinite(decode(stored)).all()
    assert np.isfinite(embedder.embed_query(text)).all()


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=200))
def test_a_text_has_no_more_tokens_than_bytes(text: str) -> None:
    """So the limit on windows suffices for a piece."""
    assert _count_tokens(text) <= len(text.encode())


def test_a_huge_query_is_cut_before_it_costs_anything(embedder: BuiltinEmbedder) -> None:
    start = "where is the key to the cabin? " * 60
    assert np.array_equal(embedder.embed_query(start + "." * 10_000_000), embedder.embed_query(start))


def test_a_closed_embedder_says_so() -> None:
    embedder = BuiltinEmbedder()
    embedder.close()
    embedder.close()
    with pytest.raises(EmbedderClosed):
        embedder.embed_query("anything")
    with pytest.raises(EmbedderClosed):
        embedder.embed_windows(["anything"])


def test_no_threads_at_all_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        BuiltinEmbedder(threads=0)


_made: list[BuiltinEmbedder] = []
_tokenizers: list[Tokenizer] = []


def _shared() -> BuiltinEmbedder:
    """For property tests, whose examples can't share a function's fixture."""
    if not _made:
        _made.append(BuiltinEmbedder(threads=1))
    return _made[0]


def _count_tokens(text: str) -> int:
    if not _tokenizers:
        tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        _tokenizers.append(tokenizer)
    return len(_tokenizers[0].encode(text, add_special_tokens=False).ids)
