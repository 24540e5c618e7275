"""Keys of objects, and their prefixes.

A key is one or more segments joined by `/`. A segment is one or more of `a-z 0-9 . _ -` and is neither `.` nor `..`.
The whole is at most 256 characters. So a key needs no escaping in a URL or a file name, cannot climb, and its byte
order is its character order.
"""

import re

from crystal_relay.errors import BadRequest
from crystal_relay.limits import KEY_CHARS_MAX

_SEGMENT = r"(?!\.{1,2}(?:/|\Z))[a-z0-9._-]+"
_KEY = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*\Z")
_PREFIX = re.compile(rf"(?:{_SEGMENT}/)*[a-z0-9._-]*\Z")
_VAULT = re.compile(r"[0-9a-f]{32}\Z")

PROBE_PREFIX = "r/probe/"
"""Objects of store tests. A rule in deploy/aws/lifecycle.json removes what a crash leaves there."""
VAULTS_PREFIX = "v/"
"""Of the objects of all vaults."""
AFTER_ANY_KEY = "\x7f"
"""Sorts after every character that a key can hold."""
BEFORE_ANY_KEY = " "
"""Sorts before every character that a key can hold: a key with this character behind it sorts right after the key itself."""


def check_key(key: str) -> str:
    """Return a valid key. Raises BadRequest, without the key."""
    if len(key) > KEY_CHARS_MAX:
        raise BadRequest(f"a key has at most {KEY_CHARS_MAX} characters")  # §R3-1
    if _KEY.match(key) is None:
        raise BadRequest(
            "not a valid key", hint="A key is segments of a-z 0-9 . _ - joined by single slashes."
        )
    return key


def check_prefix(prefix: str) -> str:
    """Return a valid prefix, which may be empty. Raises BadRequest."""
    if len(prefix) > KEY_CHARS_MAX:
        raise BadRequest(f"a prefix has at most {KEY_CHARS_MAX} characters")
    if _PREFIX.match(prefix) is None:
        raise BadRequest("not a valid prefix of keys")
    return prefix


def check_vault(vault: str) -> str:
    """Return a valid vault id: 32 lower-case hex digits. Raises BadRequest."""
    if _VAULT.match(vault) is None:
        raise BadRequest("a vault's id is 32 lower-case hex digits")
    return vault


def vault_prefix(vault: str) -> str:
    """The prefix of all keys of a vault's objects."""
    return f"{VAULTS_PREFIX}{vault}/"
