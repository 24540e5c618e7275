"""What the S3 store relies on, shown with plain boto3 on each of the servers that it is tested on.

A failure here says that the ground moved, not the store: another version of a server, or its set-up.
"""

import base64
import dataclasses
import hashlib
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from botocore.exceptions import ClientError

from tests.support.s3_servers import S3Server, running_moto
from tests.support.s3_servers.rgw import DAY_SECONDS

WRITERS = 16
ROUNDS = 50
BODY = b"hello"


class Promises:
    """What all of them keep."""

    server: S3Server

    def test_lists_are_in_the_order_of_bytes_and_go_on_after_any_name(self) -> None:
        client = self.server.client()
        names = [f"l/{stem}{n:02}" for stem in ("a-", "a.", "a/", "a0", "aa", "Z~", "z_") for n in range(4)]
        for name in random.Random(5).sample(names, len(names)):
            client.put_object(Bucket=self.server.bucket, Key=name, Body=b"")
        expected = sorted(names)
        assert _listed(self.server, "l/", page=5) == expected
        assert _listed(self.server, "l/", after="l/a/01") == [name for name in expected if name > "l/a/01"]
        assert _listed(self.server, "l/", after="l/a.") == [name for name in expected if name > "l/a."]

    def test_an_object_is_in_the_list_as_soon_as_it_is_written_and_gone_as_soon_as_it_is_deleted(
        self,
    ) -> None:
        client = self.server.client()
        for n in range(8):
            client.put_object(Bucket=self.server.bucket, Key=f"fresh/{n}", Body=b"x")
            assert _listed(self.server, "fresh/")[-1] == f"fresh/{n}"
        client.delete_object(Bucket=self.server.bucket, Key="fresh/0")
        assert _listed(self.server, "fresh/") == [f"fresh/{n}" for n in range(1, 8)]


class EnforcedSignatures:
    """What all but moto without `auth` keep."""

    server: S3Server

    def test_a_wrong_secret_reads_writes_and_lists_nothing(self) -> None:
        stranger = dataclasses.replace(self.server, secret_key="0" * 40).client()
        key = {"Bucket": self.server.bucket, "Key": "secret"}
        self.server.client().put_object(**key, Body=BODY)
        assert _status(lambda: stranger.get_object(**key)) == 403
        assert _status(lambda: stranger.put_object(**key, Body=b"mine")) == 403
        assert _status(lambda: stranger.list_objects_v2(Bucket=self.server.bucket)) == 403
        assert self.server.client().get_object(**key)["Body"].read() == BODY

    def test_a_request_without_a_signature_reads_nothing(self) -> None:
        self.server.client().put_object(Bucket=self.server.bucket, Key="unsigned", Body=BODY)
        reply = httpx.get(f"{self.server.endpoint}/{self.server.bucket}/unsigned")
        assert reply.status_code in {400, 401, 403}
        assert BODY not in reply.content


class CheckedBodies:
    """What all but moto keep: a body is what it was announced to be, or it is not stored."""

    server: S3Server

    def test_a_body_that_does_not_match_its_md5_is_refused(self) -> None:
        client = self.server.client()
        key = {"Bucket": self.server.bucket, "Key": "damaged"}
        assert _status(lambda: client.put_object(**key, Body=b"hellx", ContentMD5=_md5(BODY))) == 400
        assert _status(lambda: client.head_object(**key)) == 404
        client.put_object(**key, Body=BODY, ContentMD5=_md5(BODY))

    @pytest.mark.parametrize(
        ("body", "without", "status"),
        [
            pytest.param(b"hello!", "", 403, id="another length"),
            pytest.param(b"hellx", "", 400, id="another body"),
            pytest.param(BODY, "if-none-match", 403, id="without its condition"),
            pytest.param(BODY, "content-md5", 403, id="without its digest"),
        ],
    )
    def test_a_pre_signed_put_is_good_for_its_own_body_only(
        self, body: bytes, without: str, status: int
    ) -> None:
        url, headers = _pre_signed(self.server, "direct/refused")
        headers.pop(without, None)
        reply = httpx.put(url, content=body, headers=headers)
        assert reply.status_code == status, reply.text
        assert (
            _status(lambda: self.server.client().head_object(Bucket=self.server.bucket, Key="direct/refused"))
            == 404
        )

    def test_a_pre_signed_put_stores_the_body_and_the_writers_mark(self) -> None:
        url, headers = _pre_signed(self.server, "direct/stored")
        assert httpx.put(url, content=BODY, headers=headers).status_code == 200
        stored = self.server.client().get_object(Bucket=self.server.bucket, Key="direct/stored")
        assert stored["Body"].read() == BODY
        # rclone gives names of metadata back with capital letters.
        assert {name.lower(): mark for name, mark in stored["Metadata"].items()} == {"crystal-write": "ab"}


