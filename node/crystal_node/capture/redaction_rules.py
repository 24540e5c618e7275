"""Rules for credentials that are known by where they stand: in a header, an address, a command, a file of keys.

Texts are searched in lower case. Each rule begins, or ends, at one of its words, so a text without that word costs next to
nothing. Every pattern takes linear time: from one word it reads a bounded part of the text, or repeats possessively.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from crystal_node.capture.secret_values import (
    credential,
    has_digits,
    in_base64,
    key_block,
    machine_made,
    mixed,
    phrase,
    quoted,
    value,
)

BEFORE_CHARS = 300
KEY_LINES_MAX = 200
KEY_CHARS_MAX = 20_000

Accepts = Callable[[str], bool]


@dataclass(frozen=True)
class ContextRule:
    """One place where a credential stands.

    ``words``: the pattern is tried at each of these, in lower-case text. ``before``: the pattern is for what ends where the
    word begins, at most ``BEFORE_CHARS`` of it. The groups `secret`, `quoted` and `bare` are what is taken out, or else all of
    the match; ``accepts`` has the last word on it.
    """

    kind: str
    words: tuple[str, ...]
    expression: str
    accepts: Accepts
    before: bool

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Compiled when a text has one of the words."""
        return re.compile(self.expression, re.ASCII)

    def span(self, match: re.Match[str]) -> tuple[int, int]:
        """The span of the secret in the match."""
        for name in ("secret", "quoted", "bare"):
            if name in self.pattern.groupindex and match[name] is not None:
                return match.span(name)
        return match.span()


def _any(_secret: str) -> bool:
    return True


def password(secret: str) -> bool:
    """Behind an option for passwords: anything but a variable, a path, a placeholder or an option."""
    return value(secret) and secret[0] not in "-$<{" and not secret.isalpha()


def _rule(
    kind: str, words: str, pattern: str, accepts: Accepts = _any, *, before: bool = False
) -> ContextRule:
    return ContextRule(kind, tuple(words.split()), pattern, accepts, before)


_GIVEN = r"(?:(?P<quote>[\"'])(?P<quoted>[^\"'\n]{4,200}+)(?P=quote)|(?P<bare>[^\s\"'`|;<>]{5,200}+))"
"""A value on a command line."""
_REST = r"[^\n|;]{0,200}?"
_B64 = "[a-z0-9+/]"


def _command(words: str, option: str, accepts: Accepts = password) -> ContextRule:
    """A password behind an option of a command."""
    return _rule("command-password", words, rf"[a-z0-9_.-]{{2,24}}+{_REST}\s{option}{_GIVEN}", accepts)


