"""A model that is not the shipped one is refused by name, before a vector of it can be stored."""

import json
from pathlib import Path
from typing import Any

import pytest

from crystal_core.embed import manifest as manifest_module
from crystal_core.embed.builtin import BuiltinEmbedder
from crystal_core.embed.manifest import GRAPH_FILE, MANIFEST_FILE, TOKENIZER_FILE, WEIGHTS_FILE, read_manifest
from crystal_core.embed.port import EmbeddingError, ModelDamaged
from crystal_core.embed.session import open_session
from tests.core.embed.conftest import MODEL

MODEL_FILES = (GRAPH_FILE, WEIGHTS_FILE, TOKENIZER_FILE)


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


def test_the_shipped_files_are_those_of_the_manifest_with_licence_and_notice() -> None:
    manifest = read_manifest(MODEL)
    manifest.check(MODEL)
    assert set(manifest.files) == set(MODEL_FILES)
    assert "Apache License" in (MODEL / "LICENSE").read_text(encoding="utf-8")
    notice = (MODEL / "NOTICE").read_text(encoding="utf-8")
    assert manifest.model in notice
    assert manifest.source.revision in notice
    assert "Changes made" in notice


def test_an_intact_copy_works_and_is_the_same_model(embedder: BuiltinEmbedder, model_copy: Path) -> None:
    with BuiltinEmbedder(directory=model_copy) as copy:
        assert copy.identity == embedder.identity
        assert copy.embed_windows(["the same"]) == embedder.embed_windows(["the same"])


@pytest.mark.parametrize("name", MODEL_FILES)
@pytest.mark.parametrize("where", ["start", "middle", "end"])
def test_one_flipped_bit_is_never_stored(model_copy: Path, name: str, where: str) -> None:
    size = (model_copy / name).stat().st_size
    flip(model_copy / name, {"start": 0, "middle": size // 2, "end": size - 1}[where])
    with BuiltinEmbedder(directory=model_copy) as damaged, pytest.raises(ModelDamaged, match=name) as caught:
        damaged.embed_windows(["anything"])
    assert caught.value.exit_code == 8
    assert "install" in caught.value.hint.lower()


@pytest.mark.parametrize("name", MODEL_FILES)
def test_a_query_refuses_a_file_with_one_flipped_bit(model_copy: Path, name: str) -> None:
    flip(model_copy / name, 1000)
    with BuiltinEmbedder(directory=model_copy) as damaged, pytest.raises(ModelDamaged, match=name):
        damaged.embed_query("anything")


@pytest.mark.parametrize("name", MODEL_FILES)
def test_a_cut_or_missing_file_is_noticed_by_a_query(model_copy: Path, name: str) -> None:
    path = model_copy / name
    path.write_bytes(path.read_bytes()[:-1])
    with BuiltinEmbedder(directory=model_copy) as cut, pytest.raises(ModelDamaged, match="bytes, not"):
        cut.embed_query("anything")
    path.unlink()
    with (
        BuiltinEmbedder(directory=model_copy) as missing,
        pytest.raises(ModelDamaged, match="cannot be read"),
    ):
        missing.embed_query("anything")


def test_exchanged_weights_are_refused_by_a_query_and_after_each_release(model_copy: Path) -> None:
    path = model_copy / WEIGHTS_FILE
    whole = path.read_bytes()
    with BuiltinEmbedder(directory=model_copy) as embedder:
        embedder.embed_query("anything")
        embedder.release()
        path.write_bytes(b"\xff" * len(whole))
        for _ in range(2):
            with pytest.raises(ModelDamaged, match=WEIGHTS_FILE):
                embedder.embed_query("anything")
            assert not embedder.loaded
        with pytest.raises(ModelDamaged, match=WEIGHTS_FILE):
            embedder.embed_windows(["anything"])
        path.write_bytes(whole)
        embedder.embed_query("anything")


def test_a_check_can_be_repeated_after_the_files_were_found_whole(model_copy: Path) -> None:
    with BuiltinEmbedder(directory=model_copy) as embedder:
        embedder.check()
        flip(model_copy / WEIGHTS_FILE, 12345)
        embedder.check()
        with pytest.raises(ModelDamaged, match=WEIGHTS_FILE):
            embedder.check(again=True)


@pytest.mark.parametrize(
    "change",
    [
        {"dimensions": "384"},
        {"files": {}},
        {"files": {GRAPH_FILE: {"bytes": 1, "sha256": ""}}},
        {"surprise": 1},
        {"revision": "0123456789ab"},
    ],
)
def test_a_manifest_of_another_form_is_refused(model_copy: Path, change: dict[str, Any]) -> None:
    path = model_copy / MANIFEST_FILE
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **change}), encoding="utf-8")
    with pytest.raises(ModelDamaged, match=MANIFEST_FILE):
        read_manifest(model_copy)


def test_a_manifest_that_is_none_is_refused(model_copy: Path) -> None:
    path = model_copy / MANIFEST_FILE
    for content in (b"", b"{", b"[]", b"{}", b"\xff" * 100):
        path.write_bytes(content)
        with pytest.raises(ModelDamaged, match="not a manifest"):
            read_manifest(model_copy)
    path.write_bytes(b" " * (manifest_module.MANIFEST_BYTES_MAX + 1))
    with pytest.raises(ModelDamaged, match="larger"):
        read_manifest(model_copy)
    path.unlink()
    with pytest.raises(ModelDamaged, match="cannot be read"):
        read_manifest(model_copy)


def test_any_change_of_the_files_would_be_another_identity(model_copy: Path) -> None:
    before = BuiltinEmbedder(directory=model_copy).identity
    path = model_copy / MANIFEST_FILE
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["files"][WEIGHTS_FILE]["sha256"] = "0" * 64
    path.write_text(json.dumps(manifest), encoding="utf-8")
    assert BuiltinEmbedder(directory=model_copy).identity != before


def test_a_graph_that_onnxruntime_cannot_run_is_a_clear_error(tmp_path: Path) -> None:
    graph = tmp_path / "strange.onnx"
    graph.write_bytes(b"\x08\x08\x3a\x00not a graph")
    with pytest.raises(EmbeddingError, match=r"cannot run strange\.onnx") as caught:
        open_session(graph)
    assert "keyword" in caught.value.hint
