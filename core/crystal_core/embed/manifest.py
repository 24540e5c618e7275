"""The manifest of the shipped model, and verification of its files.

`manifest.json` lies beside the model's files and holds the size and SHA-256 of each. The export script writes it. Two
checks use it:

- `check_quickly` reads only the small files (about a millisecond): the graph and the tokenizer, before they are parsed.
- `check` reads all 23 MB (15 to 30 ms), at every load, before the first vector, and when the installation is verified.
"""

import hashlib
from pathlib import Path

import msgspec

from crystal_core.embed.port import ModelDamaged
from crystal_crypto.errors import UNDECODABLE

MANIFEST_FILE = "manifest.json"
GRAPH_FILE = "model.onnx"
WEIGHTS_FILE = "weights.bin"
TOKENIZER_FILE = "tokenizer.json"

MANIFEST_BYTES_MAX = 64 * 1024
SMALL_FILE_BYTES_MAX = 4 * 1024 * 1024
"""Files up to this size are hashed before they are parsed."""

_READ_BYTES = 1024 * 1024
_REVISION_DIGITS = 12


class ModelFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of the model: size in bytes and SHA-256 in lower-case hex."""

    bytes: int
    sha256: str


class ModelSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The published weights: revision, and SHA-256 of the file."""

    revision: str
    weights_sha256: str


class ModelManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of `manifest.json`, with its own hash as the model's revision."""

    model: str
    quantisation: str
    dimensions: int
    tokens_max: int
    source: ModelSource
    files: dict[str, ModelFile]
    revision: str = ""

    def check_quickly(self, directory: Path) -> None:
        """Compare the sizes of all files and the hashes of the small ones. Raises `ModelDamaged`."""
        for name, expected in self.files.items():
            _check_size(directory / name, expected)
            if expected.bytes <= SMALL_FILE_BYTES_MAX:
                _check_hash(directory / name, expected)

    def check(self, directory: Path) -> None:
        """Compare the sizes and hashes of all files. Raises `ModelDamaged`."""
        for name, expected in self.files.items():
            _check_size(directory / name, expected)
            _check_hash(directory / name, expected)


_decoder = msgspec.json.Decoder(ModelManifest)


def read_manifest(directory: Path) -> ModelManifest:
    """Read the manifest in `directory`. Raises `ModelDamaged`."""
    path = directory / MANIFEST_FILE
    try:
        with path.open("rb") as file:
            data = file.read(MANIFEST_BYTES_MAX + 1)
        if len(data) > MANIFEST_BYTES_MAX:
            raise ModelDamaged(f"the embedding model's {path.name} is larger than any real one")
        manifest = _decoder.decode(data)
    except OSError as error:
        raise ModelDamaged(f"the embedding model's {path.name} cannot be read: {error.strerror}") from error
    except UNDECODABLE as error:
        raise ModelDamaged(f"the embedding model's {path.name} is not a manifest: {error}") from error
    missing = {GRAPH_FILE, WEIGHTS_FILE, TOKENIZER_FILE} - manifest.files.keys()
    if missing or manifest.revision:
        raise ModelDamaged(f"the embedding model's {path.name} does not describe the model that is shipped")
    revision = hashlib.sha256(data).hexdigest()[:_REVISION_DIGITS]
    return msgspec.structs.replace(manifest, revision=revision)


def _check_size(path: Path, expected: ModelFile) -> None:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise ModelDamaged(f"the embedding model's {path.name} cannot be read: {error.strerror}") from error
    if size != expected.bytes:
        raise ModelDamaged(f"the embedding model's {path.name} has {size} bytes, not {expected.bytes}")


def _check_hash(path: Path, expected: ModelFile) -> None:
    digest = hashlib.sha256()
    try:
        with path.open("rb", buffering=0) as file:
            while block := file.read(_READ_BYTES):
                digest.update(block)
    except OSError as error:
        raise ModelDamaged(f"the embedding model's {path.name} cannot be read: {error.strerror}") from error
    if digest.hexdigest() != expected.sha256:
        raise ModelDamaged(f"the embedding model's {path.name} is damaged: its SHA-256 is not the manifest's")
