"""What every provider of vectors must do. A subclass gives one; those that speak HTTP are asked at `server`."""

import json
from collections.abc import Callable, Generator
from typing import TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from crystal_core.embed.identities import IDENTITY_CHARS_MAX
from crystal_core.embed.port import (
    AnotherModel,
    EmbedderClosed,
    EmbedderRefused,
    EmbedderUnavailable,
    EmbeddingError,
)
from crystal_node.models.embedding.embedder import HeldEmbedder
from crystal_node.models.embedding.http import Pause
from crystal_node.models.embedding.remote import RemoteEmbedder
from tests.support.embedding_server import EmbeddingServer, embedding_server
from tests.support.serving import Fault

KEY = "sk-test-0123456789abcdef"
LONG = "The outbox was decided on in spring. " * 120 + "At the very end stands a walrus with spectacles."
ODD = ("", "   \n", "\ud800 half a pair", "ünïcödé 日本語 🦭", "x" * 5000, "a\x00b")


def quickly(_seconds: float) -> None:
    """Waiting that takes no time."""


def numbers(vector: bytes) -> NDArray[np.float32]:
    return np.frombuffer(vector, "<f2").astype(np.float32)


E = TypeVar("E", bound=HeldEmbedder)


class EmbedderContract:
    """``make`` is the provider."""

    @pytest.fixture
    def server(self) -> Generator[EmbeddingServer]:
        with embedding_server() as running:
            yield running

    @pytest.fixture(autouse=True)
    def _closing(self) -> Generator[None]:
        self._made: list[HeldEmbedder] = []
        yield
        for embedder in self._made:
            embedder.close()

    def keep(self, embedder: E) -> E:
        """Closes it when the test is over."""
        self._made.append(embedder)
        return embedder

    def make(self, server: EmbeddingServer) -> HeldEmbedder:
        raise NotImplementedError

    def test_vectors_are_of_unit_length_and_of_the_dimensions_it_says(self, server: EmbeddingServer) -> None:
        embedder = self.make(server)
        windows = embedder.embed_windows(["The relay stores nothing in clear.", "Bread needs time."])
        assert [len(each) for each in windows] == [1, 1]
        for (vector,) in windows:
            assert len(vector) == 2 * embedder.dimensions
            assert float(np.linalg.norm(numbers(vector))) == pytest.approx(1.0, abs=2e-3)
        query = embedder.embed_query("what does the relay store?")
        assert query.dtype == np.float32
        assert query.shape == (embedder.dimensions,)
        assert float(np.linalg.norm(query)) == pytest.approx(1.0, abs=1e-4)

    def test_what_is_said_in_other_words_is_nearer_than_something_else(self, server: EmbeddingServer) -> None:
        embedder = self.make(server)
        (near,), (far,) = embedder.embed_windows(
            ["The relay stores nothing in clear text.", "Bread dough has to rise for an hour."]
        )
        query = embedder.embed_query("the relay stores what in clear text")
        assert query @ numbers(near) > query @ numbers(far)

    def test_a_long_text_has_several_windows_and_its_end_is_found(self, server: EmbeddingServer) -> None:
        embedder = self.make(server)
        (windows,) = embedder.embed_windows([LONG])
        assert len(windows) > 2
        query = embedder.embed_query("a walrus with spectacles")
        best = max(range(len(windows)), key=lambda index: float(query @ numbers(windows[index])))
        assert best == len(windows) - 1

    def test_a_text_has_the_same_vectors_in_any_company(self, server: EmbeddingServer) -> None:
        embedder = self.make(server)
        alone = embedder.embed_windows(["The relay stores nothing in clear."])[0]
        embedder.release()
        texts = ["Bread needs time.", LONG, "The relay stores nothing in clear.", "Bread needs time."]
        among = embedder.embed_windows(texts)
        assert among[2] == alone
        assert among[0] == among[3]

    def test_no_text_is_too_odd(self, server: EmbeddingServer) -> None:
        embedder = self.make(server)
        windows = embedder.embed_windows(ODD)
        assert len(windows) == len(ODD)
        assert all(each and np.isfinite(numbers(vector)).all() for each in windows for vector in each)
        for text in ODD:
            assert np.isfinite(embedder.embed_query(text)).all()
        assert embedder.embed_windows([]) == []

    def test_its_identity_is_one_plain_word_that_the_log_can_hold(self, server: EmbeddingServer) -> None:
        embedder = self.make(server)
        identity = embedder.identity
        assert identity.isascii()
        assert identity.isprintable()
        assert " " not in identity
        assert len(identity) <= IDENTITY_CHARS_MAX
        assert f"/{embedder.dimensions}/" in identity
        embedder.close()

    def test_what_was_closed_embeds_no_more(self, server: EmbeddingServer) -> None:
        embedder = self.make(server)
        embedder.release()
        embedder.close()
        embedder.close()
        with pytest.raises(EmbedderClosed):
            embedder.embed_query("anything")
        with pytest.raises(EmbedderClosed):
            embedder.embed_windows(["anything"])