CONTEXTS: tuple[ContextRule, ...] = (
    _rule("crystal-recovery", "crystal-recovery", r"crystal-recovery[ :=]{1,3}(?P<secret>[0-9a-f]{64})"),
    _rule(
        "crystal-invite", "crystal-invite", r"crystal-invite[ :=]{1,3}[0-9a-f]{32}\.(?P<secret>[0-9a-f]{64})"
    ),
    _rule("crystal-token", "#link=", r"#link=(?P<secret>[a-z0-9_-]{32,}+)"),
    _rule(
        "private-key",
        "-----begin",
        r"-----begin [a-z0-9 ]{0,40}private key(?: block)?-----"
        r"(?:(?:[^-]++|-(?!----))*+-{5,6}end [a-z0-9 ]{0,40}private key(?: block)?-----"
        # Cut off before its end: its headers, and as many lines of Base64 as follow, with what a tool put before each.
        r"|(?:\s*+(?:proc-type|dek-info|version|comment)[^\n]{0,200}+)*+"
        r"(?:[\s\\nr\"'>|,+:→\d-]{0,24}+[a-z0-9+/=]{16,}+)*+(?:[\s\\nr\"'>|,+:→\d-]{1,24}+[a-z0-9+/]{4,}=++)?+)",
        key_block,
    ),
    _rule(
        "private-key",
        "private-lines:",
        r"private-lines:\s{0,3}[0-9]{1,3}(?P<secret>(?:\s{1,3}+[a-z0-9+/=]{16,}+)++)",
    ),
    _rule("private-key", "nkey", r"nkey seed-----\s{1,4}(?P<secret>s[a-z2-7]{50,60})"),
    _rule("private-key", '"d"', r"\"d\"\s{0,3}:\s{0,3}\"(?P<secret>[a-z0-9_-]{42,700}+)\"", has_digits),
    _rule(
        "private-key", "client-key-data:", rf"client-key-data:\s{{0,3}}[\"']?(?P<secret>{_B64}{{40,}}+=*+)"
    ),
    _rule(
        "aws-key",
        "aws",
        r"aws[^\n]{0,30}?(?:key|secret|token|password)[^\n]{0,20}?[\"'](?P<secret>[0-9a-z/+]{40})[\"']",
        in_base64,
    ),
    _rule(
        "authorization",
        "authorization",
        r"authorization[\\\"']{0,2}\s{0,3}[:=,]\s{0,3}[\\\"'`]{0,2}"
        r"(?:(?:digest|aws4-hmac-sha256|token) [^\n]{0,300}?(?:token|response|signature)=\\?\"?"
        r"|[a-z][a-z0-9-]{2,20}[ :]{1,3})(?P<secret>[a-z0-9._~+/=-]{8,}+)",
        credential,
    ),
    _rule("bearer", "bearer", r"bearer\s{1,3}(?P<secret>[a-z0-9._~+/=:-]{16,}+)", has_digits),
    _rule(
        "cookie",
        "cookie:",
        r"cookie:[^\n]{0,200}?(?:sess(?:ion)?|auth|token|sid|jwt)[a-z0-9_.-]{0,20}=(?P<secret>[a-z0-9._~+/=%-]{16,}+)",
        machine_made,
    ),
    _rule("basic-auth", "://", r"://(?P<secret>[0-9a-z_]{20,200}+)@", machine_made),
    _rule(
        "basic-auth",
        "@tcp(",
        r"(?<![a-z0-9:/])[a-z0-9_.-]{1,40}:(?P<secret>[^\s\"'`:/@]{3,100})\Z",
        password,
        before=True,
    ),
    _rule(
        "basic-auth",
        "sqlplus thin:",
        r"(?:sqlplus\s{1,4}(?:-\w\s{1,3})?|thin:)[\"']?[a-z0-9_]{1,40}/(?P<secret>[^\s/@\"']{4,100}+)@",
        value,
    ),
    _rule(
        "basic-auth",
        "curl",
        r"curl\b[^\n]{0,300}?\s(?:-[a-z]{0,4}u|--user|--proxy-user)[ =]?"
        r"(?:(?P<quote>[\"'])[^\s:\"']{1,100}+:(?P<quoted>[^\n\"']{3,200}+)(?P=quote)|[^\s:\"']{1,100}+:(?P<bare>[^\s\"']{3,200}+))",
        value,
    ),
    _rule(
        "basic-auth", "login", r"login[ \t]{1,4}\S{1,100}+\s{1,8}password\s{1,4}(?P<secret>\S{4,200}+)", value
    ),
    _rule("basic-auth", "login", r"login\s{1,3}(?P<secret>[a-z0-9_-]{32,100}+)(?=[\s\"'`]|\Z)", machine_made),
    _rule(
        "basic-auth",
        "ftp",
        rf"ftp\s{_REST}-u\s{{0,2}}[\"']?[^\s,\"']{{1,60}}+,(?P<secret>[^\s\"']{{4,100}}+)",
        password,
    ),
    _rule(
        "basic-auth", '"auth', r"\"auth\\?\"\s{0,3}:\s{0,3}\\?\"(?P<secret>[a-z0-9+/=_-]{12,}+)", in_base64
    ),
    _rule(
        "npm-token",
        "_auth _password",
        r"(?<![a-z0-9_])_(?:authtoken|auth|password)\s{0,3}=\s{0,3}[\"']?(?P<secret>[a-z0-9_=/+.-]{12,}+)",
        credential,
    ),
    _rule(
        "assigned-secret",
        "cred daten accesos",
        r"(?:credentials|creds|daten|accesos)\s{0,2}[:=]\s{0,2}[a-z0-9_.@-]{2,40}\s{0,2}[:/]\s{0,2}(?P<secret>[^\s\"'`,;]{6,100}+)",
        mixed,
    ),
    _rule(
        "assigned-secret",
        "value",
        r"value\\?[\"']\s{0,3}:\s{0,3}\\?[\"'](?P<secret>[^\"'\n\\]{6,400}+)\\?[\"'],\s{0,20}\\?[\"'](?:name|key)\\?[\"']\s{0,3}:\s{0,3}"
        r"\\?[\"'][a-z0-9_.-]{0,60}?(?:passw|secret|token|api_?-?key|private_?-?key|access_?-?key|credential)",
        quoted,
    ),
    _rule(
        "assigned-secret",
        "convertto-securestring",
        rf"convertto-securestring\s{{1,3}}(?:-string\s{{1,3}})?{_GIVEN}",
        password,
    ),
    _rule(
        "assigned-secret",
        "identified",
        r"identified\s{1,3}(?:with\s{1,3}\w{1,40}\s{1,3})?by\s{1,3}(?P<quote>[\"'])(?P<quoted>[^\"'\n]{4,200}+)(?P=quote)",
        value,
    ),
    _rule(
        "command-password", "nickserv", rf"nickserv\s{{1,3}}(?:identify|register)\s{{1,3}}{_GIVEN}", password
    ),
    # What an expect script types.
    _rule("command-password", "send", r"send\s{1,3}(?:--\s)?\"(?P<secret>[^\"\s\\]{6,100}+)\\{1,2}r", mixed),
    _command("sshpass", r"-p\s{0,2}"),
    _command("mysql mariadb", "-p(?=[^\\s-])"),
    _rule("command-password", "mysqladmin", rf"mysqladmin\b{_REST}\spassword\s{{1,3}}{_GIVEN}", password),
    _rule(
        "command-password",
        "secret",
        rf"secret\s{{1,3}}set\s[^\n]{{0,100}}?(?:--body|-b|--value)[ =]{_GIVEN}",
        password,
    ),
    _command("redis-cli", r"-a\s{1,2}"),
    _command("login", r"-p\s{1,2}", lambda secret: password(secret) and mixed(secret)),
    _command("mongo", r"-p\s{1,2}"),
    _command("7z unrar", r"-p(?=[^\s-])", lambda secret: mixed(secret) or phrase(secret)),
    _rule("command-password", "zip", rf"(?<![a-z0-9])zip\s{_REST}-p\s{{1,2}}{_GIVEN}", mixed),
    _rule(
        "command-password",
        "smb",
        rf"smb[a-z]{{3,8}}\b{_REST}(?:-u|--user)[ =]?[\"']?[^\s%\"']{{1,60}}+%(?P<secret>[^\s\"']{{4,100}}+)",
        password,
    ),
    _rule("command-password", "pass:", rf"(?<=\s)pass:{_GIVEN}", password),
    _command("ldap", r"-w\s{1,2}"),
    _rule("command-password", "rdp", rf"rdp{_REST}\s(?:/p:|-p\s){_GIVEN}", password),
    _command("snmp", r"-a\s{1,2}", lambda secret: len(secret) >= 8 and password(secret)),
    _command("snmp", r"-x\s{1,2}", lambda secret: len(secret) >= 8 and password(secret)),
    _rule(
        "command-password",
        "htpasswd",
        rf"htpasswd\s{{1,3}}-[a-z]{{0,4}}b[a-z]{{0,4}}\s{{1,3}}\S{{1,100}}+\s{{1,3}}\S{{1,60}}+\s{{1,3}}{_GIVEN}",
        password,
    ),
    _rule(
        "command-password",
        "net",
        rf"(?<![a-z])net\s{{1,2}}use\s[^\n]{{0,60}}?\\\\\S{{1,100}}+\s{{1,3}}{_GIVEN}\s{{1,3}}/user",
        password,
    ),
    _rule(
        "command-password",
        "echo",
        r"echo\s{1,3}(?:-n\s{1,3})?(?:(?P<quote>[\"'])(?:[a-z0-9_-]{1,32}:)?(?P<quoted>[^\"'\n]{4,200})(?P=quote)"
        r"|(?:[a-z0-9_-]{1,32}:)?(?P<bare>[^\s\"'`|;<>$]{5,200}))\s{0,3}\|\s{0,3}"
        r"(?:sudo\s{1,3}(?:-\S{1,10}\s{1,3}){0,3}(?:-s|chpasswd)\b|chpasswd|[a-z]{2,10}\s(?:auth\s|registry\s)?login\b)",
        password,
    ),
    _rule(
        "password-file",
        ":5432: :3306: :*:",
        r":(?:5432|3306|\*):[a-z0-9_*.-]{1,60}:[a-z0-9_*.-]{1,60}:(?P<secret>[^\s:]{4,200}+)(?=\s|\Z)",
        mixed,
    ),
    _rule(
        "password-hash",
        "$ {s",
        r"(?:\$(?:1|5|6|apr1)\$(?:rounds=\d{1,9}\$)?[a-z0-9./+]{1,16}\$[a-z0-9./+]{22,}+|\$y\$[a-z0-9./]{1,10}\$[a-z0-9./]{1,90}\$[a-z0-9./]{43}"
        r"|\$2[aby]\$\d\d\$[a-z0-9./+]{53}|\$argon2(?:id|i|d)\$v=\d{1,3}\$[a-z0-9=,]{5,60}\$[a-z0-9+/]{8,}+\$[a-z0-9+/]{20,}+|\{s?sha\}[a-z0-9+/=]{28,}+)",
    ),
)
"""Recognised by where they stand, in lower-case text."""

