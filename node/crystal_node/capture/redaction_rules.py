"""Rules for credentials: known by their form, by what stands before them, or by being assigned.

*Tokens* are known by a maker's prefix (``ghp_``, ``sk-ant-``) or by their structure. *Contexts* are places where a credential
stands: a header, a URL, a key file. *Assigned secrets* follow a telling name: ``password = "…"``, ``"api_key": "…"``,
``DB_PASSWORD=…``, ``--token …``. Behind such names stand variables, calls, paths, placeholders and prose far more often than
passwords; how the value is written decides what it must look like to count.

Every pattern takes linear time on every text: unlimited repetition is possessive, everything else has a bound. Alphabets are
ASCII. There is no rule by entropy alone: a memory of work is full of commit ids, hashes and UUIDs.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_EXPRESSION = re.compile(
    r"\{.*\}|<.*>|\[.*\]|\w\(|^\$|\$[{(]|%(?![0-9A-F]{2})|\.\.\.|^(?:process|os|env|self|this|config|settings)\."
)
_PATH = re.compile(r"[~.]{0,2}/|[A-Za-z]:\\|[a-z]{2,10}://")
_NAME = re.compile(r"(?:[A-Z]{2,}+|[A-Z]?[a-z]{2,}+|[0-9]{1,4}+|[._/-])*+")
"""Words and short numbers, however joined: names of things. Random text switches between them within a few letters."""
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


RUN = re.compile(r"[A-Za-z0-9_+/=.:~\\-]{15,}+")
"""Every token is, or ends, an unbroken run of at least so many of these characters. Most texts have few such runs, and rules
for tokens are tried on those only."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One way to recognise a credential.

    ``triggers``: at least one of these plain substrings is part of every match (not used for contexts, whose patterns begin
    with something literal). The pattern's group ``secret`` is what is taken out, or else all of the match; ``accepts`` has
    the last word on it. Patterns of contexts are for text in lower case.
    """

    kind: str
    triggers: tuple[str, ...]
    pattern: re.Pattern[str]
    accepts: Callable[[str], bool]

    def span(self, match: re.Match[str]) -> tuple[int, int]:
        """The span of the secret in the match."""
        return match.span("secret") if "secret" in self.pattern.groupindex else match.span()


def _any(_secret: str) -> bool:
    return True


def _rule(kind: str, triggers: str, pattern: str, accepts: Callable[[str], bool] = _any) -> Rule:
    return Rule(kind, tuple(triggers.split()), re.compile(pattern, re.ASCII), accepts)


def _token(kind: str, prefixes: str, body: str, accepts: Callable[[str], bool] = _any) -> Rule:
    """A token that begins with one of these prefixes, after no letter or digit."""
    choice = "|".join(re.escape(prefix) for prefix in prefixes.split())
    return _rule(kind, prefixes, rf"(?<![A-Za-z0-9])(?:{choice}){body}", accepts)


def _context(kind: str, pattern: str, accepts: Callable[[str], bool] = _any) -> Rule:
    return _rule(kind, "", pattern, accepts)


_WORD = "[A-Za-z0-9_-]"

TOKENS: tuple[Rule, ...] = (
    _token("jwt", "eyJ", rf"{_WORD}{{8,}}+\.{_WORD}{{4,}}+(?:\.{_WORD}*+){{0,3}}+"),
    _token("age-key", "AGE-SECRET-KEY-1", "[0-9A-Z]{50,}+"),
    _token("airtable-token", "pat", r"[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    _token("anthropic-key", "sk-ant-", f"{_WORD}{{16,}}+"),
    _token("artifactory-key", "AKCp", "[A-Za-z0-9]{60,}+"),
    _token("atlassian-token", "ATATT3 ATCTT3", "[A-Za-z0-9_=-]{40,}+"),
    _token("aws-key", "AKIA ASIA ABIA ACCA A3T", "[0-9A-Z]{16,}+"),
    _token("azure-key", "AccountKey= SharedAccessKey=", "(?P<secret>[A-Za-z0-9+/=]{40,}+)"),
    _token("crates-token", "cio", "[A-Za-z0-9]{32}(?![A-Za-z0-9])", has_digits),
    _token("databricks-token", "dapi", "[0-9a-f]{32,}+"),
    _token("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", "[0-9a-f]{40,}+"),
    _token("discord-webhook", "discord.com/api/webhooks/", f"(?P<secret>[0-9]{{5,}}+/{_WORD}{{30,}}+)"),
    _rule(
        "discord-token",
        ".",
        rf"(?<!{_WORD})[MNO]{_WORD}{{23,25}}\.{_WORD}{{6}}\.{_WORD}{{27,}}+",
        has_digits,
    ),
    _token("docker-token", "dckr_pat_ dckr_oat_", f"{_WORD}{{20,}}+"),
    _token("doppler-token", "dp.", r"(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,}+"),
    _token("figma-token", "figd_ figu_", f"{_WORD}{{30,}}+"),
    _token("fly-token", "fm1_ fm2_ fo1_", "[A-Za-z0-9_+/=-]{30,}+"),
    _token("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", "[A-Za-z0-9_]{36,}+"),
    _token("github-token", "github_pat_", "[A-Za-z0-9_]{22,}+"),
    _token(
        "gitlab-token",
        "glpat- gldt- glft- glsoat- glrt- glcbt- glptt- glagent- glimt- gloas- glffct- GR1348941",
        rf"{_WORD}{{20,}}+(?:\.{_WORD}{{2,}}+){{0,3}}+",
    ),
    _token("google-key", "AIza", f"{_WORD}{{35,}}+"),
    _token("google-token", "ya29. GOCSPX-", f"{_WORD}{{20,}}+"),
    _token("grafana-token", "glsa_ glc_", "[A-Za-z0-9_+/=]{32,}+"),
    _token("groq-key", "gsk_", "[A-Za-z0-9]{40,}+"),
    _token("heroku-key", "HRKU-", f"{_WORD}{{36,}}+"),
    _token("hugging-face-token", "hf_ api_org_", "[A-Za-z0-9]{30,}+"),
    _token("langsmith-key", "lsv2_pt_ lsv2_sk_", "[0-9a-f_]{32,}+"),
    _token("linear-key", "lin_api_ lin_oauth_", "[A-Za-z0-9]{32,}+"),
    _rule("mailchimp-key", "-us", r"(?<![A-Za-z0-9])[0-9a-z]{32}-us[0-9]{1,2}", has_digits),
    _token("mailgun-key", "key-", "[0-9a-f]{32}(?![A-Za-z0-9])"),
    _token("netlify-token", "nfp_ nfc_ nfo_ nfu_ nfb_", "[A-Za-z0-9]{36,}+"),
    _token("newrelic-key", "NRAK- NRJS- NRII-", f"{_WORD}{{19,}}+"),
    _token("notion-token", "ntn_ secret_", "[A-Za-z0-9]{43,}+", has_digits),
    _token("npm-token", "npm_", "[A-Za-z0-9]{36,}+"),
    _token("onepassword-token", "ops_eyJ", f"{_WORD}{{100,}}+"),
    _token("openai-key", "sk-proj- sk-svcacct- sk-admin-", f"{_WORD}{{20,}}+"),
    _token("perplexity-key", "pplx-", "[A-Za-z0-9]{40,}+"),
    _token("planetscale-token", "pscale_tkn_ pscale_pw_ pscale_oauth_", f"{_WORD}{{32,}}+"),
    _token("postman-key", "PMAK-", "[0-9a-f-]{50,}+"),
    _token("pulumi-token", "pul-", "[0-9a-f]{40,}+"),
    _token("pypi-token", "pypi-", f"{_WORD}{{50,}}+"),
    _token("replicate-token", "r8_", "[A-Za-z0-9]{37,}+"),
    _token("rubygems-key", "rubygems_", "[0-9a-f]{48,}+"),
    _token("sendgrid-key", "SG.", rf"{_WORD}{{16,}}+\.{_WORD}{{16,}}+"),
    _token("sentry-token", "sntrys_ sntryu_", "[A-Za-z0-9_+/=-]{40,}+"),
    _token("shopify-token", "shpat_ shpca_ shppa_ shpss_", "[0-9A-Fa-f]{32,}+"),
    _token(
        "slack-token",
        "xoxa- xoxb- xoxc- xoxd- xoxe- xoxo- xoxp- xoxr- xoxs- xapp-",
        f"{_WORD}{{10,}}+",
        has_digits,
    ),
    _token(
        "slack-webhook",
        "hooks.slack.com/",
        "(?:services|workflows|triggers)/(?P<secret>[A-Za-z0-9_/-]{16,}+)",
    ),
    _token("square-secret", "sq0csp- sq0atp-", r"[A-Za-z0-9_\\-]{22,}+"),
    _token("stripe-key", "sk_live_ rk_live_ sk_test_ rk_test_ whsec_", "[A-Za-z0-9+/=]{16,}+"),
    _token("supabase-key", "sbp_ sb_secret_", "[A-Za-z0-9_]{20,}+"),
    _token("tailscale-key", "tskey-", "[A-Za-z0-9-]{16,}+", has_digits),
    _rule("telegram-token", ":", rf"(?<![0-9A-Za-z])[0-9]{{8,10}}:{_WORD}{{35,}}+"),
    _rule("terraform-token", ".atlasv1.", rf"(?<!{_WORD})[A-Za-z0-9]{{14}}\.atlasv1\.{_WORD}{{60,}}+"),
    _token("twilio-key", "SK", "[0-9a-z]{32}(?![A-Za-z0-9])", has_digits),
    _token("vault-token", "hvs. hvb. hvr.", f"{_WORD}{{24,}}+"),
    _token("xai-key", "xai-", "[A-Za-z0-9]{60,}+"),
    # OpenAI's old form, and that of many who speak its protocol (DeepSeek, OpenRouter, Langfuse, …).
    _token("secret-key", "sk-", f"{_WORD}{{32,}}+", has_digits),
    _rule("crystal-code", "mc1: MC1:", r"(?<![A-Za-z0-9])(?:mc1|MC1):[A-Za-z0-9+/_-]{42,}+={0,2}"),
    _rule("crystal-invite", "MC2: mc2:", r"(?<![A-Za-z0-9])(?:MC2|mc2):[A-Za-z2-7=-]{32,}+"),
    _rule(
        "crystal-token",
        ".",
        rf"\.(?<=[0-9a-f]{{32}}\.)(?P<secret>{_WORD}{{43}})(?!{_WORD})",
    ),
)
"""Recognised by themselves. If two match, the first names the kind."""

CONTEXTS: tuple[Rule, ...] = (
    _context(
        "private-key",
        r"-----begin [a-z0-9 ]{0,40}private key(?: block)?-----"
        r"(?:(?:[^-]++|-(?!----))*+-----end [a-z0-9 ]{0,40}private key(?: block)?-----"
        # Cut off before its end: its headers, and as many lines of Base64 as follow.
        r"|(?:\s*+(?:proc-type|dek-info|version|comment)[^\n]{0,200}+)*+(?:[\s\\nr\"'>|,]{0,16}+[a-z0-9+/=]{16,}+)*+)",
        key_block,
    ),
    _context(
        "private-key",
        r"private-lines:\s{0,3}[0-9]{1,3}(?P<secret>(?:\s{1,3}+[a-z0-9+/=]{16,}+)++)",
    ),
    _context(
        "aws-key",
        r"aws[^\n]{0,30}?(?:key|secret|token|password)[^\n]{0,20}?[\"'](?P<secret>[0-9a-z/+]{40})[\"']",
        in_base64,
    ),
    _context(
        "authorization",
        r"authorization[\\\"']{0,2}\s{0,3}[:=,]\s{0,3}[\\\"'`]{0,2}(?:bearer|basic|token|apikey|digest)[ :]{1,3}"
        r"(?P<secret>[a-z0-9._~+/=-]{8,}+)",
        credential,
    ),
    _context("bearer", r"bearer\s{1,3}(?P<secret>[a-z0-9._~+/=-]{16,}+)", has_digits),
    _context("basic-auth", r"://[^\s:/?#\[\]@\"'<>]{0,200}+:(?P<secret>[^\s/?#\[\]@\"'<>]{3,200}+)@", value),
    _context(
        "basic-auth",
        r"curl\b[^\n]{0,300}?\s(?:-u|--user)[ =]?[\"']?[^\s:\"']{1,100}+:(?P<secret>[^\s\"']{3,200}+)",
        value,
    ),
    _context("basic-auth", r"login\s{1,4}\S{1,100}+\s{1,4}password\s{1,4}(?P<secret>\S{4,200}+)", value),
    _context("npm-token", r"_authtoken\s{0,3}=\s{0,3}(?P<secret>[a-z0-9_=/+.-]{16,}+)"),
    _context(
        "url-parameter",
        r"[?&](?:[a-z_-]{0,30}(?:token|secret|password|key|signature)|sig|code)=(?P<secret>[^\s&#\"'<>`)\]]{12,}+)",
        mixed,
    ),
    _context(
        "assigned-secret",
        r"pass(?:word|phrase|wd)\s{1,3}(?:is|was)\s{1,3}[\"'`]?(?P<secret>[^\s\"'`,;]{6,200}+)",
        mixed,
    ),
    _context("crystal-recovery", r"crystal-recovery[ :=]{1,3}(?P<secret>[0-9a-f]{64})"),
)
"""Recognised by their context, in lower-case text."""


ASSIGNED_KIND = "assigned-secret"

Accepts = Callable[[str], bool]

_ASSIGNS = (
    r"[\\\"'\]]{0,3}"  # the end of a quoted name, or of an index
    r"(?::\s{0,2}(?:str|string|secretstr)(?=\s{0,2}=))?"  # a type
    r"(?P<sign>\s{0,4}(?:=>|:=|={1,3}|:)\s{0,4})"
)
_VALUE = (
    r"(?:\\?(?P<quote>[\"'`])(?P<quoted>[^\"'`\s\\]{6,400}+)\\?(?P=quote)"
    r"|(?P<bare>[^\s\"'`,;&|(){}\[\]<>]{6,400}+)(?![(\[{<]))"
)
_QUALIFIERS = (
    *("api", "access", "secret", "private", "auth", "account"),
    *("encryption", "signing", "master", "service", "license"),
)
_QUALIFIED = "|".join(f"(?<={word}{joint}key)" for word in _QUALIFIERS for joint in ("", "_", "-"))


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(name + f"(?:{_ASSIGNS}{_VALUE})", re.ASCII)


_PASSWORDS = (
    _pattern(r"pass(?:w(?:or)?d|phrase|(?<![a-z]pass))"),
    _pattern(r"pwd(?<![a-z]pwd)"),
)
_KEYS = (
    _pattern("secret"),
    _pattern("token"),
    _pattern("credentials?"),
    _pattern(f"key(?:{_QUALIFIED})"),
)
_OPTIONS = re.compile(
    r"--[a-z-]{0,20}(?:password|passwd|passphrase|secret|token|api-?key)[ =][\"']?(?P<bare>[^\s\"'`,;&|(){}\[\]<>]{6,400}+)",
    re.ASCII,
)


def assigned_secrets(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    """Spans of the values. ``lowered`` is the text in lower case, character for character."""
    for patterns, unquoted, shouted in ((_PASSWORDS, mixed, value), (_KEYS, machine_made, mixed)):
        for pattern in patterns:
            for match in pattern.finditer(lowered):
                yield from _accepted(text, match, unquoted, shouted)
    for match in _OPTIONS.finditer(lowered):
        start, end = match.span("bare")
        if mixed(text[start:end]):
            yield start, end


def _accepted(
    text: str, match: re.Match[str], unquoted: Accepts, shouted: Accepts
) -> Iterator[tuple[int, int]]:
    """The value's span, if it passes the check for how it is written: in quotes, after ``NAME=``, or neither."""
    if match["quoted"] is not None:
        start, end = match.span("quoted")
        accepts: Accepts = quoted
    else:
        start, end = match.span("bare")
        accepts = shouted if match["sign"] == "=" and text[match.start()].isupper() else unquoted
    if accepts(text[start:end]):
        yield start, end
