"""What a test gets of a running S3 server: where it is, who may use it, and a client for it."""

import secrets
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, cast

REGION = "us-east-1"


class ServerMissing(Exception):
    """The server is not installed here. The message says what to install."""


@dataclass(frozen=True, slots=True)
class S3Server:
    """A server that runs, and a bucket there. The keys live as long as the server."""

    name: str
    endpoint: str
    access_key: str
    secret_key: str = field(repr=False)
    bucket: str

    @property
    def environment(self) -> dict[str, str]:
        """What boto3's own chain of credentials looks for, for a relay that is started on this server."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_DEFAULT_REGION": REGION,
        }

    def with_new_bucket(self) -> "S3Server":
        """The same server with a bucket that nobody else uses."""
        bucket = f"test-{secrets.token_hex(8)}"
        _maker_of_buckets(self).create_bucket(Bucket=bucket)
        return replace(self, bucket=bucket)

    def client(self, service: str = "s3", *, connections: int = 16, attempts: int = 1) -> Any:
        """A plain boto3 client. It does not retry, so that what it reports is what the server said once."""
        import boto3
        from botocore.config import Config

        # boto3 comes without types.
        return cast("Any", boto3).client(
            service,
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=REGION,
            config=Config(
                signature_version="s3v4" if service == "s3" else None,
                s3={"addressing_style": "path"},
                connect_timeout=3,
                read_timeout=20,
                retries={"mode": "standard", "total_max_attempts": attempts},
                max_pool_connections=connections,
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )


@lru_cache(maxsize=8)
def _maker_of_buckets(server: S3Server) -> Any:
    """One client for all buckets that tests ask for."""
    return server.client()
