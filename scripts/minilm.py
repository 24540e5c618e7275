"""The all-MiniLM-L6-v2 network: its weights, a plain NumPy forward pass, and the graph that Crystal ships.

A BERT encoder (Devlin et al., 2018, arXiv:1810.04805) with 6 layers, 12 heads and 384 dimensions; the mean
of the last layer's tokens, normalised, is the text's vector. The graph reads texts of equal length without
padding, so it needs no mask.

The shipped graph keeps weights and the inputs of its matrix products in 8 bits:

- A product's input is scaled by the largest magnitude of its own row, that is of its own token, just before
  the product. Scaling by the whole tensor, as onnxruntime's `quantize_dynamic` does, makes a text's vector
  depend on what else is in the tensor, and one outlying token costs all others their precision.
- Weights have one scale for each output channel. It is chosen so that 255·(a+b) fits into 16 signed bits for
  each two weights of one sign that are neighbours along the sum: x86 processors without VNNI add such pairs
  of products with saturation. So all processors compute the same integers, and no bit of range is given
  away.
- Before that, each input channel of a product that follows a layer norm is divided by a constant and the
  weights' row is multiplied by it (SmoothQuant: Xiao et al., 2022, arXiv:2211.10438): a few channels of these
  inputs are ten times as large as the rest. The constants come from the magnitudes seen on a sample text.
- The table of words is kept in 8 bits with one scale for each word.
"""

import json
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from scripts.onnx_format import MICROSOFT, Graph, value

LAYERS = 6
HEADS = 12
DIMENSIONS = 384
NORM_EPSILON = 1e-12
TOKENS_MAX = 256
"""What the published model reads of a text, with its two special tokens."""

SMOOTHING = 0.7
"""Share of a channel's magnitude that smoothing moves from the input to the weights."""

Array = NDArray[np.float64]
Weights = dict[str, Array]
Maxima = dict[str, Array]
"""Largest magnitude of each input channel of a matrix product, by the name of the (first) weight."""

_WORDS = "embeddings.word_embeddings.weight"
_MAGNITUDE_MIN = 1e-6
_INT8_MAX = 127
_NEIGHBOURS_MAX = 32767 / 255 - 0.5  # rounding two weights adds up to 1, and the sum is a whole number


def read_safetensors(data: bytes) -> Weights:
    """Parse a safetensors file of float32 (others are left out). Raises ValueError when it is not one."""
    length = int.from_bytes(data[:8], "little")
    body = memoryview(data)[8 + length :]
    weights: Weights = {}
    for name, entry in json.loads(data[8 : 8 + length]).items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            first, last = entry["data_offsets"]
            numbers = np.frombuffer(body[first:last], "<f4")
            weights[name] = numbers.reshape(entry["shape"]).astype(np.float64)
    return weights


