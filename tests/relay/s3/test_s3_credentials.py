"""The keys of a bucket are changed while a relay uses them, on a server for which signatures count."""

import asyncio
import json
import secrets
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from crystal_relay.errors import StoreUnavailable
from crystal_relay.s3 import Conditions, S3Settings, S3Store
from crystal_relay.s3.bucket import Bucket
from tests.support.s3_servers import S3Server, running_moto
from tests.support.s3_servers.moto import OWNER_POLICY
from tests.support.s3_servers.server import REGION
from tests.support.s3_stores import address_of

SETTINGS = S3Settings()


@pytest.fixture(scope="module")
def server() -> Generator[S3Server]:
    with running_moto(auth=True) as server:
        yield server


@pytest.fixture
def iam(server: S3Server) -> Any:
    return server.client("iam")


@pytest.fixture
def keys(iam: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The SDK's file of credentials, which the relay's environment names."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return file


def new_user(iam: Any) -> str:
    name = f"relay-{secrets.token_hex(4)}"
    iam.create_user(UserName=name)
    iam.put_user_policy(UserName=name, PolicyName="everything", PolicyDocument=json.dumps(OWNER_POLICY))
    return name


def new_key(iam: Any, user: str, file: Path) -> str:
    """Make a key, and write it into the file as a secret's mount does: beside it, then in its place. Returns its id."""
    key = iam.create_access_key(UserName=user)["AccessKey"]
    beside = file.with_suffix(".new")
    beside.write_text(
        f"[default]\naws_access_key_id = {key['AccessKeyId']}\naws_secret_access_key = {key['SecretAccessKey']}\n"
    )
    beside.replace(file)
    return str(key["AccessKeyId"])


async def test_keys_are_changed_in_their_file_and_no_request_fails(
    server: S3Server, iam: Any, keys: Path
) -> None:
    user = new_user(iam)
    former = new_key(iam, user, keys)
    store = S3Store(Bucket(address_of(server), SETTINGS), Conditions.HONOURED, settings=SETTINGS)
    for number in range(3):
        await store.put_new(f"v/a/{number}", b"x")
        key = new_key(iam, user, keys)
        iam.delete_access_key(UserName=user, AccessKeyId=former)
        former = key
        assert len((await store.list("v/a/")).entries) == number + 1
    await store.aclose()


@pytest.mark.parametrize("broken", ["", "[default", "[other]\naws_access_key_id = x\n", "[default]\n"])
async def test_a_file_that_is_broken_off_leaves_the_former_keys_until_it_is_whole(
    server: S3Server, iam: Any, keys: Path, broken: str
) -> None:
    user = new_user(iam)
    former = new_key(iam, user, keys)
    store = S3Store(Bucket(address_of(server), SETTINGS), Conditions.HONOURED, settings=SETTINGS)
    await store.list("v/")
    await asyncio.to_thread(keys.write_text, broken)
    await store.list("v/")
    await asyncio.to_thread(keys.unlink)
    await store.list("v/")
    iam.delete_access_key(UserName=user, AccessKeyId=former)
    with pytest.raises(StoreUnavailable):
        await store.list("v/")
    new_key(iam, user, keys)
    await store.list("v/")
    await store.aclose()
