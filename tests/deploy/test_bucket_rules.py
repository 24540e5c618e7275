"""The bucket's own policy and its lifecycle, acted on by Ceph's gateway, which knows conditions and really expires."""

import json
import time
from typing import Any, cast

import boto3
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.deploy.policies import policy, statement
from tests.support.s3_servers import S3Server
from tests.support.s3_servers.rgw import DAY_SECONDS

PREFIX = "relay"
EXPIRY_SECONDS_MAX = 60.0


# --- the policy ---


def anonymous(server: S3Server) -> Any:
    """A client without keys: it may do what the policy gives to everybody, which here stands for the relay."""
    return cast("Any", boto3).client(
        "s3",
        endpoint_url=server.endpoint,
        region_name="us-east-1",
        config=Config(
            signature_version=UNSIGNED, s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}
        ),
    )


def bucket_with(server: S3Server, *sids: str) -> S3Server:
    """A new bucket with these statements of the policy, an object in the relay's prefix and one beside it."""
    mine = server.with_new_bucket()
    whole = policy("bucket-policy.json", bucket=mine.bucket, prefix=PREFIX, relay="*")
    chosen = whole | {"Statement": [statement(whole, sid) for sid in sids]}
    s3 = mine.client()
    s3.put_object(Bucket=mine.bucket, Key=f"{PREFIX}/v/a", Body=b"sealed")
    s3.put_object(Bucket=mine.bucket, Key="other/secret", Body=b"not the relay's")
    s3.put_bucket_policy(Bucket=mine.bucket, Policy=json.dumps(chosen))
    return mine


def test_the_policy_gives_the_relay_its_prefix_and_nothing_beside(rgw_server: S3Server) -> None:
    mine = bucket_with(rgw_server, "RelayObjects", "RelayList", "RelayNeverAdministers")
    s3 = anonymous(mine)
    s3.put_object(Bucket=mine.bucket, Key=f"{PREFIX}/v/b", Body=b"new", IfNoneMatch="*")
    assert s3.get_object(Bucket=mine.bucket, Key=f"{PREFIX}/v/a")["Body"].read() == b"sealed"
    assert s3.head_object(Bucket=mine.bucket, Key=f"{PREFIX}/v/a")["ContentLength"] == 6
    listed = s3.list_objects_v2(
        Bucket=mine.bucket, Prefix=f"{PREFIX}/v/", StartAfter=f"{PREFIX}/v/a", MaxKeys=5
    )
    assert [entry["Key"] for entry in listed["Contents"]] == [f"{PREFIX}/v/b"]
    s3.delete_object(Bucket=mine.bucket, Key=f"{PREFIX}/v/b")
    for attempt in (
        lambda: s3.get_object(Bucket=mine.bucket, Key="other/secret"),
        lambda: s3.put_object(Bucket=mine.bucket, Key="other/new", Body=b"x"),
        lambda: s3.delete_object(Bucket=mine.bucket, Key="other/secret"),
        lambda: s3.list_objects_v2(Bucket=mine.bucket, Prefix="other/"),
        lambda: s3.delete_bucket_policy(Bucket=mine.bucket),
        lambda: s3.delete_bucket(Bucket=mine.bucket),
        lambda: s3.put_bucket_acl(Bucket=mine.bucket, ACL="public-read"),
    ):
        assert _code(attempt) == "AccessDenied"


def test_a_missing_object_is_missing_and_not_forbidden(rgw_server: S3Server) -> None:
    mine = bucket_with(rgw_server, "RelayObjects", "RelayList")
    s3 = anonymous(mine)
    assert _code(lambda: s3.get_object(Bucket=mine.bucket, Key=f"{PREFIX}/v/gone")) == "NoSuchKey"
    assert _code(lambda: s3.head_object(Bucket=mine.bucket, Key=f"{PREFIX}/v/gone")) == "404"


def test_without_tls_the_whole_policy_lets_nobody_in(rgw_server: S3Server) -> None:
    """This server is reached over plain HTTP."""
    mine = bucket_with(rgw_server, "RelayObjects", "RelayList", "RelayNeverAdministers", "NobodyWithoutTls")
    s3 = anonymous(mine)
    assert _code(lambda: s3.get_object(Bucket=mine.bucket, Key=f"{PREFIX}/v/a")) == "AccessDenied"
    assert _code(lambda: s3.list_objects_v2(Bucket=mine.bucket, Prefix=f"{PREFIX}/")) == "AccessDenied"


def test_the_two_policies_allow_the_same() -> None:
    identity, bucket = (policy(name, bucket="b") for name in ("iam-policy.json", "bucket-policy.json"))
    for sid in ("RelayObjects", "RelayList"):
        assert statement(bucket, sid) == statement(identity, sid) | {
            "Principal": {"AWS": "arn:aws:iam::123456789012:role/relay"}
        }
    assert {one["Effect"] for one in identity["Statement"]} == {"Allow"}


# --- the lifecycle ---


@pytest.mark.slow
def test_leftovers_go_by_themselves_and_nothing_else_does(rgw_server: S3Server) -> None:
    mine = rgw_server.with_new_bucket()
    s3 = mine.client()
    kept = [
        f"{PREFIX}/v/{'0' * 32}/blob/a",
        f"{PREFIX}/r/vault/{'0' * 32}",
        f"{PREFIX}/r/sole/one",
        f"{PREFIX}/r/probed",
        f"{PREFIX}/w/space/conversations/1",
        "r/probe/of-somebody-else",
    ]
    for key in (*kept, f"{PREFIX}/r/probe/left/0"):
        s3.put_object(Bucket=mine.bucket, Key=key, Body=b"x")
    s3.create_multipart_upload(Bucket=mine.bucket, Key=f"{PREFIX}/v/unfinished")
    s3.put_bucket_lifecycle_configuration(
        Bucket=mine.bucket, LifecycleConfiguration=policy("lifecycle.json", bucket=mine.bucket, prefix=PREFIX)
    )
    deadline = time.monotonic() + EXPIRY_SECONDS_MAX
    while _keys(s3, mine.bucket) != sorted(kept) or "Uploads" in s3.list_multipart_uploads(
        Bucket=mine.bucket
    ):
        assert time.monotonic() < deadline, "the leftovers stay"
        time.sleep(0.5)
    # Some days more, as this server counts them.
    until = time.monotonic() + 4 * DAY_SECONDS
    while time.monotonic() < until:
        assert _keys(s3, mine.bucket) == sorted(kept)
        time.sleep(0.5)


def _keys(s3: Any, bucket: str) -> list[str]:
    return [entry["Key"] for entry in s3.list_objects_v2(Bucket=bucket).get("Contents", [])]


def _code(attempt: Any) -> str:
    with pytest.raises(ClientError) as refused:
        attempt()
    return str(cast("Any", refused.value).response["Error"]["Code"])
