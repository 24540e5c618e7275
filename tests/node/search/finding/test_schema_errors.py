"""A request that does not fit its schema is told which field it is and what that takes, in words and not in the parser's."""

import pytest
from msgspec import Struct

from crystal_node.search.finding.documents import SearchRequest
from crystal_node.search.finding.schema_errors import SchemaMismatch, decoded
from crystal_node.search.memories.documents import MemoryEdit
from crystal_node.surfaces.gateway.chat import ChatRequest
from crystal_node.surfaces.gateway.documents import ForgetRequest, MemoriesQuery, ProcessRequest


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        (SearchRequest, b"{}", "`query` is missing; it has to be a text of 1 to 16,384 characters"),
        (SearchRequest, b'{"query": 1}', "`query` has to be a text of 1 to 16,384 characters"),
        (SearchRequest, b'{"query": null}', "`query` has to be a text of 1 to 16,384 characters"),
        (
            SearchRequest,
            b'{"query": "x", "limit": "10"}',
            "`limit` has to be a whole number from 1 to 1,000",
        ),
        (
            SearchRequest,
            b'{"query": "x", "offset": -1}',
            "`offset` has to be a whole number from 0 to 10,000",
        ),
        (
            SearchRequest,
            b'{"query": "x", "kind": "memo"}',
            "`kind` has to be one of conversation, memory, document, action, or null",
        ),
        (
            SearchRequest,
            b'{"query": "x", "depth": "$.limit` - at `$.limit`"}',
            "`depth` has to be one of auto, fast, deep",
        ),
        (SearchRequest, b'{"query": "x", "explain": "yes"}', "`explain` has to be true or false"),
        (
            SearchRequest,
            b'{"query": "x", "agent": 5}',
            "`agent` has to be a text of 1,024 characters at most",
        ),
        (SearchRequest, b"[1]", "the body has to be an object"),
        (SearchRequest, b"null", "the body has to be an object"),
        (SearchRequest, b"{", "the body is no JSON"),
        (ChatRequest, b'{"x": ' + b"[" * 100_000, "the body is nested too deeply"),
        (SearchRequest, b'{"query": "\xff"}', "the body is no UTF-8"),
        (ForgetRequest, b'{"ids": []}', "`ids` has to be a list of 1 to 100 items"),
        (ForgetRequest, b'{"ids": [1]}', "`ids[0]` has to be an id: 8 to 64 hexadecimal digits"),
        (
            ForgetRequest,
            b'{"ids": ["00000000", "xyzxyzxyz"]}',
            "`ids[1]` has to be an id: 8 to 64 hexadecimal digits",
        ),
        (ForgetRequest, b'{"ids": [], "more\\u001b": 1}', "`ids` has to be a list of 1 to 100 items"),
        (ForgetRequest, b'{"more\\u001b[1m": 1}', "there is no field `more [1m`: there are ids"),
        (
            MemoryEdit,
            b'{"status": "superseded"}',
            "`status` has to be one of active, retired, or null",
        ),
        (
            ProcessRequest,
            b'{"agent_id": "../x"}',
            "`agent_id` has to be an agent's id: 1 to 64 letters, digits, dots, dashes and underscores",
        ),
        (
            ChatRequest,
            b'{"messages": [{"role": "user"}]}',
            "`messages[0].content` is missing; it has to be a text or a list",
        ),
        (
            ChatRequest,
            b'{"messages": [{"role": "tool", "content": "x"}]}',
            "`messages[0].role` has to be one of assistant, developer, system, user",
        ),
        (ChatRequest, b'{"messages": [{"role": "user", "content": "x"}], "n": 2}', "`n` has to be 1"),
        (
            ChatRequest,
            b'{"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function"}]}',
            "`tools` has to be an empty list",
        ),
        (
            ChatRequest,
            b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 0}',
            "`max_tokens` has to be a whole number from 1 on, or null",
        ),
        (MemoriesQuery, b'{"category": "bogus"}', "`category` has to be one of nothing, event, fact"),
    ],
)
def test_a_wrong_request_is_told_which_field_and_what_it_takes(
    kind: type[Struct], body: bytes, words: str
) -> None:
    with pytest.raises(SchemaMismatch) as caught:
        decoded(body, kind)
    assert str(caught.value).startswith(words)
    assert "$" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_a_field_that_is_not_known_is_named_with_those_that_are() -> None:
    with pytest.raises(
        SchemaMismatch, match=r"there is no field `sinse`: there are agent, by, candidates, .*since"
    ):
        decoded(b'{"query": "x", "sinse": "7d"}', SearchRequest)
