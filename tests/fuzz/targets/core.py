"""What comes into the memory: parts of snapshots, answers of language models, documents that are cut."""

import struct
from collections.abc import Iterable

from crystal_core.cutting import PassageKind, cut
from crystal_core.cutting.messages import spans, split_message
from crystal_core.deep.answers import read_expansions, read_judgements
from crystal_core.embed.identities import parse_identity
from crystal_core.llm.answers import Unreadable
from crystal_core.snapshots.parts import decode_part, encode_part
from crystal_core.snapshots.rows import PartRows
from crystal_core.state.files import pack_parts, unpack_parts
from crystal_core.weaver.answers import read_facts, read_reflection, read_warm_start
from crystal_core.weaver.quotations import Quotable
from crystal_core.weaver.records import BatchOutcome, decode_outcome, encode_outcome
from crystal_crypto.errors import UNDECODABLE, Malformed
from crystal_mirror.operations import FilePart, LinkProjects, Operation, PutDocument, PutFile, PutSource
from tests.core import builders
from tests.core.builders import new_replica
from tests.fuzz.seeds import with_nested, with_nested_json
from tests.fuzz.target import Target

_QUOTABLE = Quotable(["The port is 8443.", "Another message, about teak."])
_KINDS = list(PassageKind)
_OUTCOME = BatchOutcome("m", 1, 2, 3, 4, "prose")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _part(data: bytes) -> None:
    rows = decode_part(data)
    try:
        written = encode_part(rows)
    except ValueError:
        return  # what is written anew may be over the limit
    again = decode_part(written)
    assert (again.strings, again.memories, again.files) == (rows.strings, rows.memories, rows.files)


def _part_seeds() -> Iterable[bytes]:
    replica = new_replica()
    operations: list[Operation] = [
        builders.capture("a text", "another, longer text"),
        builders.remember("tea, no sugar"),
        PutFile("a/b.md", None, False, 4, (FilePart(bytes(32), 9, 0),)),
        PutSource("notes", "", ("*.md",), (), 0),
        PutDocument("notes", "a.md", bytes(32), 0, "md", 0, 1, ("text",), ("title",)),
        LinkProjects(("src/x", ""), ("", "host/x"), True, 0),
    ]
    for operation in operations:
        builders.apply(replica, operation)
    with replica.export() as export:
        parts = list(export.parts())
    some = PartRows(texts=[b"a text", b"another"], windows=[0, 0])
    return with_nested([encode_part(PartRows()), encode_part(some), *parts])


def _file_parts(data: bytes) -> None:
    assert pack_parts(unpack_parts(data)) == data


def _expansions(data: bytes) -> None:
    assert read_expansions(_text(data)).texts


def _judgements(data: bytes) -> None:
    scores = read_judgements(_text(data), 3)
    assert len(scores) == 3


def _woven(data: bytes) -> None:
    for read in (read_reflection, read_facts, read_warm_start):
        read(_text(data), _QUOTABLE)


def _woven_seeds() -> Iterable[bytes]:
    return with_nested_json(
        [
            b'{"decisions": ["We take teak."], "quotations": ["The port is 8443."], "promises": [], "concerns": [1]}',
            b'{"memories": [{"text": "The port is 8443.", "category": "fact"}], "reference": [{"topic": "a", "text": "b"}]}',
            b'Here it is: {"now": ["x"], "background": "He said \\"The port is 8443.\\""} and more',
        ]
    )


def _outcome(data: bytes) -> None:
    found = decode_outcome(data)
    assert decode_outcome(encode_outcome(found)) == found


def _identity(data: bytes) -> None:
    found = parse_identity(_text(data))
    assert found is None or parse_identity(str(found)) == found


def _document(data: bytes) -> None:
    """The first byte chooses the kind of a document and whether it is Python."""
    if not data:
        return
    kind = _KINDS[data[0] % len(_KINDS)]
    text = _text(data[1:])
    for passage in cut(text, kind, python=data[0] >= 128):
        assert len(passage.text) <= len(text)


def _document_seeds() -> Iterable[bytes]:
    texts = [
        b"# A\n\ntext\n\n## B\n\n```python\ndef f():\n    pass\n```\n\n- one\n- two\n",
        b"---\ntitle: x\n---\n\nA\n=\n\ntext\n",
        b"class A:\n    def f(self):\n        return 1\n\n\ndef g():\n    return '''x\n'''\n",
        b"one paragraph\n\nanother one\n" * 20,
        b"function f() {\n  return 1;\n}\n\nstruct B {\n  int a;\n};\n",
    ]
    return [bytes([first]) + text for text in texts for first in (0, 1, 2, 129)]


def _message(data: bytes) -> None:
    text = _text(data)
    pieces = split_message(text)
    assert all(pieces)
    found = spans(text)
    assert all(start <= end <= len(text) for start, end in found)


TARGETS = (
    Target("core.snapshot_part", _part, (Malformed,), _part_seeds),
    Target(
        "core.file_parts",
        _file_parts,
        (struct.error,),
        lambda: [pack_parts([FilePart(bytes(32), 9, 0), FilePart(bytes(32), 9, bytes(32))])],
    ),
    Target(
        "core.expansions",
        _expansions,
        (Unreadable,),
        lambda: with_nested_json([b'{"lexical": "a", "rephrased": "b", "hypothetical": "c"}']),
        8192,
    ),
    Target(
        "core.judgements",
        _judgements,
        (Unreadable,),
        lambda: with_nested_json([b'```json\n{"scores": {"1": 9, "2": 0, "3": 4}}\n```']),
        8192,
    ),
    Target("core.woven", _woven, (Unreadable,), _woven_seeds, 8192),
    Target(
        "core.outcome",
        _outcome,
        UNDECODABLE,
        lambda: with_nested([encode_outcome(_OUTCOME)]),
    ),
    Target("core.identity", _identity, (), lambda: [b"ollama/nomic-embed-text/768/1", b"openai/a/b/3/x"]),
    Target("core.document", _document, (), _document_seeds, 8192),
    Target(
        "core.message", _message, (), lambda: [b"A sentence. Another one! " * 80, "ä😀 ".encode() * 300], 8192
    ),
)
