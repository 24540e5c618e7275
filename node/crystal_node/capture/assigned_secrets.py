"""Secrets that are assigned to a telling name, in whatever way a language, a file or a person writes that.

    password = "…"      "api_key": "…"       DB_PASSWORD_PROD=…        --token …              define('AUTH_KEY', '…')
    <password>…</…>     key="ApiKey" value="…"    name: X_SECRET, value: …    the password is …      das Passwort lautet …

From each such word the pattern reads on over the rest of the name, what assigns, and the value. How the value is written
decides what it must look like to count (``secret_values``).
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from crystal_node.capture.secret_values import machine_made, mixed, phrase, quoted, salt, spoken, value

ASSIGNED_KIND = "assigned-secret"

Accepts = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class _Name:
    """``word``: what names it, in lower case; ``pattern``: the word with what must stand around it; ``password``: if people
    choose it."""

    word: str
    pattern: re.Pattern[str]
    password: bool


_QUALIFIERS = (
    *(
        "api",
        "access",
        "secret",
        "private",
        "auth",
        "account",
        "app",
        "application",
        "shared",
        "preshared",
        "subscription",
    ),
    *(
        "encryption",
        "signing",
        "master",
        "service",
        "license",
        "salt",
        "webhook",
        "project",
        "deploy",
        "storage",
    ),
)
_QUALIFIED = "|".join(f"(?<={word}{joint}key)" for word in _QUALIFIERS for joint in ("", "_", "-", " "))

_QUALIFIED_KEY = re.compile(f"key(?:{_QUALIFIED})\\Z")

# Any sign after the name's word may belong to the name: API_KEY_PROD, keystore.password.prod, clientSecretValue.
_REST_OF_NAME = r"(?P<rest>[a-z0-9_.-]{0,40}+)"
_NO_SECRET = re.compile(
    r"(?:^|[_.-])?(?:count|counts|type|types|name|names|id|ids|path|paths|file|files|filename|url|urls|uri|uris|endpoint|len|length|"
    r"size|limit|limits|max|min|expir\w*|expires?\w*|ttl|field|fields|label|hint|policy|regex|pattern|index|idx|pos|position|prefix|"
    r"suffix|class|kind|format|algorithm|algo|column|columns|header|headers|param|params|arg|args|var|vars|env|ref|refs|arn|provider|"
    r"manager|store|validator\w*|reset\w*|changed?\w*|updated?\w*|usage|budget|enabled|disabled|required|strength|stream|list|map|set|"
    r"scope|scopes|issuer|audience|version|method|mode|status|state|description|desc|title|text|message|msg|placeholder|help|error\w*|"
    r"input|output|total|cache|rotation|source|dir|directory|location|bytes|bits|chars|char|mask|ize[rd]?|izer\w*|ization|ify|less|"
    r"at|on|in|of|for|from|to|by|board\w*|word|words|pair|pairs|ring|agreement|usage|rate|stats?|test|tests|check\w*|callback|func\w*)$"
)


def _name(word: str, pattern: str, *, password: bool) -> _Name:
    return _Name(word, re.compile(f"(?:{pattern}){_REST_OF_NAME}", re.ASCII), password)


_NAMES: tuple[_Name, ...] = (
    _name(
        "pass",
        r"pass(?:wor[dt]e?s?(?![a-rt-z])|wd|phrase|(?<![a-z]pass)(?![a-z])|e(?<=mot de passe))|pass(?:wor[dt]|phrase)",
        password=True,
    ),
    _name("pw", r"pw(?:d(?<![a-z]pwd)(?![a-z])|(?<![a-z0-9]pw)(?![a-z0-9]))", password=True),
    _name("psk", r"(?<![a-z0-9])psk(?![a-z])", password=True),
    _name("kennwort", "kennwort", password=True),
    _name("contrase", r"contrase(?:ñ|n|\S{1,12})a", password=True),
    _name("clave", r"(?<![a-z])clave(?![a-z])", password=True),
    _name("mdp", r"(?<![a-z0-9])mdp(?![a-z])", password=True),
    _name("senha", r"(?<![a-z])senha(?![a-z])", password=True),
    _name("wachtwoord", "wachtwoord", password=True),
    _name("пароль", "пароль", password=True),
    _name("密码", "密码", password=True),
    _name("パスワード", "パスワード", password=True),
    _name("secret", "secrets?(?!ar|iv|ly)", password=False),
    _name("token", "token(?!iz|is|s[ -]|ed)", password=False),
    _name("credential", "credentials?", password=False),
    _name("key", f"key(?:{_QUALIFIED}|(?<=_key))", password=False),
    _name("_pat", r"_pat(?![a-z])", password=False),
    _name("salt", r"(?<=_)salt", password=False),
)
WORDS = tuple(name.word for name in _NAMES)

_TRIPLE = r"\"\"\"|'''"
_QUOTED = (
    rf"(?:[bnruf@]{{1,2}}(?=[\"']))?(?:(?P<slashes>\\{{1,7}}+)(?P<mark>[\"'`])(?P<escaped>[^\n]{{4,400}}?)(?P=slashes)(?P=mark)"
    rf"|(?P<quote>{_TRIPLE}|[\"'`])(?P<quoted>(?:\\[^\n]|[^\n\\]){{4,400}}?)(?P=quote)"
    r"|\[\[(?P<long>[^\]\n]{6,400})\]\]|\{(?P<braced>[^{}\s\"':,=]{6,80})\})"
)
_BARE = r"(?P<bare>[^\s\"'`,;|(){}\[\]<>]{6,400}+)(?![(\[{<])"
_ENDS_NAME = r"(?:[\\\"'`\])}]{0,4}+)"
_TYPE = r"(?::\s{0,2}&?[a-z][a-z0-9_.\[\]?|<>' ]{0,24}?(?=\s{0,2}=(?!=)))?"
_ASSIGNED = re.compile(
    rf"(?P<name>{_ENDS_NAME}){_TYPE}(?P<sign>\s{{0,8}}(?:=>|:=|\?=|={{1,3}}|:|by lazy \{{)\s{{0,8}})"
    rf"(?:(?:env|getenv|config|get|lazy|new|string|secretstr)?\s?[({{]\s?[^()\n]{{0,60}}?,?\s?)??(?:{_QUOTED}|{_BARE})"
)
_LISTED = re.compile(r"\\{0,3}[\"'],\s{0,30}(?=[bnr]?\\{0,7}[\"'])")
_LISTED_VALUE = re.compile(_QUOTED)
_ELEMENT = re.compile(
    r"(?:\"|')?(?:\s[a-z]{2,20}=\"[^\"<>\n]{0,60}\"){0,3}(?:>|</key>\s{0,40}<string>)\s{0,20}(?P<inner>[^<>\n]{4,400}?)\s{0,20}</"
)
_ATTRIBUTE = re.compile(
    r"[\"'](?:\s{1,20}[a-z]{1,20}=[\"'][^\"'\n]{0,60}[\"']){0,3}\s{1,20}value\s{0,2}=\s{0,2}(?P<mark>[\"'])(?P<inner>[^\n]{4,400}?)(?P=mark)"
)
_BESIDE = re.compile(
    r"\\{0,3}[\"']?,?\s{1,60}(?:\\{0,3}\"[a-z]{1,20}\\{0,3}\"\s{0,2}:\s{0,2}[a-z0-9\"_-]{1,30},\s{0,40}){0,3}"
    rf"\\{{0,3}}[\"']?value\\{{0,3}}[\"']?\s{{0,2}}:\s{{0,3}}(?:{_QUOTED}|{_BARE})"
    rf"|\\{{0,3}}[\"'],\\{{0,3}}[\"']value\\{{0,3}}[\"']\s{{0,2}}:\s{{0,3}}(?:\\{{0,3}}[\"'](?P<tight>[^\"'\n\\]{{4,400}}))"
)
_BLOCK = re.compile(r"[\"']?:\s{0,3}[|>][+-]?[ \t]{0,3}\r?\n[ \t]{1,40}(?P<inner>[^\s]{16,400}+)(?=\s|\Z)")
_SPOKEN = re.compile(
    r"(?:'s|s)?(?:\s{1,2}(?:for|für|para|pour|per)\s[^\n:=\"'`]{1,40}?)?\s{1,3}(?:is|was|are|lautet|ist|wäre|es|est|era|è|é|to|:)\s{0,2}:?\s{0,2}"
    r"(?:(?P<quote>[\"'`„“«])(?P<quoted>[^\n\"'`“”»]{4,100}+)[\"'`“”»]|(?P<bare>[^\s\"'`,;(){}\[\]<>]{6,200}+))"
)
_SPACED = re.compile(rf"[\"']?\s{{1,3}}(?:{_QUOTED}|{_BARE})")
_CALLED = re.compile(rf"\(\s{{0,3}}{_QUOTED}\s{{0,3}}\)")
_OPTIONS = re.compile(
    r"--[a-z-]{0,20}(?:password|passwd|passphrase|secret|token|api-?key|auth-?key)[ =]"
    r"(?:(?P<quote>[\"'])(?P<quoted>[^\n\"']{4,200}+)(?P=quote)|[\"']?(?P<bare>[^\s\"'`,;&|(){}\[\]<>]{6,400}+))",
    re.ASCII,
)
_LONG = re.compile(r"[^\s\"'`,;&]{100,400}+")
"""What is so long and was no secret is not searched for names again: otherwise time would grow with its square."""
_GROUPS = ("quoted", "escaped", "long", "braced", "bare", "inner", "tight")


def assigned_secrets(text: str, lowered: str, words: str) -> Iterator[tuple[int, int]]:
    """Spans of the values. ``lowered`` is the text in lower case, character for character; ``words``: its distinct words."""
    for name in _NAMES:
        if name.word not in words:
            continue
        match_name = name.pattern.match
        at = lowered.find(name.word)
        while at >= 0:
            match = match_name(lowered, at)
            after = at + len(name.word)
            if match is not None and not (match["rest"] and _NO_SECRET.search(match["rest"])):
                span = _value(text, lowered, name, match)
                if span is not None:
                    yield span
                    after = span[1]
                elif (long := _LONG.match(lowered, match.end())) is not None:
                    after = long.end()
            at = lowered.find(name.word, after)
    if "--" in words:
        for match in _OPTIONS.finditer(lowered):
            start, end = match.span("quoted" if match["quoted"] is not None else "bare")
            found = text[start:end]
            in_quotes = match["quoted"] is not None
            if mixed(found) or (in_quotes and quoted(found)):
                yield start, end


def _value(text: str, lowered: str, name: _Name, named: re.Match[str]) -> tuple[int, int] | None:
    """The span of what is assigned to this name, if it looks like a secret."""
    at = named.end()
    following = lowered[at : at + 1]
    if not following:
        return None
    shouted = text[named.start()].isupper()
    qualified = name.word not in ("key", "_pat") or _QUALIFIED_KEY.search(
        lowered, max(0, named.start() - 16), named.start() + 3
    )
    if (match := _ASSIGNED.match(lowered, at)) is not None:
        span = _judged(
            text,
            match,
            _of_assignment(name, named["rest"], match, shouted=shouted) if qualified else machine_made,
        )
        if span is not None:
            return span
    if following in "\"'\\,":
        for pattern, accepts in ((_BESIDE, quoted), (_ATTRIBUTE, quoted), (_ELEMENT, _within_element)):
            if (match := pattern.match(lowered, at)) is not None:
                return _judged(text, match, accepts if name.password else _key(accepts))
        if (match := _LISTED.match(lowered, at)) is not None:
            return _judged_argument(text, match.end(), name)
        if (match := _SPACED.match(lowered, at)) is not None and shouted and name.password:
            return _judged(text, match, mixed)
        return None
    if following in ">< " and (match := _ELEMENT.match(lowered, at)) is not None:
        return _judged(text, match, _within_element)
    if following == ":" and (match := _BLOCK.match(lowered, at)) is not None:
        return _judged(text, match, machine_made)
    if (
        following == "("
        and name.password
        and not named["rest"]
        and (match := _CALLED.match(lowered, at)) is not None
    ):
        return _judged(text, match, lambda secret: mixed(secret) or phrase(secret))
    if following in " '\ns\t":
        return _said(text, lowered, name, at, shouted=shouted)
    return None


def _said(text: str, lowered: str, name: _Name, at: int, *, shouted: bool) -> tuple[int, int] | None:
    if (match := _SPOKEN.match(lowered, at)) is not None:
        span = _judged(text, match, _spoken_or_quoted(match) if name.password else machine_made)
        if span is not None:
            return span
    if (match := _BESIDE.match(lowered, at)) is not None:
        return _judged(text, match, quoted if name.password else machine_made)
    if (match := _SPACED.match(lowered, at)) is not None:
        in_quotes = match["bare"] is None and match["braced"] is None
        if name.password:
            return _judged(text, match, lambda secret: in_quotes and (mixed(secret) or phrase(secret)))
        return _judged(text, match, lambda secret: len(secret) >= 20 and _random(secret, shouted=shouted))
    return None


def _random(secret: str, *, shouted: bool) -> bool:
    cases = any(char.isupper() for char in secret) and any(char.islower() for char in secret)
    return (
        machine_made(secret)
        and (shouted or cases)
        and not re.search(r"[.,:()]\w" if len(secret) >= 40 else r"[.,:/()]\w", secret)
    )


def _spoken_or_quoted(match: re.Match[str]) -> Accepts:
    if match["quoted"] is not None:
        return lambda secret: mixed(secret) or phrase(secret)
    return spoken


def _within_element(secret: str) -> bool:
    return quoted(secret) and any(char.isdigit() for char in secret)


def _key(accepts: Accepts) -> Accepts:
    return lambda secret: accepts(secret) and any(char.isdigit() for char in secret) and " " not in secret


def _of_assignment(name: _Name, rest: str, match: re.Match[str], *, shouted: bool) -> Accepts:
    """What the value must look like: in quotes, after ``NAME=``, or neither; more is asked for where the name goes on."""
    more = rest.strip("_.-")
    if match["bare"] is None:
        if match["braced"] is not None:
            return lambda secret: name.password and mixed(secret) and bool(re.search(r"[;!#$&*+@^]", secret))
        if more and not more.isdigit():
            return (lambda secret: mixed(secret) or phrase(secret)) if name.password else machine_made
        return quoted if name.password else _key_in_quotes
    if match["sign"] == "=" and shouted:
        if more and not more.isdigit():
            return mixed if name.password else machine_made
        return value if name.password else mixed
    if more and not more.isdigit() and not name.password:
        return machine_made
    return mixed if name.password else machine_made


def _key_in_quotes(secret: str) -> bool:
    return (quoted(secret) and " " not in secret) or salt(secret)


def _judged(text: str, match: re.Match[str], accepts: Accepts) -> tuple[int, int] | None:
    for group in _GROUPS:
        if group in match.re.groupindex and match[group] is not None:
            start, end = match.span(group)
            found = text[start:end]
            if group == "bare":
                trimmed = found.rstrip(".")
                end -= len(found) - len(trimmed)
                if match.re is _ASSIGNED and match["sign"] == "=" and "&" in trimmed:
                    trimmed = trimmed.split("&", 1)[0]
                    end = start + len(trimmed)
                found = trimmed
            return (start, end) if len(found) >= 4 and accepts(found) else None
    return None


def _judged_argument(text: str, at: int, name: _Name) -> tuple[int, int] | None:
    match = _LISTED_VALUE.match(text, at)
    if match is None:
        return None
    accepts: Accepts = (
        (lambda secret: mixed(secret) or phrase(secret))
        if name.password
        else (lambda secret: machine_made(secret) or salt(secret))
    )
    return _judged(text, match, accepts)
