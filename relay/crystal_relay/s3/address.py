"""Where a bucket is: `s3://bucket/prefix`, and an endpoint when it is not Amazon's.

Credentials are never part of an address: they come by the SDK's own chain (environment, files, the machine's role).
"""

import re
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from crystal_relay.address import is_loopback
from crystal_relay.errors import BadRequest

PREFIX_CHARS_MAX = 512
"""With a key's 256 it stays below the 1,024 bytes that object stores allow."""
R2_DOMAIN = "r2.cloudflarestorage.com"
DEFAULT_REGION = "us-east-1"
"""What servers of one's own are content with."""

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]\Z")
_SEGMENT = r"(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._-]+"
_PREFIX = re.compile(rf"(?:{_SEGMENT}(?:/{_SEGMENT})*)?\Z")
_HINT = "Use --store s3://bucket/prefix, and --s3-endpoint URL for a store that is not Amazon's."


@dataclass(frozen=True, slots=True)
class S3Address:
    """A place in a bucket. Objects are named `<prefix>/<key>`, or by the key alone. Holds no secret."""

    bucket: str
    prefix: str = ""
    """Without slashes at its ends."""
    endpoint: str | None = None
    """None: Amazon's, by region."""
    region: str | None = None
    """None: as the SDK's settings say."""

    @property
    def is_r2(self) -> bool:
        """Whether this is Cloudflare R2, which takes one write a second for each key."""
        return self.endpoint is not None and _host_is_r2(urlsplit(self.endpoint).hostname or "")

    def object_name(self, key: str) -> str:
        """The name in the bucket of a key, or of a prefix of keys."""
        return f"{self.prefix}/{key}" if self.prefix else key

    def __str__(self) -> str:
        place = f"s3://{self.bucket}/{self.prefix}" if self.prefix else f"s3://{self.bucket}"
        return f"{place} at {self.endpoint}" if self.endpoint else place


def parse_s3_address(address: str, endpoint: str | None = None, *, allow_http: bool = False) -> S3Address:
    """Take apart what `--store` and `--s3-endpoint` say. Raises BadRequest, which repeats neither."""
    parts = _split(address, "the store's address")
    prefix = parts.path.strip("/")
    if parts.scheme != "s3" or _BUCKET.match(parts.netloc) is None:
        raise BadRequest("not the address of a bucket", hint=_HINT)
    if len(prefix) > PREFIX_CHARS_MAX or _PREFIX.match(prefix) is None:
        raise BadRequest(
            "the prefix in the bucket cannot be used",
            hint="A prefix is segments of A-Z a-z 0-9 . _ - joined by single slashes.",
        )
    if endpoint is None:
        return S3Address(parts.netloc, prefix)
    checked = _endpoint(endpoint, allow_http=allow_http)
    region = "auto" if _host_is_r2(urlsplit(checked).hostname or "") else None
    return S3Address(parts.netloc, prefix, checked, region)


def _endpoint(endpoint: str, *, allow_http: bool) -> str:
    parts = _split(endpoint, "the endpoint's address")
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https") or not host or parts.path not in ("", "/"):
        raise BadRequest("not the address of an object store", hint="Use --s3-endpoint https://host[:port].")
    if parts.scheme == "http" and not allow_http and not is_loopback(host):
        raise BadRequest(
            "plain http to another machine would show who writes what and when",
            hint="Use https. --s3-allow-http allows it, for a network that is private as a whole.",
        )
    return f"{parts.scheme}://{parts.netloc}"


def _split(address: str, what: str) -> SplitResult:
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError:
        raise BadRequest(f"{what} cannot be read", hint=_HINT) from None
    if "@" in parts.netloc:
        raise BadRequest(
            "an address holds no credentials",
            hint="Give them as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment, and change these: "
            "anybody who sees the command line has seen them.",
        )
    if parts.query or parts.fragment:
        raise BadRequest(f"{what} ends with its path", hint=_HINT)
    return parts


def _host_is_r2(host: str) -> bool:
    return host == R2_DOMAIN or host.endswith("." + R2_DOMAIN)