class ComparingContract(EmbedderContract):
    """What holds for all that can turn into another model under the same name."""

    def make(self, server: EmbeddingServer) -> RemoteEmbedder:
        raise NotImplementedError

    def other(self, server: EmbeddingServer) -> RemoteEmbedder:
        """Another model, that calls itself the same."""
        server.seed = "two"
        return self.make(server)

    def test_another_model_under_the_same_name_is_noticed_before_anything_is_mixed(
        self, server: EmbeddingServer
    ) -> None:
        embedder = self.make(server)
        text = "A text that the vault has, with its vector."
        ((vector,),) = embedder.embed_windows([text])
        again = self.make(server)
        again.expect((text, vector))
        assert again.embed_windows(["A new one."])
        assert len(again.embed_query("a query")) == again.dimensions
        other = self.other(server)
        other.expect((text, vector))
        for ask in (lambda: other.embed_windows(["A new one."]), lambda: other.embed_query("a query")):
            with pytest.raises(AnotherModel, match="another model"):
                ask()


class HttpEmbedderContract(ComparingContract):
    """What holds for all that speak HTTP."""

    def patient(self, server: EmbeddingServer, pause: Pause) -> RemoteEmbedder:
        raise NotImplementedError

    def test_another_size_of_vectors_is_another_model(self, server: EmbeddingServer) -> None:
        embedder = self.make(server)
        embedder.embed_query("one")
        server.dimensions += 16
        with pytest.raises(AnotherModel):
            embedder.embed_windows(["two"])

    def test_too_many_requests_are_waited_for_as_long_as_it_says(self, server: EmbeddingServer) -> None:
        waited: list[float] = []
        server.faults += [Fault(429, headers={"Retry-After": "7"}), Fault(503), Fault(529)]
        embedder = self.patient(server, waited.append)
        assert embedder.embed_windows(["a text"])
        assert waited == [7.0, 2.0, 4.0]

    def test_who_has_no_patience_is_told_when_to_ask_again(self, server: EmbeddingServer) -> None:
        server.faults += [Fault(429, headers={"Retry-After": "600"})]
        embedder = self.make(server)
        with pytest.raises(EmbedderUnavailable) as caught:
            embedder.embed_windows(["a text"])
        assert (caught.value.after, caught.value.paid, len(server.asked)) == (600.0, False, 1)

    def test_a_request_whose_answer_got_lost_is_not_sent_again(self, server: EmbeddingServer) -> None:
        server.faults += [Fault(breaks=True)]
        embedder = self.patient(server, quickly)
        with pytest.raises(EmbedderUnavailable) as caught:
            embedder.embed_windows(["a text"])
        assert caught.value.paid
        assert len(server.asked) == 1

    def test_what_was_paid_for_is_not_asked_for_again_when_the_rest_fails(
        self, server: EmbeddingServer
    ) -> None:
        embedder = self.patient(server, quickly)
        texts = [f"text number {number}" for number in range(150)]
        first = embedder.embed_windows(texts[:20])
        server.faults += [Fault(400)]
        with pytest.raises(EmbedderRefused):
            embedder.embed_windows(texts)
        before = len(server.inputs)
        assert embedder.embed_windows(texts)[:20] == first
        assert not set(texts[:20]) & {text.rpartition(": ")[2] for text in server.inputs[before:]}

    @pytest.mark.parametrize("status", [401, 403, 404, 302])
    def test_what_passes_by_no_waiting_is_refused_and_shows_no_key(
        self, server: EmbeddingServer, status: int
    ) -> None:
        reason = {"error": {"message": f"Incorrect API key provided: {KEY} and Bearer {KEY}"}}
        server.faults += [Fault(status, json.dumps(reason), {"Location": "http://127.0.0.1:1/"})]
        embedder = self.patient(server, quickly)
        with pytest.raises(EmbedderRefused) as caught:
            embedder.embed_windows(["a text"])
        assert str(status) in str(caught.value)
        assert KEY not in f"{caught.value} {caught.value!r} {embedder!r} {vars(embedder)['_http']!r}"
        assert len(server.asked) == 1

    def test_no_message_repeats_a_text(self, server: EmbeddingServer) -> None:
        secret = "the combination of the safe is four seven one one"
        server.faults += [Fault(400, json.dumps({"error": {"message": f"cannot read: {secret}"}}))]
        embedder = self.make(server)
        with pytest.raises(EmbedderRefused) as caught:
            embedder.embed_windows([secret])
        assert "combination" not in str(caught.value)

    def test_a_text_that_is_too_long_for_the_model_is_read_from_its_beginning(
        self, server: EmbeddingServer
    ) -> None:
        server.too_long = 300
        embedder = self.make(server)
        short, long = embedder.embed_windows(["a short one", "long " * 300])
        assert len(short) == len(long) == 1

    @pytest.mark.parametrize(
        "row",
        [[float("nan")], [float("inf")], [1e308] * 3, [0.0] * 48, []],
        ids=["nan", "inf", "huge", "zero", "none"],
    )
    def test_what_is_no_vector_is_refused(self, server: EmbeddingServer, row: list[float]) -> None:
        embedder = self.make(server)
        embedder.embed_query("one")
        server.spoil = lambda rows: [row for _ in rows]
        with pytest.raises(EmbeddingError):
            embedder.embed_windows(["two"])

    def test_vectors_too_few_or_too_many_are_refused(self, server: EmbeddingServer) -> None:
        embedder = self.make(server)
        embedder.embed_query("one")
        spoils: list[Callable[[list[list[float]]], list[list[float]]]] = [
            lambda rows: rows[:-1],
            lambda rows: [*rows, rows[0]],
        ]
        for spoil in spoils:
            server.spoil = spoil
            embedder.release()
            with pytest.raises(EmbedderRefused):
                embedder.embed_windows(["two", "three"])

    @pytest.mark.parametrize(
        "body", ["<html>It works!</html>", '{"embeddings": 5, "data": 5}', "[" * 50_000, "{}"]
    )
    def test_an_answer_that_is_none_is_refused(self, server: EmbeddingServer, body: str) -> None:
        server.faults.append(Fault(200, body))
        with pytest.raises(EmbedderRefused):
            self.make(server).embed_windows(["a text"])

    def test_a_packed_answer_is_not_unpacked(self, server: EmbeddingServer) -> None:
        server.faults.append(Fault(200, "{}", {"Content-Encoding": "gzip"}))
        with pytest.raises(EmbedderRefused, match="packs"):
            self.make(server).embed_windows(["a text"])

    def test_nobody_there_is_unavailable_and_has_not_been_paid(self, server: EmbeddingServer) -> None:
        embedder = self.make(EmbeddingServer("http://127.0.0.1:1"))
        with pytest.raises(EmbedderUnavailable) as caught:
            embedder.embed_query("anything")
        assert not caught.value.paid
        assert caught.value.hint
        assert caught.value.exit_code == 12

    def test_a_key_never_follows_a_redirection(self, server: EmbeddingServer) -> None:
        with embedding_server() as elsewhere:
            server.faults.append(Fault(307, "{}", {"Location": f"{elsewhere.url}/api/embed"}))
            with pytest.raises(EmbedderRefused):
                self.make(server).embed_query("a query")
            assert elsewhere.asked == []

    def test_many_texts_go_in_few_requests_of_bounded_size(self, server: EmbeddingServer) -> None:
        embedder = self.make(server)
        texts = [f"{number} " + "word " * 150 for number in range(300)]
        embedder.embed_windows(texts)
        assert len(server.asked) < 20
        assert all(len(asked.inputs) <= embedder.batch_texts for asked in server.asked)
        assert all(sum(map(len, asked.inputs)) <= embedder.batch_bytes + 8000 for asked in server.asked)
