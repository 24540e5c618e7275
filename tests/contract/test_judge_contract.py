"""The contract of judges, for each of them."""

import importlib.util
from pathlib import Path

import pytest

from crystal_core.search.judge import Judge, JudgeUnavailable
from crystal_node.base.settings import Flags, resolve
from crystal_node.models.judge import CrossEncoderJudge, judge_for
from tests.contract.judge_contract import JudgeContract
from tests.support.overlap_judge import OverlapJudge

_INSTALLED = importlib.util.find_spec("sentence_transformers") is not None
installed = pytest.mark.skipif(
    not _INSTALLED, reason="the extra sentence-transformers is not installed: it brings PyTorch, several GB"
)


class TestByWords(JudgeContract):
    def make(self) -> Judge:
        return OverlapJudge()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    from tests.support.small_cross_encoder import made_cross_encoder

    return made_cross_encoder(tmp_path_factory.mktemp("judge"))


@installed
class TestCrossEncoder(JudgeContract):
    """A model of one layer with the built-in model's tokenizer, made here: the library is real, the hub is not asked."""

    @pytest.fixture(autouse=True)
    def _place(self, small: str) -> None:
        self.place = small

    def make(self) -> CrossEncoderJudge:
        judge = CrossEncoderJudge(self.place)
        judge.prepare()
        return judge

    def test_it_is_ready_when_it_is_loaded_and_until_it_is_released(self) -> None:
        judge = CrossEncoderJudge(self.place)
        ready = [judge.ready]
        for step in (judge.prepare, judge.release):
            step()
            ready.append(judge.ready)
        assert ready == [False, True, False]
        assert judge.scores("loads again", ["by itself"])


@installed
def test_a_model_that_is_not_on_this_machine_is_not_fetched() -> None:
    judge = CrossEncoderJudge("nobody/has-this-one")
    for _ in range(2):
        with pytest.raises(JudgeUnavailable, match="cross-encoder/has-this-one is not whole") as caught:
            judge.prepare()
        assert "search_judge_model" in caught.value.hint
    assert not judge.ready


@installed
def test_a_model_that_sorts_into_classes_is_no_judge(tmp_path: Path) -> None:
    from tests.support.small_cross_encoder import made_cross_encoder

    with pytest.raises(JudgeUnavailable, match="gives 3 numbers"):
        CrossEncoderJudge(made_cross_encoder(tmp_path, labels=3)).prepare()


@installed
def test_a_damaged_model_is_named_without_its_folder(tmp_path: Path) -> None:
    from tests.support.small_cross_encoder import made_cross_encoder

    place = Path(made_cross_encoder(tmp_path))
    (place / "model.safetensors").write_bytes(b"\x10" * 100)
    with pytest.raises(JudgeUnavailable) as caught:
        CrossEncoderJudge(str(place)).prepare()
    assert str(tmp_path) not in str(caught.value)


@pytest.mark.skipif(_INSTALLED, reason="the extra is installed here")
def test_without_its_extra_a_judge_names_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(JudgeUnavailable) as caught:
        CrossEncoderJudge("cross-encoder/ms-marco-MiniLM-L6-v2").scores("a", ["b"])
    assert "memory-crystal[sentence-transformers]" in caught.value.hint
    settings = resolve(Flags(), {"CRYSTAL_HOME": str(tmp_path), "CRYSTAL_SEARCH_JUDGE": "auto"})
    judge, reason = judge_for(settings)
    assert judge is None
    assert "memory-crystal[sentence-transformers]" in reason


def test_none_is_wanted_by_default(tmp_path: Path) -> None:
    assert judge_for(resolve(Flags(), {"CRYSTAL_HOME": str(tmp_path)})) == (None, "")
