"""The relay's identity policy, enforced by moto: all that the store does is allowed, and nothing else."""

import json
import secrets
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from crystal_relay.errors import AlreadyExists, NotFound
from crystal_relay.s3 import Conditions
from crystal_relay.store import body_of
from tests.deploy.policies import policy, statement, without_conditions
from tests.support.s3_servers import S3Server, running_moto
from tests.support.s3_stores import opened_s3_store

PREFIX = "relay"


@pytest.fixture(scope="module")
def owner() -> Generator[S3Server]:
    with running_moto(auth=True) as server:
        yield server


@pytest.fixture(scope="module")
def relay(owner: S3Server) -> S3Server:
    """The same server and bucket, with the keys of a user that has the relay's policy and no other."""
    iam = owner.client("iam")
    iam.create_user(UserName="relay")
    document = without_conditions(policy("iam-policy.json", bucket=owner.bucket, prefix=PREFIX))
    iam.put_user_policy(UserName="relay", PolicyName="relay", PolicyDocument=json.dumps(document))
    key = iam.create_access_key(UserName="relay")["AccessKey"]
    return replace(owner, access_key=key["AccessKeyId"], secret_key=key["SecretAccessKey"])


async def test_everything_that_a_relay_does_is_allowed(relay: S3Server) -> None:
    async with opened_s3_store(relay, prefix=PREFIX) as store:
        assert store.conditions is Conditions.HONOURED
        key = f"v/{secrets.token_hex(16)}/blob/a"
        await store.put_new(key, b"small")
        with pytest.raises(AlreadyExists):
            await store.put_new(key, b"other")
        assert await (await store.get(key)).read() == b"small"
        assert await (await store.get(key, start=1, length=2)).read() == b"ma"
        large = secrets.token_bytes(3_000_000)
        await store.put_new(f"{key}b", body_of(large))
        assert await (await store.get(f"{key}b")).read() == large
        await store.put(key, b"replaced")
        assert [entry.key for entry in (await store.list(key)).entries] == [key, f"{key}b"]
        await store.delete(key)
        with pytest.raises(NotFound):
            await store.get(key)
        assert store.operations["put"] > 100


FORBIDDEN: dict[str, Callable[[Any, str], Any]] = {
    "read beside its prefix": lambda s3, bucket: s3.get_object(Bucket=bucket, Key="other/secret"),
    "write beside its prefix": lambda s3, bucket: s3.put_object(Bucket=bucket, Key="other/new", Body=b"x"),
    "write a prefix that only begins alike": lambda s3, bucket: s3.put_object(
        Bucket=bucket, Key=f"{PREFIX}2/new", Body=b"x"
    ),
    "delete beside its prefix": lambda s3, bucket: s3.delete_object(Bucket=bucket, Key="other/secret"),
    "delete the bucket": lambda s3, bucket: s3.delete_bucket(Bucket=bucket),
    "make a bucket": lambda s3, bucket: s3.create_bucket(Bucket=f"{bucket}-2"),
    "change the policy": lambda s3, bucket: s3.put_bucket_policy(Bucket=bucket, Policy="{}"),
    "delete the policy": lambda s3, bucket: s3.delete_bucket_policy(Bucket=bucket),
    "change the lifecycle": lambda s3, bucket: s3.put_bucket_lifecycle_configuration(
        Bucket=bucket, LifecycleConfiguration=policy("lifecycle.json", bucket=bucket)
    ),
    "open an object to the world": lambda s3, bucket: s3.put_object_acl(
        Bucket=bucket, Key=f"{PREFIX}/mine", ACL="public-read"
    ),
    "open the bucket to the world": lambda s3, bucket: s3.put_bucket_acl(Bucket=bucket, ACL="public-read"),
    "turn versions on": lambda s3, bucket: s3.put_bucket_versioning(
        Bucket=bucket, VersioningConfiguration={"Status": "Enabled"}
    ),
    "list another bucket": lambda s3, bucket: s3.list_objects_v2(Bucket="somebody-elses"),
}


@pytest.fixture(scope="module")
def furnished(owner: S3Server) -> S3Server:
    """Something to be after, so that no attempt fails for want of it."""
    s3 = owner.client()
    s3.put_object(Bucket=owner.bucket, Key="other/secret", Body=b"not the relay's")
    s3.put_object(Bucket=owner.bucket, Key=f"{PREFIX}/mine", Body=b"the relay's")
    s3.create_bucket(Bucket="somebody-elses")
    return owner


@pytest.mark.parametrize("attempt", FORBIDDEN)
def test_a_relay_may_not(attempt: str, relay: S3Server, furnished: S3Server) -> None:
    with pytest.raises(ClientError) as refused:
        FORBIDDEN[attempt](relay.client(), furnished.bucket)
    assert refused.value.response["Error"]["Code"] == "AccessDenied"


def test_the_owner_may_so_that_the_attempts_are_real(furnished: S3Server) -> None:
    s3 = furnished.client()
    for attempt in (
        "read beside its prefix",
        "write beside its prefix",
        "turn versions on",
        "list another bucket",
    ):
        FORBIDDEN[attempt](s3, furnished.bucket)


def test_missing_objects_can_be_told_from_forbidden_ones() -> None:
    """S3 asks for the right to list, without any prefix, before it says of an object that it is missing."""
    condition = statement(policy("iam-policy.json", bucket="b"), "RelayList")["Condition"]
    assert condition == {"StringLikeIfExists": {"s3:prefix": "relay/*"}}
