"""The servers by name: what a keeper can start."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from tests.support.s3_servers.moto import moto
from tests.support.s3_servers.rclone import rclone
from tests.support.s3_servers.rgw import rgw
from tests.support.s3_servers.server import S3Server
from tests.support.s3_servers.swift import swift


def _moto_with_auth() -> AbstractContextManager[S3Server]:
    return moto(auth=True)


KINDS: dict[str, Callable[[], AbstractContextManager[S3Server]]] = {
    "moto": moto,
    "moto-auth": _moto_with_auth,
    "rclone": rclone,
    "rgw": rgw,
    "swift": swift,
}
