"""Operations, batches and keys as bytes: round trips, strictness, limits."""

import unicodedata
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal_crypto.errors import Malformed, TooLarge
from crystal_mirror.entries.batches import Batch, decode_batch, encode_batch
from crystal_mirror.file_paths import conflict_form, conflict_path, folded
from crystal_mirror.operations import (
    CHANGES_MAX,
    PIECE_BYTES_MAX,
    PIECES_MAX,
    PUT_BYTES_MAX,
    Amend,
    Capture,
    ChangeFiles,
    DropDocument,
    DropFile,
    DropSource,
    Forget,
    LinkProjects,
    Operation,
    Piece,
    PutDocument,
    PutFile,
    PutSource,
    Remember,
    decode_operation,
    encode_operation,
)
from crystal_mirror.store_keys import StoreKeys
from crystal_mirror.types import Origin, StateDigest, TableSum

names = st.text(st.characters(codec="utf-8"), max_size=40)
texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=200)
moments = st.integers(0, 2**53)
models = st.text(
    st.characters(codec="utf-8").filter(lambda each: unicodedata.category(each) != "Cc"), max_size=40
)
pieces = st.builds(Piece, texts, names, moments, names, st.integers(0, 1000), models)
captures = st.builds(
    Capture, names, names, names, names, names, st.lists(pieces, min_size=1, max_size=4).map(tuple)
)
hashes = st.binary(min_size=32, max_size=32)
shown = st.text(
    st.characters(codec="utf-8").filter(lambda each: unicodedata.category(each) != "Cc"),
    min_size=1,
    max_size=40,
)
scopes = st.none() | st.just("") | shown
remembers = st.builds(
    Remember,
    texts,
    names,
    names,
    moments,
    st.integers(0, 100),
    st.lists(hashes, max_size=3).map(tuple),
    scopes,
)
amends = st.builds(
    Amend,
    hashes,
    st.none() | names,
    st.none() | st.integers(0, 100),
    st.sampled_from((None, "active", "retired")),
    names,
    moments,
    scopes,
)
links = st.builds(
    LinkProjects,
    st.tuples(shown, st.just("")),
    st.tuples(st.just(""), shown),
    st.booleans(),
    moments,
)
sources = st.builds(PutSource, shown, names, st.tuples(names), st.tuples(), moments)


@st.composite
def documents(draw: st.DrawFn) -> PutDocument:
    written = draw(st.lists(texts, max_size=3))
    first = draw(st.integers(0, 10)) if written else 0
    total = first + len(written) + (draw(st.integers(0, 5)) if written else 0)
    titles = tuple(draw(names) for _ in written)
    version, kind = draw(hashes), draw(names)
    return PutDocument(
        draw(shown), draw(shown), version, draw(moments), kind, first, total, tuple(written), titles
    )


changes = st.builds(
    ChangeFiles,
    st.lists(
        st.one_of(
            st.builds(
                PutFile,
                st.from_regex("[a-z]{4,6}", fullmatch=True),
                st.none(),
                st.booleans(),
                moments,
                st.just(()),
            ),
            st.builds(
                DropFile,
                st.from_regex("[a-z]{4,6}", fullmatch=True),
                st.just((bytes(16), bytes(8), 3)),
            ),
        ),
        min_size=1,
        max_size=4,
        unique_by=lambda change: change.path,
    ).map(tuple),
)
forgets = st.builds(Forget, st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=4).map(tuple))
operations = st.one_of(
    captures,
    remembers,
    amends,
    forgets,
    changes,
    sources,
    links,
    documents(),
    st.builds(DropSource, shown),
    st.builds(DropDocument, shown, shown),
)
origins = st.builds(
    Origin,
    st.binary(min_size=16, max_size=16),
    st.binary(min_size=8, max_size=8),
    st.integers(0, 2**53),
)


@given(operations)
def test_an_operation_survives_its_encoding(operation: Operation) -> None:
    assert decode_operation(encode_operation(operation)) == operation


@given(st.binary(max_size=300))
def test_random_bytes_are_refused_as_malformed_and_nothing_else(data: bytes) -> None:
    try:
        decode_operation(data)
    except Malformed:
        return
    assert decode_operation(data) is not None


@given(captures, st.data())
def test_a_cut_operation_is_refused(operation: Capture, data: st.DataObject) -> None:
    encoded = encode_operation(operation)
    with pytest.raises(Malformed):
        decode_operation(encoded[: data.draw(st.integers(0, len(encoded) - 1))])


