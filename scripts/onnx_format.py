"""Writes an ONNX model: the few protobuf messages that a graph needs, and the weights in a file beside it.

ONNX is a protobuf format; this writes the part of `onnx.proto` that `Graph` uses, so that exporting needs
no other packages than running does, and gives the same bytes wherever it runs. Field numbers are those of
https://github.com/onnx/onnx/blob/main/onnx/onnx.proto (they never change there).

Small constants stand in the graph itself. Large ones go into one file beside it, each aligned to pages,
because onnxruntime maps that file into memory instead of copying it.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

IR_VERSION = 8
OPSET = 18
"""The operators of ONNX 1.13: the oldest set with everything that the graph uses."""

MICROSOFT = "com.microsoft"
"""The domain of onnxruntime's own operators."""

INLINE_BYTES_MAX = 1024
"""Larger constants go into the file of weights."""

WEIGHTS_ALIGNMENT_BYTES = 4096

Attribute = int | float

_ELEMENT_TYPES = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7}
_ATTRIBUTE_FLOAT = 1
_ATTRIBUTE_INT = 2
_EXTERNAL = 1


@dataclass(slots=True)
class Graph:
    """A graph under construction. Values are known by name; `add` and `constant` return the names."""

    nodes: list[bytes] = field(default_factory=list[bytes])
    tensors: list[bytes] = field(default_factory=list[bytes])
    weights: bytearray = field(default_factory=bytearray)
    weights_file: str = "weights.bin"

    def add(
        self,
        operator: str,
        inputs: Sequence[str],
        *,
        domain: str = "",
        output: str | None = None,
        **attributes: Attribute,
    ) -> str:
        """Append a node with one output and return the output's name."""
        name = output or f"{operator}_{len(self.nodes)}"
        body = b"".join(_bytes(1, value.encode()) for value in inputs)
        body += _bytes(2, name.encode()) + _bytes(3, name.encode()) + _bytes(4, operator.encode())
        body += b"".join(_bytes(5, _attribute(key, value)) for key, value in attributes.items())
        self.nodes.append(body + _bytes(7, domain.encode()))
        return name

    def constant(self, values: NDArray[np.generic]) -> str:
        """Store a constant and return its name. Raises KeyError for an element type not in use here."""
        name = f"constant_{len(self.tensors)}"
        body = b"".join(_integer(1, size) for size in values.shape)
        body += _integer(2, _ELEMENT_TYPES[values.dtype.name]) + _bytes(8, name.encode())
        data = np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<")).tobytes()
        if len(data) <= INLINE_BYTES_MAX:
            body += _bytes(9, data)
        else:
            self.weights.extend(bytes(-len(self.weights) % WEIGHTS_ALIGNMENT_BYTES))
            place = {"location": self.weights_file, "offset": len(self.weights), "length": len(data)}
            for key, value in place.items():
                body += _bytes(13, _bytes(1, key.encode()) + _bytes(2, str(value).encode()))
            body += _integer(14, _EXTERNAL)
            self.weights.extend(data)
        self.tensors.append(body)
        return name

    def model(self, *, inputs: Sequence[bytes], outputs: Sequence[bytes], producer: str) -> bytes:
        """Return the model file. `inputs` and `outputs` come from `value`."""
        graph = b"".join(_bytes(1, node) for node in self.nodes) + _bytes(2, b"embedding")
        graph += b"".join(_bytes(5, tensor) for tensor in self.tensors)
        graph += b"".join(_bytes(11, value) for value in inputs)
        graph += b"".join(_bytes(12, value) for value in outputs)
        model = _integer(1, IR_VERSION) + _bytes(2, producer.encode()) + _bytes(7, graph)
        model += _bytes(8, _bytes(1, b"") + _integer(2, OPSET))
        return model + _bytes(8, _bytes(1, MICROSOFT.encode()) + _integer(2, 1))


def value(name: str, element_type: str, shape: Sequence[int | str]) -> bytes:
    """Describe a graph's input or output. A dimension that is a word is open."""
    dimensions = b"".join(
        _bytes(1, _bytes(2, size.encode()) if isinstance(size, str) else _integer(1, size)) for size in shape
    )
    tensor = _integer(1, _ELEMENT_TYPES[element_type]) + _bytes(2, dimensions)
    return _bytes(1, name.encode()) + _bytes(2, _bytes(1, tensor))


def _attribute(name: str, value: Attribute) -> bytes:
    if isinstance(value, int):
        body = _integer(3, value & 0xFFFF_FFFF_FFFF_FFFF) + _integer(20, _ATTRIBUTE_INT)
    else:
        body = _varint(2 << 3 | 5) + struct.pack("<f", value) + _integer(20, _ATTRIBUTE_FLOAT)
    return _bytes(1, name.encode()) + body


def _integer(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _bytes(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
