"""A settings file keeps every byte that a change does not concern."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crystal_node.agent.hooks import jsondocument
from crystal_node.agent.hooks.jsondocument import DamagedDocument

_NAMES = st.text(max_size=6)
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=12,
)
_OBJECTS = st.dictionaries(_NAMES, _VALUES, max_size=4)
_STYLES = st.sampled_from([None, 1, 2, 4, "\t"])
_ENDS = st.sampled_from(["", "\n", "\r\n"])


def _text(value: object, style: int | str | None, end: str, ascii_only: bool = False) -> str:
    text = json.dumps(value, indent=style, ensure_ascii=ascii_only) + end
    return text.replace("\n", "\r\n") if end == "\r\n" else text


@settings(max_examples=150, deadline=None)
@given(_OBJECTS, _VALUES, _STYLES, _ENDS, st.booleans())
def test_a_member_that_was_put_in_and_taken_out_leaves_the_bytes_as_they_were(
    value: dict[str, Any], added: object, style: int | str | None, end: str, ascii_only: bool
) -> None:
    value.pop("hooks", None)
    text = _text(value, style, end, ascii_only)
    changed = jsondocument.with_member(text, (), "hooks", added)
    assert jsondocument.parse(changed) == value | {"hooks": added}
    assert list(json.loads(changed))[-1] == "hooks"
    assert changed.endswith(end)
    undone = jsondocument.without(changed, ("hooks",))
    assert jsondocument.parse(undone) == value
    assert undone == text or not value


@settings(max_examples=150, deadline=None)
@given(_OBJECTS, st.lists(_VALUES, max_size=4), _VALUES, _STYLES, _ENDS, st.data())
def test_elements_come_and_go_where_they_stand(
    value: dict[str, Any],
    elements: list[Any],
    added: object,
    style: int | str | None,
    end: str,
    data: st.DataObject,
) -> None:
    text = _text({"first": value, "list": {"of": elements}, "last": value}, style, end)
    changed = jsondocument.with_element(text, ("list", "of"), added)
    assert jsondocument.parse(changed) == {"first": value, "list": {"of": [*elements, added]}, "last": value}
    gone = data.draw(st.integers(0, len(elements)))
    left = [*elements, added]
    del left[gone]
    after = jsondocument.parse(jsondocument.without(changed, ("list", "of", gone)))
    assert after == {"first": value, "list": {"of": left}, "last": value}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{\n  "a": 1,,\n}', "line 3, column 1"),
        ('{"a": 1} /* and', "line 1, column 10"),
        ('{"a": 1', "line 1, column 8"),
        ("", "line 1, column 1"),
        ('{"a": {"b": 1, "b": 2}}', "'b' twice"),
        ('{"a": NaN}', "NaN"),
        ("[" * 100_000, "deep"),
    ],
    ids=["commas", "open comment", "cut", "empty", "twice", "no number", "deep"],
)
def test_what_cannot_be_read_without_a_doubt_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(DamagedDocument, match=said):
        jsondocument.parse(text)


def test_a_place_is_told_by_line_and_column() -> None:
    text = '{\n  "a": 1,\n  "hooks": {"Stop": 3}\n}'
    assert jsondocument.place(text, ("hooks", "Stop")) == "line 3, column 21"
