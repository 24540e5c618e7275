"""Whether a text that stands where a secret would stand looks like one.

Behind ``password =`` stand names of variables, calls, paths, placeholders and words of documentation far more often than
passwords. Each function is for one kind of place and refuses what is too likely to be something else.
"""

import re

_EXPRESSION = re.compile(
    r"\{.*\}|<.*>|\[.*\]|\w\(|^\$|\$[{(]|%(?![0-9A-F]{2})|\.\.\.|^(?:process|os|env|self|this|config|settings)\."
)
_PATH = re.compile(r"[~.]{0,2}/|[A-Za-z]:\\|[a-z]{2,10}://")
_NAME = re.compile(r"(?:[A-Z]{2,}+|[A-Z]?[a-z]{2,}+|[0-9]{1,4}+|[._/-])*+")
"""Words and short numbers, however joined: what people call things. Random text flips between them within a few letters."""
_WORDS = re.compile(r"[A-Za-z]++(?:[._/:|-]++[A-Za-z]++)*+[.:?!]*+")
_PLACEHOLDER = re.compile(
    r"your|example|sample|dummy|placeholder|change[_-]?me|insert|replace|redacted|undefined"
    r"|(?:pass(?:w(?:or)?d)?|pwd|secret|token|api[_-]?key|key|null|none|true|false|required|optional|string|hidden)\W*$",
    re.IGNORECASE,
)
_MASKED = re.compile(r"\*\*\*|…")
_COLOUR = re.compile(r"#[0-9a-fA-F]{3,8}")
_KEY_CHARS_MIN = 16
_KEY_BODY = re.compile(r"[A-Za-z0-9+/=]{8}")


def has_digits(secret: str) -> bool:
    """Random text of a token's length has digits; words with hyphens have none."""
    return sum(char.isdigit() for char in secret) >= 2


def key_block(block: str) -> bool:
    """Between ``BEGIN`` and ``END``: something of a key, not just talk about its first line."""
    _, _, body, *_ = block.split("-----", 3)
    return _KEY_BODY.search(body) is not None


def in_base64(secret: str) -> bool:
    """Upper and lower case and digits: no hash in hexadecimal."""
    return (
        re.search("[A-Z]", secret) is not None
        and re.search("[a-z]", secret) is not None
        and has_digits(secret)
    )


def credential(secret: str) -> bool:
    """Behind ``Authorization: Bearer``: anything that is no English word."""
    return re.search(r"[0-9=]|[a-z][A-Z]", secret) is not None


def value(secret: str) -> bool:
    """Where only a value can stand (``DB_PASSWORD=…``, ``https://user:…@``): no placeholder, path or expression."""
    refused = (
        _EXPRESSION.search(secret)
        or _PATH.match(secret)
        or _PLACEHOLDER.match(secret)
        or _MASKED.search(secret)
    )
    return not refused and len(set(secret)) > 2


def quoted(secret: str) -> bool:
    """In quotes behind ``password =``: a value that does not consist of words."""
    return value(secret) and not _WORDS.fullmatch(secret) and not _COLOUR.fullmatch(secret)


def mixed(secret: str) -> bool:
    """Behind ``password:`` without quotes: a value with letters and digits."""
    with_both = any(char.isdigit() for char in secret) and any(char.isalpha() for char in secret)
    return with_both and secret[0] not in ".*&!@#=" and value(secret)


def machine_made(secret: str) -> bool:
    """Behind ``token:`` without quotes: long, with letters and digits, and no name of anything."""
    return len(secret) >= _KEY_CHARS_MIN and mixed(secret) and not _NAME.fullmatch(secret)