def forward(weights: Weights, ids: Sequence[int], maxima: Maxima | None = None) -> Array:
    """Embed one text in double precision. Records the products' input magnitudes in `maxima`."""

    def dense(x: Array, name: str) -> Array:
        if maxima is not None:
            here = np.maximum(np.abs(x).max(axis=0), _MAGNITUDE_MIN)
            maxima[name] = np.maximum(maxima[name], here) if name in maxima else here
        return np.asarray(x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"], np.float64)

    def norm(x: Array, name: str) -> Array:
        centred = x - x.mean(axis=1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + NORM_EPSILON)
        moved = scaled * weights[f"{name}.LayerNorm.weight"] + weights[f"{name}.LayerNorm.bias"]
        return np.asarray(moved, np.float64)

    def heads(x: Array) -> Array:
        return x.reshape(len(ids), HEADS, -1).transpose(1, 0, 2)

    x = norm(weights[_WORDS][list(ids)] + _positions(weights)[: len(ids)], "embeddings")
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}"
        query, key, val = (heads(dense(x, f"{at}.attention.self.{p}")) for p in ("query", "key", "value"))
        scores = query @ key.transpose(0, 2, 1) / math.sqrt(DIMENSIONS // HEADS)
        share = np.exp(scores - scores.max(axis=2, keepdims=True))
        share /= share.sum(axis=2, keepdims=True)
        context = (share @ val).transpose(1, 0, 2).reshape(len(ids), DIMENSIONS)
        x = norm(dense(context, f"{at}.attention.output.dense") + x, f"{at}.attention.output")
        inner = _gelu(dense(x, f"{at}.intermediate.dense"))
        x = norm(dense(inner, f"{at}.output.dense") + x, f"{at}.output")
    mean = x.mean(axis=0)
    return np.asarray(mean / np.linalg.norm(mean), np.float64)


def quantise(weight: Array) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Quantise a matrix (inputs × outputs) to int8 with one scale for each output; see the rule above."""
    positive, negative = np.maximum(weight, 0), np.maximum(-weight, 0)
    single = np.abs(weight).max(axis=0) / _INT8_MAX
    pairs = np.maximum(positive[0::2] + positive[1::2], negative[0::2] + negative[1::2]).max(axis=0)
    scale = np.maximum(np.maximum(single, pairs / _NEIGHBOURS_MAX), _MAGNITUDE_MIN).astype(np.float32)
    whole = _whole(weight / scale)
    sums = whole[0::2].astype(np.int32) + whole[1::2]
    same_sign = (whole[0::2] > 0) == (whole[1::2] > 0)
    if int(np.abs(sums[same_sign]).max(initial=0)) * 255 > 32767:
        raise AssertionError("two neighbouring weights can saturate 16 bits")
    return whole, scale


def build(
    weights: Weights, maxima: Maxima | None, *, weights_file: str, producer: str
) -> tuple[bytes, bytes]:
    """Return the graph and its file of weights: in 8 bits with `maxima`, else in float32, for comparison."""
    graph = Graph(weights_file=weights_file)
    product = _float_product(graph) if maxima is None else _int8_product(graph)

    def plain(values: Array) -> str:
        return graph.constant(values.astype(np.float32))

    def norm(*added: str, name: str, bias: Sequence[str] = ()) -> str:
        """Of a sum. The fused form takes a sixth less time of the whole model than sums and norm one after the other."""
        parts = [plain(weights[f"{name}.LayerNorm.weight"]), plain(weights[f"{name}.LayerNorm.bias"])]
        return graph.add(
            "SkipLayerNormalization",
            [*added, *parts, *bias],
            domain=MICROSOFT,
            epsilon=NORM_EPSILON,
        )

    def dense(x: str, names: Sequence[str], *, after_norm: bool = False) -> list[str]:
        matrices = [weights[f"{name}.weight"].T for name in names]
        if after_norm and maxima is not None:
            scale = _smoothing(maxima[names[0]], matrices)
            x = graph.add("Mul", [x, plain(1 / scale)])
            matrices = [matrix * scale[:, None] for matrix in matrices]
        return product(x, matrices)

    def residual(x: str, update: str, name: str, norm_name: str) -> str:
        return norm(update, x, name=norm_name, bias=[plain(weights[f"{name}.bias"])])

    x = norm(*_embedding(graph, weights, quantised=maxima is not None), name="embeddings")
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}"
        names = [f"{at}.attention.self.{part}" for part in ("query", "key", "value")]
        biases = plain(np.concatenate([weights[f"{name}.bias"] for name in names]))
        parts = [*dense(x, names, after_norm=True), biases]
        context = graph.add("MultiHeadAttention", parts, domain=MICROSOFT, num_heads=HEADS)
        name = f"{at}.attention.output.dense"
        x = residual(x, dense(context, [name])[0], name, f"{at}.attention.output")
        name = f"{at}.intermediate.dense"
        wide = dense(x, [name], after_norm=True)[0]
        inner = graph.add("BiasGelu", [wide, plain(weights[f"{name}.bias"])], domain=MICROSOFT)
        name = f"{at}.output.dense"
        x = residual(x, dense(inner, [name])[0], name, f"{at}.output")
    # As a product, because onnxruntime sums a batch of one in another order than a larger batch.
    ones = _first_tokens(graph, np.ones((1, TOKENS_MAX), np.float32), axis=1)
    total = graph.add("Squeeze", [graph.add("MatMul", [ones, x]), graph.constant(np.array([1], np.int64))])
    graph.add("LpNormalization", [total], output="vector", axis=-1, p=2)
    inputs = [value("ids", "int32", ["windows", "tokens"])]
    outputs = [value("vector", "float32", ["windows", DIMENSIONS])]
    return graph.model(inputs=inputs, outputs=outputs, producer=producer), bytes(graph.weights)


Product = Callable[[str, Sequence[Array]], list[str]]
"""Adds the products of one input with some matrices to a graph and returns their names."""


def _float_product(graph: Graph) -> Product:
    def product(x: str, matrices: Sequence[Array]) -> list[str]:
        return [graph.add("MatMul", [x, graph.constant(matrix.astype(np.float32))]) for matrix in matrices]

    return product


def _int8_product(graph: Graph) -> Product:
    scale = graph.constant(np.array(1 / _INT8_MAX, np.float32))
    zero = graph.constant(np.array(128, np.uint8))
    weight_zero = graph.constant(np.array(0, np.int8))
    last = graph.constant(np.array([-1], np.int64))
    least = graph.constant(np.array(_MAGNITUDE_MIN, np.float32))

    def product(x: str, matrices: Sequence[Array]) -> list[str]:
        size = graph.add("ReduceMax", [graph.add("Abs", [x]), last], keepdims=1)
        size = graph.add("Max", [size, least])
        whole = graph.add("QuantizeLinear", [graph.add("Div", [x, size]), scale, zero])
        results: list[str] = []
        for matrix in matrices:
            values, scales = quantise(matrix)
            parts = [whole, graph.constant(values), scale, graph.constant(scales), zero, weight_zero]
            exact = graph.add("MatMulIntegerToFloat", parts, domain=MICROSOFT)
            results.append(graph.add("Mul", [exact, size]))
        return results

    return product


def _embedding(graph: Graph, weights: Weights, *, quantised: bool) -> tuple[str, str]:
    """Words plus positions. The published model gives all tokens the first token type."""
    table = weights[_WORDS]
    if quantised:
        scale = np.maximum(np.abs(table).max(axis=1, keepdims=True) / _INT8_MAX, _MAGNITUDE_MIN).astype(
            np.float32
        )
        whole = graph.constant(_whole(table / scale))
        # Element type 1 is float32.
        words = graph.add("Cast", [graph.add("Gather", [whole, "ids"])], to=1)
        words = graph.add("Mul", [words, graph.add("Gather", [graph.constant(scale), "ids"])])
    else:
        words = graph.add("Gather", [graph.constant(table.astype(np.float32)), "ids"])
    positions = _first_tokens(graph, _positions(weights).astype(np.float32), axis=0)
    return words, positions


def _first_tokens(graph: Graph, table: NDArray[np.float32], *, axis: int) -> str:
    """As much of a constant table as there are tokens."""
    zero = graph.constant(np.array([0], np.int64))
    length = graph.add("Shape", ["ids"], start=1, end=2)
    return graph.add(
        "Slice", [graph.constant(table), zero, length, graph.constant(np.array([axis], np.int64))]
    )


def _positions(weights: Weights) -> Array:
    types = weights["embeddings.token_type_embeddings.weight"]
    return np.asarray(weights["embeddings.position_embeddings.weight"][:TOKENS_MAX] + types[0], np.float64)


def _smoothing(maxima: Array, matrices: Sequence[Array]) -> Array:
    rows = np.max([np.abs(matrix).max(axis=1) for matrix in matrices], axis=0)
    scale = maxima**SMOOTHING / np.maximum(rows, _MAGNITUDE_MIN) ** (1 - SMOOTHING)
    # The graph keeps the inverse in float32; what the weights get is float32 too.
    return np.asarray(scale / np.exp(np.log(scale).mean()), np.float32).astype(np.float64)


def _whole(values: Array) -> NDArray[np.int8]:
    return np.clip(np.rint(values), -_INT8_MAX, _INT8_MAX).astype(np.int8)


def _gelu(x: Array) -> Array:
    """The exact form, with the error function, as the published model has it."""
    error = np.array([math.erf(number) for number in (x / math.sqrt(2)).flat]).reshape(x.shape)
    return np.asarray(x * 0.5 * (1 + error), np.float64)
