"""Maps an object store's failures to the store's errors.

A failed write may have taken effect, and is StoreUnavailable, unless every try was refused in a way that stores nothing.
Messages and log lines hold the operation, the status and the store's own code, never a key, a header or an answer's text.
"""

import http.client
import logging
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from crystal_relay.errors import BadReply, Busy, RelayError, StoreFull, StoreUnavailable

LOG_PAUSE_SECONDS = 30.0
"""Interval in which the same failure is logged once."""
_LOG_KINDS_MAX = 256

_log = logging.getLogger(__name__)
_CODE = re.compile(r"[A-Za-z0-9]{1,64}\Z")
_THROTTLED = frozenset(
    {"SlowDown", "TooManyRequests", "RequestLimitExceeded", "Throttling", "ThrottlingException"}
)
_FULL = frozenset({"QuotaExceeded", "XMinioStorageFull", "InsufficientStorage"})
_DENIED = {
    "NoSuchBucket": "There is no such bucket: check its name and region, or make it.",
    "AccessDenied": "The credentials do not allow this: deploy/ has the policy that the relay needs.",
    "InvalidAccessKeyId": "The store does not know the access key: check AWS_ACCESS_KEY_ID.",
    "SignatureDoesNotMatch": "The secret key is not that of the access key: check AWS_SECRET_ACCESS_KEY.",
    "RequestTimeTooSkewed": "This machine's clock is wrong.",
    "ExpiredToken": "The credentials have expired.",
    "InvalidToken": "The credentials have expired.",
    "PermanentRedirect": "The bucket is in another region: set AWS_REGION.",
    "AuthorizationHeaderMalformed": "The bucket is in another region: set AWS_REGION.",
}
_TLS_HINT = "Does the endpoint speak https, with a certificate that this machine trusts? AWS_CA_BUNDLE names another authority."
_HINT = "Is the object store running, and is its address right? Devices keep what they have and try again."


class Denied(StoreUnavailable):
    """The store refuses the relay's requests: credentials, bucket, region, clock. The operator has to act."""


@dataclass(frozen=True, slots=True)
class Try:
    """How one HTTP request of an operation ended. None: no answer, or none that could be read."""

    status: int | None
    code: str


def failure_types() -> tuple[type[BaseException], ...]:
    """Exception types of the SDK and the libraries below it."""
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError
    from urllib3.exceptions import HTTPError

    return (BotoCoreError, ClientError, ResponseParserError, HTTPError, http.client.HTTPException, OSError)


def answer_of(error: BaseException) -> Try:
    """Status and code of what the store answered, if it did."""
    return try_of(getattr(error, "response", None))


def try_of(response: Any) -> Try:
    """Status and code in the SDK's form of an answer."""
    if not isinstance(response, dict):
        return Try(None, "")
    answer = cast(dict[str, Any], response)
    code = str(answer.get("Error", {}).get("Code", ""))
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return Try(status if isinstance(status, int) else None, code if _CODE.match(code) else "")


def relay_error(error: BaseException, operation: str, tries: Sequence[Try], *, write: bool) -> RelayError:
    """The store's error for a failure."""
    answer = answer_of(error)
    code = answer.code
    what = type(error).__name__
    if answer.status is not None:  # an answer without a body has its status as its code
        what = f"{answer.status} {code}".strip() if code != str(answer.status) else code
    found = _error_of(
        error, answer, what, nothing_done=not write or (bool(tries) and all(map(_refused, tries)))
    )
    _note(operation, what, found.hint)
    return found


def _error_of(error: BaseException, answer: Try, what: str, *, nothing_done: bool) -> RelayError:
    code = answer.code
    if nothing_done and _is_full(answer):
        return StoreFull("the object store is full", hint="Make room in the bucket, or raise its quota.")
    if nothing_done and _is_throttled(answer):
        return Busy("the object store has too much to do")
    if code in _DENIED or answer.status in (301, 400, 401, 403, 404, 405, 413):
        return Denied(f"the object store refused the request ({what})", hint=_DENIED.get(code, _HINT))
    if type(error).__name__ in ("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"):
        return Denied(
            "there are no usable credentials for the object store",
            hint="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a role.",
        )
    if type(error).__name__ == "ResponseParserError":
        return BadReply(
            "the answer is not an object store's", hint="Check that --s3-endpoint points at an object store."
        )
    hint = _TLS_HINT if type(error).__name__ == "SSLError" else _HINT
    return StoreUnavailable(f"the object store failed ({what})", hint=hint)


def _refused(one: Try) -> bool:
    return _is_throttled(one) or _is_full(one) or (one.status is not None and 400 <= one.status < 500)


def _is_throttled(one: Try) -> bool:
    return one.status == 429 or one.code in _THROTTLED


def _is_full(one: Try) -> bool:
    return one.status == 507 or one.code in _FULL


_noted: dict[tuple[str, str], float] = {}


def _note(operation: str, what: str, hint: str) -> None:
    """Any thread; at worst a line comes twice. The hint is for the operator, and goes to no device."""
    now = time.monotonic()
    if now - _noted.get((operation, what), -LOG_PAUSE_SECONDS) < LOG_PAUSE_SECONDS:
        return
    if len(_noted) >= _LOG_KINDS_MAX:
        _noted.clear()
    _noted[(operation, what)] = now
    _log.warning("object store: %s failed: %s. %s", operation, what, hint)
