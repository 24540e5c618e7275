"""Bearer tokens and the recovery secret of devices: their form and their hashes.

A token is `<device id, 32 hex>.<32 random bytes, base64url without padding>`. The relay keeps SHA-256 of its whole text.
The recovery secret is 32 bytes derived from the vault's root; the relay keeps their SHA-256. Both are full-strength
random values, so a plain hash is enough. Hashes are 64 lower-case hex digits.
"""

import hashlib
import os
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable
from enum import StrEnum

from crystal_relay.errors import BadRequest

SECRET_BYTES = 32
TOKEN = re.compile(r"([0-9a-f]{32})\.([A-Za-z0-9_-]{42}[AEIMQUYcgkosw048])\Z")
"""Groups: device, secret. The last digit is one of those that end 32 bytes, so that a secret has one form only."""
DEVICE = re.compile(r"[0-9a-f]{32}\Z")
HASH = re.compile(r"[0-9a-f]{64}\Z")


class Preset(StrEnum):
    """The rights of a token; `crystal_relay.server.scopes` defines them."""

    DEVICE = "device"
    LEAD = "lead"


def new_token(device: bytes | str, random: Callable[[int], bytes] = os.urandom) -> str:
    """A fresh token for a device (its id as 16 bytes or 32 hex digits). Raises BadRequest for another id."""
    name = device if isinstance(device, str) else device.hex()
    if DEVICE.match(name) is None:
        raise BadRequest("a device's id is 32 lower-case hex digits")
    return f"{name}.{urlsafe_b64encode(random(SECRET_BYTES)).rstrip(b'=').decode()}"


def token_hash(token: str) -> str:
    """The hash of a token, which is all that the relay keeps. Raises BadRequest, without the token."""
    if TOKEN.match(token) is None:
        raise BadRequest("not a relay token")
    return hashlib.sha256(token.encode("ascii")).hexdigest()  # §R2-2


def recovery_hash(secret: bytes) -> str:
    """The hash of the recovery secret, which is all that the relay keeps. Raises BadRequest for another size."""
    if len(secret) != SECRET_BYTES:
        raise BadRequest(f"the recovery secret is {SECRET_BYTES} bytes")
    return hashlib.sha256(secret).hexdigest()  # §R2-2