class OneWinner:
    """What makes a server fit for several relay processes."""

    server: S3Server

    def test_sixteen_writers_of_one_key_have_one_winner_in_every_round(self) -> None:
        for name, winners in _races(self.server, ROUNDS):
            assert len(winners) == 1
            stored = self.server.client().get_object(Bucket=self.server.bucket, Key=name)
            assert stored["Body"].read() == winners[0]

    def test_a_later_conditional_write_is_refused(self) -> None:
        assert _later_conditional_write(self.server) == (412, b"first")


class TestRgw(Promises, EnforcedSignatures, CheckedBodies, OneWinner):
    @pytest.fixture(autouse=True)
    def use(self, rgw_server: S3Server) -> None:
        self.server = rgw_server.with_new_bucket()

    def test_a_lifecycle_rule_removes_what_it_names_and_nothing_else(self) -> None:
        client, bucket = self.server.client(), self.server.bucket
        client.put_object(Bucket=bucket, Key="r/probe/1", Body=b"")
        client.put_object(Bucket=bucket, Key="v/kept", Body=b"")
        rule = {
            "ID": "probes",
            "Status": "Enabled",
            "Filter": {"Prefix": "r/probe/"},
            "Expiration": {"Days": 1},
        }
        client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [rule]})
        deadline = time.monotonic() + 20 * DAY_SECONDS
        while _listed(self.server, "r/probe/"):
            assert time.monotonic() < deadline, "the rule was not acted on"
            time.sleep(0.1)
        assert _listed(self.server, "") == ["v/kept"]


class TestMoto(Promises, OneWinner):
    @pytest.fixture(autouse=True)
    def use(self, moto_server: S3Server) -> None:
        self.server = moto_server.with_new_bucket()


class TestMotoWithAuth(EnforcedSignatures):
    @pytest.fixture(autouse=True)
    def use(self, moto_with_auth: S3Server) -> None:
        self.server = moto_with_auth.with_new_bucket()

    def test_a_policy_lets_a_user_do_what_it_names_and_nothing_else(self) -> None:
        user = _user_with_policy(
            self.server, ["s3:PutObject"], f"arn:aws:s3:::{self.server.bucket}/mine/*"
        ).client()
        bucket = self.server.bucket
        user.put_object(Bucket=bucket, Key="mine/1", Body=BODY)
        assert _status(lambda: user.put_object(Bucket=bucket, Key="yours/1", Body=BODY)) == 403
        assert _status(lambda: user.delete_object(Bucket=bucket, Key="mine/1")) == 403
        assert _status(lambda: user.delete_bucket(Bucket=bucket)) == 403


class TestSwift(Promises, EnforcedSignatures, CheckedBodies):
    """Knows conditions, so that a probe without a race would be taken in."""

    @pytest.fixture(autouse=True)
    def use(self, swift_server: S3Server) -> None:
        self.server = swift_server.with_new_bucket()

    def test_a_later_conditional_write_is_refused(self) -> None:
        assert _later_conditional_write(self.server) == (412, b"first")

    def test_in_a_race_several_writers_are_told_that_they_won(self) -> None:
        assert any(len(winners) > 1 for _, winners in _races(self.server, ROUNDS))