def test_unknown_kinds_and_extra_fields_are_refused() -> None:
    whole = ["pd", "notes", "a.md", bytes(32), 0, "md", 0, 1, ["text"], ["title"]]
    assert isinstance(decode_operation(msgspec.msgpack.encode(whole)), PutDocument)
    empty = [*whole[:7], 0, [], []]
    assert isinstance(decode_operation(msgspec.msgpack.encode(empty)), PutDocument)
    wrong: list[list[object]] = [
        ["x", 1],
        ["r", "text", "fact", "agent", 0, "more"],
        ["r", "text", "fact", "agent", 0, 101],
        ["r", "text", "fact", "agent", 0, 100, [bytes(32)] * 17],
        ["r", "text", "fact", "agent", 0, 100, [], 7],
        ["r", "text", "fact", "agent", 0, 100, [], "two\nlines"],
        ["r", "text", "fact", "agent", 0, 100, [], "host/a/b", "more"],
        ["a", bytes(32), None, None, None, "agent", 0, "\x1b[31m"],
        ["a", bytes(32), None, None, None, "agent", 0, "host/a/b", "more"],
        ["lp", ["src/x", ""], ["", ""], True, 0],
        ["lp", ["src/x", ""], ["src/x", ""], True, 0],
        ["lp", ["src/x", ""], ["", "two\nlines"], True, 0],
        ["lp", ["src/x", ""], ["", "host/a/b"], 1, 0],
        ["lp", ["src/x", ""], ["", "host/a/b"], True, 0, "more"],
        ["lp", ["src/x"], ["", "host/a/b"], True, 0],
        ["a", bytes(32), None, None, "asleep", "agent", 0],
        ["a", bytes(31), None, None, None, "agent", 0],
        ["ps", "", "", [], [], 0],
        ["ps", "two\nlines", "", [], [], 0],
        ["dd", "notes", "\x1b[31m"],
        [*whole[:6], 1, 1, *whole[8:]],
        [*whole[:8], [], []],
        [*whole[:9], []],
        ["r", "", "", "", 0],
    ]
    refused: list[object] = [*wrong, {"text": "x"}]
    for value in refused:
        with pytest.raises(Malformed):
            decode_operation(msgspec.msgpack.encode(value))


def test_a_remember_of_before_it_had_a_confidence_is_as_sure_as_can_be() -> None:
    old = decode_operation(msgspec.msgpack.encode(["r", "text", "fact", "agent", 0]))
    assert old == Remember("text", "fact", "agent", 0, 100, ())


def test_what_states_no_scope_has_the_bytes_of_before_there_were_scopes() -> None:
    old: list[list[object]] = [
        ["r", "text", "fact", "agent", 0, 90, [bytes(32)]],
        ["a", bytes(32), None, 60, "active", "agent", 0],
    ]
    for value in old:
        data = msgspec.msgpack.encode(value)
        operation = decode_operation(data)
        assert isinstance(operation, Remember | Amend)
        assert operation.scope is None
        assert encode_operation(operation) == data


@pytest.mark.parametrize("scope", ["", "host/owner/name", "work/küche"])
def test_a_scope_survives_its_encoding(scope: str) -> None:
    for operation in (
        Remember("text", "fact", "agent", 0, scope=scope),
        Amend(bytes(32), None, None, None, "agent", 0, scope),
    ):
        assert decode_operation(encode_operation(operation)) == operation


def test_linked_projects_survive_their_encoding() -> None:
    for linked in (True, False):
        operation = LinkProjects(("work/app", ""), ("", "host/owner/app"), linked, 5)
        assert decode_operation(encode_operation(operation)) == operation


