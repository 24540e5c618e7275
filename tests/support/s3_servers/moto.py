"""moto: AWS's S3 and IAM in one process. The only one here that enforces AWS's own policies (with `auth`).

It keeps everything in memory, honours conditions (by the lock of `atomic_moto`), takes lifecycle rules but never acts on
them. It never checks Content-MD5. Without `auth` it lets everybody in, whatever the signature; with `auth` it cannot take
pre-signed requests (it answers 500).
"""

import contextlib
import json
import secrets
import sys
from collections.abc import Generator
from pathlib import Path

import httpx

from tests.support.s3_servers.daemons import accepts, daemons, free_port
from tests.support.s3_servers.server import S3Server

OWNER_POLICY = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": ["s3:*", "iam:*"], "Resource": "*"}],
}


@contextlib.contextmanager
def moto(*, auth: bool = False) -> Generator[S3Server]:
    """A moto server. With `auth` signatures and policies count; the keys are those of a user who may do everything."""
    with daemons("moto") as running:
        port = free_port()
        # -P: what stands beside the script must not be taken for the package of the same name.
        running.start("moto", sys.executable, "-P", Path(__file__).with_name("atomic_moto.py"), str(port))
        running.until("answer from moto", lambda: accepts(port))
        server = S3Server(
            "moto", f"http://127.0.0.1:{port}", secrets.token_hex(10), secrets.token_hex(20), ""
        )
        if auth:
            server = _with_owner(server)
        yield server.with_new_bucket()


def _with_owner(server: S3Server) -> S3Server:
    iam = server.client("iam")
    iam.create_user(UserName="owner")
    iam.put_user_policy(UserName="owner", PolicyName="everything", PolicyDocument=json.dumps(OWNER_POLICY))
    key = iam.create_access_key(UserName="owner")["AccessKey"]
    # From here on no call goes unchecked: "0" is how many moto lets through first.
    with httpx.Client() as client:
        client.post(f"{server.endpoint}/moto-api/reset-auth", content=b"0").raise_for_status()
    return S3Server(server.name, server.endpoint, key["AccessKeyId"], key["SecretAccessKey"], "")