CONTEXTS_BY_WORD: dict[str, tuple[ContextRule, ...]] = {
    word: tuple(rule for rule in CONTEXTS if word in rule.words) for rule in CONTEXTS for word in rule.words
}
CONTEXT_WORDS = tuple(CONTEXTS_BY_WORD)
_COMMANDS = frozenset(
    {
        *(
            "sshpass",
            "mysql",
            "mariadb",
            "redis-cli",
            "mongo",
            "7z",
            "unrar",
            "zip",
            "smb",
            "ldap",
            "snmp",
            "htpasswd",
        ),
        *("curl", "ftp"),
    }
)
WORDS_WITHOUT_COMMANDS = tuple(word for word in CONTEXT_WORDS if word not in _COMMANDS)
"""Those that can find something in a text in which no option of a command stands."""

_DATABASES = r"(?:postgres(?:ql)?|mysql|mariadb|mongodb|rediss?|amqps?|mssql|sqlserver|oracle|clickhouse|cockroachdb|db2|nats)"
DATABASE_ADDRESS = re.compile(rf"{_DATABASES}(?:\+[a-z0-9_]{{1,20}})?\Z")
_HOST = r"(?=[a-z0-9_\[][a-z0-9_.:,\]-]{0,200}+(?:[/?\s\"'`<>),;#]|\Z))"
PASSWORD_IN_ADDRESS = re.compile(
    rf"://[^\s:/?#\[\]@\"'<>]{{0,200}}+:(?P<secret>[^\s/?#\[\]\"'<>]{{3,200}})@{_HOST}", re.ASCII
)
PASSWORD_IN_DATABASE_ADDRESS = re.compile(
    rf"://[^\s:/?#\[\]@\"'<>]{{0,200}}+:(?P<secret>[^\s\"'<>]{{3,200}})@{_HOST}", re.ASCII
)
_PORT = re.compile(r"\d{1,5}(?:[/?#,]|\Z)")

