"""The vectors about operations that change several files, and about captures with the models that answered."""

import hashlib
from collections.abc import Iterator, Sequence

import msgspec

from tests.vectors.craft import fixed
from tests.vectors.vectorfile import Vector

_Change = list[object]
_VERSION = [fixed("maker of a file", 16), fixed("its incarnation", 8), 3]
_PART = [fixed("a part's content", 32), 5]
_LONG = "n" * 160
"""So long that the longest mark of a conflict cuts it."""


def cases() -> Iterator[Vector]:
    yield from _good()
    yield from _of_paths()
    yield from _of_form()
    yield from _of_models()


def _put(path: str, *parts: object) -> _Change:
    return ["p", path, None, False, 5, list(parts or [_PART])]


def _drop(path: str) -> _Change:
    return ["d", path, _VERSION]


def _packed(changes: Sequence[object]) -> bytes:
    return msgspec.msgpack.encode(["cf", changes])


def _success(name: str, what: str, changes: Sequence[_Change]) -> Vector:
    paths = "\n".join(str(one[1]) for one in changes)
    fields = {"what": what, "expect": "success", "changes": str(len(changes))}
    fields["paths"] = hashlib.sha256(paths.encode()).hexdigest()
    return Vector("operation", name, fields, _packed(changes))


def _bad(name: str, what: str, body: bytes) -> Vector:
    return Vector("operation", name, {"what": what, "expect": "malformed"}, body)


def _good() -> Iterator[Vector]:
    yield _success("put_and_drop", "a new file, and one that was deleted", [_put("new.md"), _drop("old.md")])
    yield _success("one_change", "one change alone", [_put("new.md")])
    named = _put("new.md", [*_PART, 2], [*_PART, fixed("a blob's name", 32)])
    yield _success("parts_with_turn_and_name", "parts that say a turn and a blob's name", [named])
    yield _success(
        "one_name_in_two_folders", "the same name in two folders", [_put("a/x.md"), _put("b/x.md")]
    )
    early = [_put(f"{number}{_LONG}.md") for number in range(9)]
    yield _success("long_names_that_differ_early", "names that differ where no mark cuts them", early)
    most = [_put(f"{number}.md") for number in range(1024)]
    yield _success("changes_1024", "as many changes as there may be", most)


def _of_paths() -> Iterator[Vector]:
    def case(name: str, what: str, *changes: _Change) -> Vector:
        return _bad(name, what, _packed(changes))

    yield case("same_path_twice", "two puts of one path", _put("a.md"), _put("a.md"))
    yield case("put_and_drop_of_one_path", "a put and a drop of one path", _put("a.md"), _drop("a.md"))
    yield case("paths_that_differ_by_case", "paths of one folded form", _put("a.md"), _put("A.md"))
    yield case(
        "paths_that_fold_alike", "paths of one folded form: a sharp s and ss", _put("straße"), _put("strasse")
    )
    late = [_put(f"{_LONG}{number}.md") for number in range(2)]
    yield case("long_names_that_differ_late", "names that the longest mark cuts to one", *late)
    many = [_put(f"{_LONG}{number:04}.md") for number in range(1024)]
    yield case("long_names_1024", "1,024 names that the longest mark cuts to one", *many)
    deep = "/".join(["d" * 199] * 4)
    up = [_put(f"{deep}/{letter * 150}/{_LONG}.md") for letter in "ab"]
    yield case("folders_that_a_mark_leaves", "a marked path that is too long moves up, both to one", *up)
    yield case("path_that_climbs", "a path with ..", _put("a.md"), _put("../b.md"))
    yield case("path_absolute", "an absolute path", _drop("/b.md"))
    yield case("path_empty", "an empty path", _put(""))


def _of_form() -> Iterator[Vector]:
    good = _packed([_put("a.md"), _drop("b.md")])
    yield _bad("no_changes", "no change at all", _packed([]))
    yield _bad("changes_1025", "one change too many", _packed([_drop(f"{one}.md") for one in range(1025)]))
    yield _bad(
        "change_of_its_own_kind", "several changes within several changes", _packed([["cf", [_put("a.md")]]])
    )
    yield _bad("change_of_another_kind", "a capture among the changes", _packed([["ds", "notes"]]))
    yield _bad("put_without_parts", "a put with a field too few", _packed([_put("a.md")[:-1]]))
    yield _bad("put_with_more", "a put with a field too many", _packed([[*_put("a.md"), 1]]))
    yield _bad("drop_of_no_version", "a drop that names no version", _packed([["d", "a.md", None]]))
    yield _bad("part_of_no_bytes", "a part of length 0", _packed([_put("a.md", [_PART[0], 0])]))
    yield _bad("part_too_long", "a part over 4 MiB", _packed([_put("a.md", [_PART[0], 4 * 1024 * 1024 + 1])]))
    yield _bad("changes_by_name", "an object in place of the array", msgspec.msgpack.encode({"cf": []}))
    yield _bad("more_behind_it", "a byte behind the operation", good + b"\x00")
    yield _bad("cut", "the last byte is missing", good[:-1])
    long = {"what": "one byte over 512 KiB", "expect": "too large", "parts": "x00*524289"}
    yield Vector("operation", "over_the_limit", long)


def _of_models() -> Iterator[Vector]:
    def said(models: object, *, pieces: int = 2) -> bytes:
        columns = [
            ["text"] * pieces,
            ["assistant"] * pieces,
            [0] * pieces,
            [""] * pieces,
            list(range(pieces)),
        ]
        head = ["c", "agent", "session", "work/app", "", "codex"]
        return msgspec.msgpack.encode([*head, *columns, *([] if models is None else [models])])

    def good(name: str, what: str, models: list[str] | None, *, pieces: int = 2) -> Vector:
        fields = {"what": what, "expect": "success", "pieces": str(pieces)}
        fields["models"] = hashlib.sha256("\n".join(models or [""] * pieces).encode()).hexdigest()
        return Vector("operation", name, fields, said(models, pieces=pieces))

    without = good("capture_without_models", "a capture of which nobody says which model answered", None)
    none = without.fields
    yield without
    yield good("capture_with_models", "a piece with a model and one without", ["", "gpt-7"])
    yield good("capture_with_a_long_model", "a name of 128 characters", ["m" * 128], pieces=1)
    yield _bad("models_too_few", "fewer models than pieces", said(["gpt-7"]))
    yield _bad("models_too_many", "more models than pieces", said(["gpt-7"] * 3))
    yield _bad("models_all_empty", "models of which none is named", said(["", ""]))
    yield Vector(
        "operation", "models_empty", {**none, "what": "a column of no models: nobody says"}, said([])
    )
    yield _bad("model_too_long", "a name of 129 characters", said(["m" * 129, ""]))
    yield _bad("model_with_a_line_end", "a name with a control character", said(["gpt\n7", ""]))
    yield _bad("model_as_bytes", "a name that is no text", said([b"gpt-7", ""]))
    yield _bad(
        "capture_with_more",
        "a column too many",
        msgspec.msgpack.encode([*msgspec.msgpack.decode(said(["a", ""])), []]),
    )