class TestRclone(Promises, EnforcedSignatures, CheckedBodies):
    @pytest.fixture(autouse=True)
    def use(self, rclone_server: S3Server) -> None:
        self.server = rclone_server.with_new_bucket()

    def test_a_condition_is_ignored_without_a_word(self) -> None:
        assert _later_conditional_write(self.server) == (200, b"second")

    def test_in_a_race_several_writers_are_told_that_they_won(self) -> None:
        assert any(len(winners) > 1 for _, winners in _races(self.server, ROUNDS))


@pytest.fixture(scope="module")
def moto_with_auth() -> Iterator[S3Server]:
    with running_moto(auth=True) as server:
        yield server


def _races(server: S3Server, rounds: int) -> Iterator[tuple[str, list[bytes]]]:
    """Rounds of WRITERS at once, each with a fresh key: its name, and the bodies of those who were told that they won."""
    client = server.client(connections=WRITERS)
    start = threading.Barrier(WRITERS)

    def write(key: str, body: bytes) -> bytes | None:
        start.wait()
        try:
            client.put_object(Bucket=server.bucket, Key=key, Body=body, IfNoneMatch="*")
        except ClientError:
            # 412 as a rule; rclone answers 500 now and then: it falls over its own renames when many write one key.
            return None
        return body

    with ThreadPoolExecutor(WRITERS) as pool:
        for number in range(rounds):
            key = f"race/{number}"
            told = list(pool.map(write, [key] * WRITERS, [b"writer %d" % n for n in range(WRITERS)]))
            yield key, [body for body in told if body is not None]


def _later_conditional_write(server: S3Server) -> tuple[int, bytes]:
    """How a create-only write of a key that exists is answered, and what the key holds after it."""
    client = server.client()
    key = {"Bucket": server.bucket, "Key": "once"}
    client.put_object(**key, Body=b"first", IfNoneMatch="*")
    status = _status(lambda: client.put_object(**key, Body=b"second", IfNoneMatch="*"))
    return status, client.get_object(**key)["Body"].read()


def _listed(server: S3Server, prefix: str, *, after: str = "", page: int = 1000) -> list[str]:
    """All names under a prefix after one, page by page as the store asks for them: by the last name, not by a token."""
    client = server.client()
    names: list[str] = []
    while True:
        found = client.list_objects_v2(Bucket=server.bucket, Prefix=prefix, StartAfter=after, MaxKeys=page)
        names += [entry["Key"] for entry in found.get("Contents", ())]
        if not found["IsTruncated"]:
            return names
        after = names[-1]


def _pre_signed(server: S3Server, key: str) -> tuple[str, dict[str, str]]:
    url = server.client().generate_presigned_url(
        "put_object",
        Params={
            "Bucket": server.bucket,
            "Key": key,
            "ContentLength": len(BODY),
            "ContentMD5": _md5(BODY),
            "IfNoneMatch": "*",
            "Metadata": {"crystal-write": "ab"},
        },
        ExpiresIn=60,
    )
    return url, {"content-md5": _md5(BODY), "if-none-match": "*", "x-amz-meta-crystal-write": "ab"}


def _user_with_policy(server: S3Server, actions: list[str], resource: str) -> S3Server:
    iam = server.client("iam")
    iam.create_user(UserName="relay")
    statement = {"Effect": "Allow", "Action": actions, "Resource": resource}
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    iam.put_user_policy(UserName="relay", PolicyName="relay", PolicyDocument=document)
    key = iam.create_access_key(UserName="relay")["AccessKey"]
    return dataclasses.replace(server, access_key=key["AccessKeyId"], secret_key=key["SecretAccessKey"])


def _status(call: Callable[[], Any]) -> int:
    try:
        reply: Any = call()
    except ClientError as refused:
        reply = refused.response
    return int(reply["ResponseMetadata"]["HTTPStatusCode"])


def _md5(body: bytes) -> str:
    return base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