URL_PARAMETERS = ("signature=", "sig=", "code=", "pwd=", "key=", "token=", "secret=", "password=")
_URL_PARAMETER = re.compile(
    r"(?:token|secret|password|key|signature|sig|code|pwd)=(?P<secret>[^\s&#\"'<>`)\]]{12,}+)", re.ASCII
)
_PARAMETER_START = re.compile(r"[?&#;][a-z0-9_-]{0,30}\Z")

_KEY_END = re.compile(r"-{5,6}end [a-z0-9 ]{0,40}private key(?: block)?-----")
_KEY_LINE = re.compile(
    r"[\s\\nr\"'>|,+:→\d-]{0,24}?(?P<data>[A-Za-z0-9+/]{4,90}={0,3})[\s\\nr\"',|;]{0,12}", re.ASCII
)
_KEY_LINE_MIN = 40


def addressed_secrets(text: str, lowered: str) -> list[tuple[int, int, str]]:
    """Passwords in addresses: ``https://user:…@host``, and of databases also with signs that should have been escaped."""
    found: list[tuple[int, int, str]] = []
    at = lowered.find("://")
    while at >= 0:
        of_database = DATABASE_ADDRESS.search(lowered, max(0, at - 40), at)
        pattern = PASSWORD_IN_DATABASE_ADDRESS if of_database else PASSWORD_IN_ADDRESS
        match = pattern.match(lowered, at)
        if (
            match
            and not _PORT.match(match["secret"])
            and value(text[slice(*match.span("secret"))].replace("#", ""))
        ):
            found.append((*match.span("secret"), "basic-auth"))
        at = lowered.find("://", match.end() if match else at + 3)
    return found


