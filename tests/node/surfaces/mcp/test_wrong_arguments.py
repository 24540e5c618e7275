"""A model whose call does not fit is told which argument it is and what that takes, never what it sent."""

import pytest

from crystal_node.base.errors import UsageError
from crystal_node.surfaces.mcp.arguments import (
    ForgetArguments,
    OpenArguments,
    RememberArguments,
    SearchArguments,
)
from crystal_node.surfaces.mcp.schemas import read_as


@pytest.mark.parametrize(
    ("kind", "given", "words"),
    [
        (SearchArguments, {}, "`query` is missing; it has to be a text of 1 to 16,384 characters"),
        (SearchArguments, [], "what is given has to be an object"),
        (SearchArguments, {"query": "x", "limit": "ten"}, "`limit` has to be a whole number from 1 to 50"),
        (SearchArguments, {"query": "x", "kind": "memo"}, "`kind` has to be one of conversation, memory, document"),
        (SearchArguments, {"query": "x", "colour": 1}, "there is no field `colour`: there are agent, by"),
        (SearchArguments, {"query": "x", "max_tokens": 20_001}, "`max_tokens` has to be a whole number from 1 to 20,000"),
        (OpenArguments, {"id": "a" * 12, "whole": "all"}, "`whole` has to be one of turn, conversation"),
        (OpenArguments, {"id": "../../etc"}, "`id` has to be 8 to 64 hexadecimal digits"),
        (ForgetArguments, {"ids": ["crane"]}, "`ids[0]` has to be an id: 12 to 64 hexadecimal digits"),
        (RememberArguments, {"text": "x", "agent": "../x"}, "`agent` has to be an agent's id"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_told_which_argument_and_what_it_takes(kind: type, given: object, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_as(kind, given)
    assert str(caught.value).startswith(words)
    assert "etc" not in str(caught.value)
    assert "input schema" in caught.value.hint
