"""Whether what stands where a secret could stand looks like one: this is where precision comes from.

Behind a name like ``password`` stand variables, calls, paths, placeholders and prose far more often than passwords. Each
function takes the value as it is written; none takes more than linear time.
"""

import re

_EXPRESSION = re.compile(
    r"\{.*\}|<.*>|\[.*\]|\w\(|^\$|\$[{(]|%(?![0-9A-F]{2})|\.\.\.|^(?:process|os|env|self|this|config|settings|args|opts?)\.",
    re.ASCII,
)
_PATH = re.compile(r"[~.]{0,2}/|[A-Za-z]:\\|[a-z]{2,10}://")
_NAME = re.compile(r"(?:[A-Z]{2,}+|[A-Z]?[a-z]{2,}+|[A-Z][a-z](?=[0-9])|[0-9]{1,5}+|[._/-])*+")
"""Words and short numbers, however joined: names of things. Random text switches between them within a few letters."""
_WORDS = re.compile(r"[A-Za-z]++(?:[._/:|-]++[A-Za-z]++)*+[.:?!]*+")
_PLACEHOLDER = re.compile(
    r"your|example|sample|dummy|placeholder|change[_-]?me|insert|replace|redacted|undefined"
    r"|(?:pass(?:w(?:or)?d)?|pwd|secret|token|api[_-]?key|key|null|none|true|false|required|optional|string|hidden)\W*$",
    re.IGNORECASE,
)
_MASKED = re.compile(r"\*\*\*|…")
_COLOUR = re.compile(r"#[0-9a-fA-F]{3,8}")
_PROSE = re.compile(
    r"(?:^|\s)(?:a|an|and|are|as|at|be|been|but|by|can(?:not|'t)?|characters?|confirm|contains?|do(?:es)?|don't|enter|entry|error|expected|"
    r"expired?|failed|fails?|field|for|forgot|found|from|given|has|have|here|how|if|in|incorrect|input|invalid|is|it|its|"
    r"least|length|long|match|max|may|min|missing|must|name|needs?|new|no|not|of|on|one|only|or|our|password|please|provided?|"
    r"required?|reset|secret|set|should|than|that|the|their|then|this|to|token|type|use|used|user|valid|value|was|when|which|will|"
    r"with|without|wrong|you|your)(?![^\s.,:;!?])",
    re.IGNORECASE,
)
_SIGNS = re.compile(r"[!#$%&*+=?@^~|<>{}\[\]()\d]")
_CALL = re.compile(
    r"[A-Za-z_]{2}\w*\(|^\s*[$<{]|\$\{|\{\{|%\(|%[sdr]\b|\{[a-z_][a-z0-9_.!:\[\]]+\}|\{\d?\}|\.\w+\(|=>|->|\\$"
)
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
    """In quotes behind ``password =``: a value that does not consist of words. With spaces or brackets, see ``phrase``."""
    if " " in secret or _EXPRESSION.search(secret):
        return phrase(secret)
    return value(secret) and not _WORDS.fullmatch(secret) and not _COLOUR.fullmatch(secret)


def phrase(secret: str) -> bool:
    """In quotes behind ``password =``, with spaces or brackets in it: few words, none of them what messages are made of, and a
    digit or sign among them."""
    if _PLACEHOLDER.match(secret) or _MASKED.search(secret) or _PATH.match(secret) or _CALL.search(secret):
        return False
    inner = secret.strip()
    return (
        len(inner) == len(secret)
        and secret.count(" ") <= 5
        and _SIGNS.search(secret) is not None
        and any(char.isalpha() for char in secret)
        and any(char.isdigit() for char in secret)
        and not _PROSE.search(secret)
        and len(set(secret)) > 4
    )


def mixed(secret: str) -> bool:
    """Behind ``password:`` without quotes: a value with letters and digits."""
    with_both = any(char.isdigit() for char in secret) and any(char.isalpha() for char in secret)
    return with_both and secret[0] not in ".*&!@#=" and value(secret)


def machine_made(secret: str) -> bool:
    """Behind ``token:`` without quotes: long, with letters and digits, and no name of anything."""
    return len(secret) >= _KEY_CHARS_MIN and mixed(secret) and not _NAME.fullmatch(secret)


def spoken(secret: str) -> bool:
    """Behind ``the password is``: letters and digits, no number with a unit, no version, no date."""
    return mixed(secret) and not re.fullmatch(
        r"[v~<>]?[0-9][0-9.,:/-]*[a-z]{0,12}[.,]?", secret, re.IGNORECASE
    )


def salt(secret: str) -> bool:
    """In quotes behind the name of a key: long, and of all sorts of signs, as a generator of salts makes it."""
    sorts = (str.isupper, str.islower, str.isdigit)
    return (
        len(secret) >= 20
        and all(any(sort(char) for char in secret) for sort in sorts)
        and len(set(secret)) >= 14
        and secret.count(" ") <= 3
        and re.search(r"[A-Za-z]{16}|abcd|ABCD|0123|\{[a-z_]{2}|\[[A-Za-z0]-|://|\\[A-Za-z]|%[sdr(]", secret)
        is None
    )
