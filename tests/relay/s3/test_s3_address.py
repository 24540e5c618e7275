"""Addresses of buckets, and what must never be in one."""

import logging
import secrets

import pytest

from crystal_relay.errors import BadRequest, RelayError, Unusable
from crystal_relay.s3 import Conditions, S3Address, S3Store, parse_s3_address
from tests.contract.opened import read
from tests.support.s3_servers import S3Server
from tests.support.s3_stores import opened_s3_store, s3_store_on


def test_an_address_is_a_bucket_a_prefix_and_an_endpoint() -> None:
    assert parse_s3_address("s3://bucket") == S3Address("bucket")
    assert parse_s3_address("s3://bucket/") == S3Address("bucket")
    assert parse_s3_address("s3://my.bucket/a/B_c/") == S3Address("my.bucket", "a/B_c")
    found = parse_s3_address("s3://bucket/p", "https://objects.example.org:9000/")
    assert found == S3Address("bucket", "p", "https://objects.example.org:9000")
    assert (found.object_name("v/x"), S3Address("b").object_name("v/x")) == ("p/v/x", "v/x")


def test_r2_is_known_by_its_endpoint() -> None:
    for host in ("abc.r2.cloudflarestorage.com", "abc.eu.r2.cloudflarestorage.com"):
        found = parse_s3_address("s3://bucket", f"https://{host}")
        assert (found.region, found.is_r2) == ("auto", True)
    for host in ("r2.cloudflarestorage.com.example.org", "notr2.cloudflarestorage.com"):
        found = parse_s3_address("s3://bucket", f"https://{host}")
        assert (found.region, found.is_r2) == (None, False)


@pytest.mark.parametrize(
    "address",
    [
        *("", "s3:", "s3://", "s3:///x", "http://bucket", "bucket", "s3://[bucket/x"),
        *("s3://B", "s3://a", "s3://bucket:80", "s3://-bucket"),
        *("s3://bucket/a//b", "s3://bucket/../x", "s3://bucket/a b", "s3://bucket/ä"),
        *("s3://bucket/x?y", "s3://bucket/#x", "s3://bucket/" + "x" * 600),
    ],
)
def test_what_is_no_bucket_is_refused(address: str) -> None:
    with pytest.raises(BadRequest):
        parse_s3_address(address)


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "ftp://x",
        "https://",
        "https://x/path",
        "https://x?y",
        "https://x:port",
        "x",
        "http://objects.example.org",
    ],
)
def test_what_is_no_endpoint_is_refused(endpoint: str) -> None:
    with pytest.raises(BadRequest):
        parse_s3_address("s3://bucket", endpoint)


def test_plain_http_is_for_this_machine_or_by_wish() -> None:
    for endpoint in ("http://127.0.0.1:9000", "http://localhost:1", "http://[::1]:9000"):
        assert parse_s3_address("s3://bucket", endpoint).endpoint == endpoint
    wished = parse_s3_address("s3://bucket", "http://10.0.0.5:9000", allow_http=True)
    assert wished.endpoint == "http://10.0.0.5:9000"


@pytest.mark.parametrize(
    ("address", "endpoint"),
    [
        ("s3://key:hush@bucket/x", None),
        ("s3://bucket", "https://key:hush@x"),
        ("s3://bucket", "https://x?s=hush"),
    ],
)
def test_credentials_in_an_address_are_refused_and_not_repeated(address: str, endpoint: str | None) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_s3_address(address, endpoint)
    assert "hush" not in str(caught.value) + caught.value.hint


async def test_no_secret_body_or_key_is_in_a_log_an_error_or_a_repr(
    server: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    body = b"body-" + secrets.token_hex(8).encode()
    seen: list[object] = []
    async with s3_store_on(server, Conditions.HONOURED) as store:
        await store.put_new("v/name-of-an-object", body)
        assert await read(store, "v/name-of-an-object") == body
        await store.list("v/")
        seen += [store, store.bucket, store.bucket.client, store.bucket.address, store.bucket.wire]
        for call in (
            store.put_new("v/name-of-an-object", body),
            store.get("v/name-of-an-other-object"),
            store.get("v/name-of-an-object", start=10**6),
        ):
            with pytest.raises(RelayError) as caught:
                await call
            seen += [caught.value, caught.value.hint]
    server.client().delete_object(Bucket=server.bucket, Key="v/name-of-an-object")
    server.client().delete_bucket(Bucket=server.bucket)
    with pytest.raises(Unusable) as refused:
        async with opened_s3_store(server):
            pass
    said = " ".join(map(repr, seen)) + str(refused.value) + refused.value.hint + caplog.text
    for hidden in (server.secret_key, body.decode(), "name-of-an"):
        assert hidden not in said
    assert isinstance(seen[0], S3Store)