def url_parameters(text: str, lowered: str, words: str) -> list[tuple[int, int, str]]:
    """Tokens in the parameters of an address: ``?access_token=…``, ``&sig=…``."""
    found: list[tuple[int, int, str]] = []
    for word in URL_PARAMETERS:
        at = lowered.find(word) if word in words else -1
        while at >= 0:
            match = _URL_PARAMETER.match(lowered, at)
            if match and _PARAMETER_START.search(lowered, max(0, at - 32), at):
                start, end = match.span("secret")
                if mixed(text[start:end]):
                    found.append((start, end, "url-parameter"))
            at = lowered.find(word, match.end() if match else at + len(word))
    return found


def keys_without_start(text: str, lowered: str) -> list[tuple[int, int, str]]:
    """The last lines of private keys whose first line is not there (``tail``, a part of a file that was read)."""
    found: list[tuple[int, int, str]] = []
    at = lowered.find("private key")
    last = 0
    while at >= 0:
        dashes = lowered.rfind("end", max(0, at - 48), at)
        match = _KEY_END.match(lowered, max(0, dashes - 5)) if dashes >= 0 else None
        if match:
            start = _lines_before(text, match.start(), max(last, match.start() - KEY_CHARS_MAX))
            if start is not None:
                found.append((start, match.end(), "private-key"))
            last = match.end()
        at = lowered.find("private key", at + 11)
    return found


def _lines_before(text: str, end: int, floor: int) -> int | None:
    """Where the lines of a key begin that stand before its last line. None: there are none."""
    lines = text[floor:end].split("\n")
    begins: int | None = None
    at = end - len(lines[-1])
    for line in reversed(lines[:-1][-KEY_LINES_MAX:]):
        match = _KEY_LINE.fullmatch(line)
        if match is None or (begins is None and len(match["data"]) < 4):
            break
        at -= len(line) + 1
        if len(match["data"]) >= _KEY_LINE_MIN:
            begins = at + match.start("data")
    return begins