def test_limits_are_checked_when_encoding_and_when_decoding() -> None:
    long = "ä" * (PIECE_BYTES_MAX // 2 + 1)
    with pytest.raises(TooLarge):
        encode_operation(Remember(long, "", "", 0))
    piece = Piece("x" * 2000, "user", 0, "", 0)
    with pytest.raises(TooLarge):
        encode_operation(Capture("a", "s", "", "", "", (piece,) * 200))
    with pytest.raises(Malformed):
        encode_operation(Capture("a", "s", "", "", "", (piece,) * (PIECES_MAX + 1)))
    with pytest.raises(TooLarge):
        decode_operation(bytes(PUT_BYTES_MAX + 1))


@given(
    st.lists(st.tuples(origins, st.binary(min_size=1, max_size=50)), max_size=4),
    st.lists(origins, max_size=4),
    st.lists(st.lists(st.binary(min_size=6, max_size=6), max_size=3).map(tuple), max_size=4),
)
def test_a_batch_survives_its_encoding(
    operations: list[tuple[Origin, bytes]], done: list[Origin], vectors: list[tuple[bytes, ...]]
) -> None:
    batch = Batch(tuple(operations), tuple(done), tuple(vectors), "model", bytes(32))
    assert decode_batch([frame.data for frame in encode_batch(batch)]) == batch


def test_a_batch_whose_vectors_do_not_add_up_is_refused() -> None:
    batch = Batch((), (), ((b"123456",),), "model", bytes(32))
    frames = [frame.data for frame in encode_batch(batch)]
    for bad in (frames[1] + b"x", frames[1][:-1], b""):
        with pytest.raises(Malformed):
            decode_batch([frames[0], bad])
    with pytest.raises(Malformed):
        decode_batch([*frames, b"one operation too many"])
    with pytest.raises(Malformed):
        decode_batch([])


@given(st.binary(max_size=200), st.binary(max_size=50))
def test_random_frames_are_refused_as_malformed_and_nothing_else(head: bytes, vectors: bytes) -> None:
    with suppress(Malformed):
        decode_batch([head, vectors])


@given(origins.filter(lambda origin: origin.sequence < 10**16))
def test_stream_keys_parse_back(origin: Origin) -> None:
    keys = StoreKeys(bytes(16))
    assert keys.parse_stream(keys.conversation(*origin)) == origin


@pytest.mark.parametrize(
    "tail",
    [
        "x",
        "/1",
        "0" * 32 + "." + "0" * 16 + "/1",
        "Z" * 32 + "." + "0" * 16 + "/" + "0" * 16,
        "../../devlog/0",
    ],
)
def test_junk_keys_are_not_streams(tail: str) -> None:
    keys = StoreKeys(bytes(16))
    assert keys.parse_stream(keys.conversations_prefix + tail) is None


def test_a_digest_depends_on_names_sums_and_counts() -> None:
    one = TableSum("a", bytes(32), 1)
    base = StateDigest.of([one, TableSum("b", bytes(32), 2)])
    assert StateDigest.of([TableSum("b", bytes(32), 2), one]) == base
    others = [
        StateDigest.of([one]),
        StateDigest.of([one, TableSum("b", bytes(32), 3)]),
        StateDigest.of([one, TableSum("c", bytes(32), 2)]),
        StateDigest.of([one, TableSum("b", b"\1" * 32, 2)]),
    ]
    assert len({digest.hex() for digest in [base, *others]}) == 5


def test_one_operation_changes_each_file_once_and_a_bounded_number() -> None:
    one = PutFile("a.md", None, False, 5, ())
    many = tuple(PutFile(f"{number}.md", None, False, 5, ()) for number in range(CHANGES_MAX + 1))
    assert decode_operation(encode_operation(ChangeFiles(many[1:]))) == ChangeFiles(many[1:])
    for refused in ((), (one, one), (one, DropFile("a.md", (bytes(16), bytes(8), 3))), many):
        with pytest.raises(Malformed):
            encode_operation(ChangeFiles(refused))
    with pytest.raises(Malformed):
        encode_operation(ChangeFiles((one, PutFile("../b.md", None, False, 5, ()))))


def test_one_operation_changes_no_two_files_that_one_conflict_path_would_keep() -> None:
    names = [f"{'n' * 160}{number:04}.md" for number in range(CHANGES_MAX)]
    puts = [PutFile(name, None, False, 5, ()) for name in names]
    with pytest.raises(Malformed, match="conflict paths"):
        encode_operation(ChangeFiles(tuple(puts)))
    for put in puts[:3]:  # each alone, and beside others, is as good as any
        assert encode_operation(ChangeFiles((put, PutFile("a.md", None, False, 5, ()))))


_STEMS = st.builds(
    "{}{}{}".format,
    st.text("ab. ", max_size=9),
    st.sampled_from(["n" * 140, "n" * 165]),
    st.text("ab. ", max_size=9),
)


@given(st.lists(_STEMS, min_size=2, max_size=4), st.integers(0, 2**53), st.binary(min_size=16, max_size=16))
def test_paths_whose_conflict_forms_differ_have_conflict_paths_that_differ(
    stems: list[str], sequence: int, device: bytes
) -> None:
    forms = {conflict_form(f"{stem}.md"): f"{stem}.md" for stem in stems}
    assert len({folded(conflict_path(path, device, sequence)) for path in forms.values()}) == len(forms)


@given(st.text(st.characters(max_codepoint=127)) | st.text())
def test_a_path_is_folded_as_the_protocol_says_also_where_that_is_done_in_a_shorter_way(path: str) -> None:
    assert folded(path) == unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())
