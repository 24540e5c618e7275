"""Tokens that say what they are: by their maker's prefix (``ghp_``, ``sk-ant-``) or by their structure.

Prefixes and lengths are those that the makers document, completed from the rules of gitleaks 8.30 (MIT licence, Copyright
2019 Zachary Rice). Where a maker gives a length, ours often asks for less, so that a longer version of the same token is found,
too.

Every pattern takes linear time on every text: repetition is possessive, and bounded where something else must follow. Alphabets
are ASCII. There is no rule by entropy alone: a memory of work is full of commit ids, hashes and UUIDs.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from crystal_node.capture.secret_values import has_digits, in_base64


@dataclass(frozen=True)
class TokenRule:
    """One maker's tokens. ``words``: every match begins with one of these; or, for rules of ``SHAPES``, contains one. The
    pattern's group ``secret`` is what is taken out, or else all of the match; ``accepts`` has the last word on it."""

    kind: str
    words: tuple[str, ...]
    expression: str
    accepts: Callable[[str], bool]

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Compiled when a text has one of the words: all rules together would take each command 40 ms."""
        return re.compile(self.expression, re.ASCII)

    def span(self, match: re.Match[str]) -> tuple[int, int]:
        """The span of the secret in the match."""
        return match.span("secret") if "secret" in self.pattern.groupindex else match.span()


def _any(_secret: str) -> bool:
    return True


def _token(kind: str, prefixes: str, body: str, accepts: Callable[[str], bool] = _any) -> TokenRule:
    """A token that begins with one of these prefixes, after no letter or digit."""
    words = tuple(prefixes.split())
    choice = "|".join(re.escape(prefix) for prefix in words)
    return TokenRule(kind, words, rf"(?<![A-Za-z0-9])(?:{choice}){body}", accepts)


def _shape(kind: str, words: str, pattern: str, accepts: Callable[[str], bool] = _any) -> TokenRule:
    return TokenRule(kind, tuple(words.split()), pattern, accepts)


_WORD = "[A-Za-z0-9_-]"
_LOWER = "[a-z0-9]"
_END = r"(?![A-Za-z0-9])"
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"

PREFIXED: tuple[TokenRule, ...] = (
    _token("jwt", "eyJ", rf"{_WORD}{{8,1000}}+\.{_WORD}{{4,}}+(?:\.{_WORD}*+){{0,3}}+"),
    _token("adafruit-key", "aio_", "[A-Za-z0-9]{28}"),
    _token("adobe-secret", "p8e-", "[A-Za-z0-9]{32}"),
    _token("age-key", "AGE-SECRET-KEY-1", "[0-9A-Z]{50,}+"),
    _token("airtable-token", "pat", r"[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    _token("alibaba-key", "LTAI", "[A-Za-z0-9]{20,}+", has_digits),
    _token("anthropic-key", "sk-ant-", f"{_WORD}{{16,}}+"),
    _token("artifactory-key", "AKCp cmVmd", "[A-Za-z0-9]{58,}+"),
    _token("asana-token", "0/ 1/ 2/", "[0-9]{15,17}(?:/[0-9]{15,17})?:[0-9a-f]{32}"),
    _token("atlassian-token", "ATATT3 ATCTT3", "[A-Za-z0-9_=-]{40,}+"),
    _token("aws-key", "AKIA ASIA ABIA ACCA A3T", "[0-9A-Z]{16,}+"),
    _token("aws-key", "ABSK", "[A-Za-z0-9+/]{100,}+={0,2}"),
    _token("azure-key", "AccountKey= SharedAccessKey=", "(?P<secret>[A-Za-z0-9+/=]{40,}+)"),
    _token("backblaze-key", "K00", "[0-9][A-Za-z0-9+/]{27}(?![A-Za-z0-9+/])", in_base64),
    _token("bitbucket-token", "ATBB", "[A-Za-z0-9]{24,}+", has_digits),
    _token("bitcoin-key", "xprv9 yprv zprv tprv", "[1-9A-HJ-NP-Za-km-z]{90,}+"),
    _token("brevo-key", "xkeysib- xsmtpsib-", f"[0-9a-f]{{40,}}+-{_WORD}{{8,}}+"),
    _token("buildkite-token", "bkua_ bkct_ bkaj_", "[0-9a-zA-Z]{32,}+"),
    _token("circleci-token", "CCIPAT_ CCIPRJ_", "[A-Za-z0-9]{16,}+_[0-9a-f]{40}"),
    _token("clickup-token", "pk_", "[0-9]{5,10}_[A-Z0-9]{32}"),
    _token("clojars-token", "CLOJARS_", "[a-z0-9]{60}"),
    _token("cerebras-key", "csk-", f"{_LOWER}{{40,}}+"),
    _token("cloudflare-key", "v1.0-", "[0-9a-f]{24}-[0-9a-f]{100,}+"),
    _token("contentful-token", "CFPAT-", f"{_WORD}{{40,}}+"),
    _token("crates-token", "cio", f"[A-Za-z0-9]{{32}}{_END}", has_digits),
    _token("databricks-token", "dapi", "[0-9a-f]{32,}+(?:-[0-9])?"),
    _token("defined-networking-key", "dnkey-", f"{_WORD}{{40,}}+"),
    _token("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", "[0-9a-f]{40,}+"),
    _token("discord-webhook", "discord.com/api/webhooks/", f"(?P<secret>[0-9]{{5,}}+/{_WORD}{{30,}}+)"),
    _token("docker-token", "dckr_pat_ dckr_oat_", f"{_WORD}{{20,}}+"),
    _token("doppler-token", "dp.", r"(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,}+"),
    _token("dropbox-token", "sl.", r"(?:u\.)?[A-Za-z0-9_-]{100,}+"),
    _token("duffel-token", "duffel_live_ duffel_test_", f"{_WORD}{{40,}}+"),
    _token("dynatrace-token", "dt0c01. dt0s01. dt0s16.", r"[A-Z0-9]{24}\.[A-Z0-9]{64}"),
    _token("e2b-key", "e2b_", "[0-9a-f]{40}"),
    _token("easypost-key", "EZAK EZTK", "[A-Za-z0-9]{54}"),
    _token("facebook-token", "EAAC EAAM EAAB EAAG EAAD IGQVJ", "[A-Za-z0-9]{90,}+"),
    _token("figma-token", "figd_ figu_ figo_", f"{_WORD}{{30,}}+"),
    _token("firecrawl-key", "fc-", f"[0-9a-f]{{32}}{_END}"),
    _token("flutterwave-key", "FLWSECK_TEST- FLWSECK- FLWSECK_LIVE-", "[0-9a-zA-Z]{12,}+(?:-X)?"),
    _token("fly-token", "fm1_ fm1a_ fm1r_ fm2_ fo1_", "[A-Za-z0-9_+/=-]{30,}+"),
    _token("frameio-token", "fio-u-", f"{_WORD}{{50,}}+"),
    _token("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", "[A-Za-z0-9_]{36,}+"),
    _token("github-token", "github_pat_", "[A-Za-z0-9_]{22,}+"),
    _token(
        "gitlab-token",
        "glpat- gldt- glft- glsoat- glrt- glrtr- glcbt- glptt- glagent- glimt- gloas- glffct- glwt- GR1348941",
        rf"{_WORD}{{20,}}+(?:\.{_WORD}{{2,}}+){{0,3}}+",
    ),
    _token("google-key", "AIza", f"{_WORD}{{35,}}+"),
    _token("google-token", "ya29. GOCSPX-", f"{_WORD}{{20,}}+"),
    _token("google-token", "1//0", f"{_WORD}{{40,}}+", has_digits),
    _token("grafana-token", "glsa_ glc_", "[A-Za-z0-9_+/=]{32,}+"),
    _token("groq-key", "gsk_", "[A-Za-z0-9]{40,}+"),
    _token("harness-token", "pat. sat.", rf"{_WORD}{{22}}\.[0-9a-f]{{24}}\.[A-Za-z0-9]{{20}}"),
    _token("heroku-key", "HRKU-", f"{_WORD}{{36,}}+"),
    _token("honeycomb-key", "hcaik_ hcaic_ hcamk_", f"{_LOWER}{{32,}}+"),
    _token("hubspot-token", "pat-na1- pat-na2- pat-na3- pat-eu1- pat-ap1-", _UUID),
    _token("hugging-face-token", "hf_ api_org_", "[A-Za-z0-9]{30,}+"),
    _token("infracost-key", "ico-", "[A-Za-z0-9]{32}"),
    _token(
        "jetbrains-token",
        "perm: perm-",
        r"[A-Za-z0-9+/=_-]{8,100}+\.[A-Za-z0-9+/=_-]{4,100}+\.[A-Za-z0-9+/=_-]{16,}+",
    ),
    _token("langfuse-key", "sk-lf-", _UUID),
    _token("langsmith-key", "lsv2_pt_ lsv2_sk_", "[0-9a-f_]{32,}+"),
    _token("launchdarkly-key", "sdk- api- mob-", _UUID),
    _token("linear-key", "lin_api_ lin_oauth_ lin_wh_", "[A-Za-z0-9]{32,}+"),
    _token("lob-key", "live_ test_", f"[0-9a-f]{{35}}{_END}"),
    _token("mailgun-key", "key- pubkey-", f"[0-9a-f]{{32}}{_END}"),
    _token("mapbox-token", "sk.eyJ", rf"{_WORD}{{16,1000}}+\.{_WORD}{{20,}}+"),
    _token("neon-key", "napi_", f"{_LOWER}{{50,}}+"),
    _token("netlify-token", "nfp_ nfc_ nfo_ nfu_ nfb_", "[A-Za-z0-9]{36,}+"),
    _token("newrelic-key", "NRAK- NRJS- NRII- NRRA-", f"{_WORD}{{19,}}+"),
    _token("nostr-key", "nsec1", "[02-9ac-hj-np-z]{58}"),
    _token("notion-token", "ntn_ secret_", "[A-Za-z0-9]{43,}+", has_digits),
    _token("npm-token", "npm_", "[A-Za-z0-9]{36,}+"),
    _token("nuget-key", "oy2", f"{_LOWER}{{43}}{_END}", has_digits),
    _token("nvidia-key", "nvapi-", f"{_WORD}{{50,}}+"),
    _token("octopus-key", "API-", f"[A-Z0-9]{{25,36}}+{_END}", has_digits),
    _token("onepassword-key", "A3-", "[A-Z0-9]{6}-[A-Z0-9]{6}(?:-[A-Z0-9]{5}){3,4}"),
    _token("onepassword-token", "ops_eyJ", f"{_WORD}{{100,}}+"),
    _token("openai-key", "sk-proj- sk-svcacct- sk-admin-", f"{_WORD}{{20,}}+"),
    _token("openshift-token", "sha256~", f"{_WORD}{{43}}"),
    _token("paypal-token", "access_token$", r"(?:production|sandbox)\$[0-9a-z]{8,}+\$[0-9a-f]{32}"),
    _token("perplexity-key", "pplx-", "[A-Za-z0-9]{40,}+"),
    _token("pinecone-key", "pcsk_", f"{_WORD}{{40,}}+"),
    _token("plaid-token", "access-sandbox- access-development- access-production-", _UUID),
    _token("planetscale-token", "pscale_tkn_ pscale_pw_ pscale_oauth_", r"[A-Za-z0-9_=.-]{32,}+"),
    _token("posthog-key", "phx_ phs_", "[A-Za-z0-9]{32,}+"),
    _token("postman-key", "PMAK-", "[0-9a-f-]{50,}+"),
    _token("prefect-key", "pnu_ pnb_", "[A-Za-z0-9]{36}"),
    _token("pulumi-token", "pul-", "[0-9a-f]{40,}+"),
    _token("pypi-token", "pypi-", f"{_WORD}{{50,}}+"),
    _token("rancher-token", "token-", f"{_LOWER}{{5}}:{_LOWER}{{50,}}+"),
    _token("readme-key", "rdme_", f"{_LOWER}{{60,}}+"),
    _token("render-key", "rnd_", "[A-Za-z0-9]{28,}+", has_digits),
    _token("replicate-token", "r8_", "[A-Za-z0-9]{37,}+"),
    _token("resend-key", "re_", f"[A-Za-z0-9]{{8}}_[A-Za-z0-9]{{24}}{_END}", has_digits),
    _token("rubygems-key", "rubygems_", "[0-9a-f]{48,}+"),
    _token("scalingo-token", "tk-us-", f"{_WORD}{{48}}"),
    _token("sendgrid-key", "SG.", rf"{_WORD}{{16,100}}+\.{_WORD}{{16,}}+"),
    _token("sentry-token", "sntrys_ sntryu_", "[A-Za-z0-9_+/=-]{40,}+"),
    _token("settlemint-token", "sm_pat_ sm_aat_ sm_sat_", "[A-Za-z0-9]{16,}+"),
    _token("shippo-token", "shippo_live_ shippo_test_", "[0-9a-fA-F]{40}"),
    _token("shopify-token", "shpat_ shpca_ shppa_ shpss_", "[0-9A-Fa-f]{32,}+"),
    _token(
        "slack-token",
        "xoxa- xoxb- xoxc- xoxd- xoxe- xoxo- xoxp- xoxr- xoxs- xapp-",
        f"{_WORD}{{10,}}+",
        has_digits,
    ),
    _token("slack-token", "xoxe.", f"xox[bp]-{_WORD}{{40,}}+"),
    _token(
        "slack-webhook",
        "hooks.slack.com/",
        "(?:services|workflows|triggers)/(?P<secret>[A-Za-z0-9_/-]{16,}+)",
    ),
    _token("sonar-token", "sqp_ squ_ sqa_", "[0-9a-f]{40}"),
    _token("sourcegraph-token", "sgp_", "(?:(?:[0-9a-fA-F]{16}|local)_)?[0-9a-fA-F]{40}"),
    _token("square-secret", "sq0csp- sq0atp-", r"[A-Za-z0-9_\\-]{22,}+"),
    _token("square-secret", "EAAA", f"{_WORD}{{55,}}+", in_base64),
    _token(
        "stripe-key", "sk_live_ rk_live_ sk_test_ rk_test_ sk_prod_ rk_prod_ whsec_", "[A-Za-z0-9+/=]{16,}+"
    ),
    _token("supabase-key", "sbp_ sb_secret_", f"{_WORD}{{20,}}+"),
    _token("tailscale-key", "tskey-", "[A-Za-z0-9-]{16,}+", has_digits),
    _token("tavily-key", "tvly-", f"{_WORD}{{24,}}+", has_digits),
    _token("teams-webhook", "IncomingWebhook/", f"(?P<secret>[0-9a-f]{{32}}(?:/{_UUID})?)"),
    _token("twilio-key", "SK", f"[0-9a-z]{{32}}{_END}", has_digits),
    _token("twitch-token", "oauth:", f"[a-z0-9]{{30}}{_END}", has_digits),
    _token("twitter-token", "AAAAAAAAAAAAAAAAAAAA", "[A-Za-z0-9%]{60,}+"),
    _token("typeform-token", "tfp_", r"[A-Za-z0-9_.=-]{50,}+"),
    _token("vault-token", "hvs. hvb. hvr.", f"{_WORD}{{24,}}+"),
    _token("vault-token", "s.", f"[A-Za-z0-9]{{24}}{_END}", in_base64),
    _token("xai-key", "xai-", "[A-Za-z0-9]{60,}+"),
    _token("yandex-key", "AQVN", f"{_WORD}{{35,}}+"),
    # OpenAI's old form, and that of many who speak its protocol (DeepSeek, OpenRouter, Langfuse, …).
    _token("secret-key", "sk- sk_", f"{_WORD}{{32,}}+", has_digits),
    _token("crystal-code", "mc1: MC1: mc3: MC3:", r"[A-Za-z0-9+/_-]{42,}+={0,2}"),
    _token("crystal-token", "crystal_", f"(?:page|enrol)_{_WORD}{{43}}"),
)
"""Known by how they begin. If two match, the first names the kind."""

SHAPES: tuple[TokenRule, ...] = (
    _shape("seed", "S", rf"(?<![A-Za-z0-9])S[A-Z2-7]{{55,57}}{_END}", has_digits),
    _shape("bitcoin-key", "5 K L", rf"(?<![A-Za-z0-9])[5KL][1-9A-HJ-NP-Za-km-z]{{50,51}}{_END}", in_base64),
    _shape(
        "discord-token",
        ".",
        rf"(?<!{_WORD})[MNO]{_WORD}{{23,25}}\.{_WORD}{{6}}\.{_WORD}{{27,}}+",
        has_digits,
    ),
    _shape(
        "azure-secret",
        "Q~",
        r"(?<![A-Za-z0-9_~.-])[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}(?![A-Za-z0-9_~-])",
    ),
    _shape("facebook-token", "|", rf"(?<![A-Za-z0-9])[0-9]{{15,16}}\|{_WORD}{{27,40}}+", in_base64),
    _shape("mailchimp-key", "-us", r"(?<![A-Za-z0-9])[0-9a-z]{32}-us[0-9]{1,2}", has_digits),
    _shape("maxmind-key", "_mmk", r"(?<![A-Za-z0-9])[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk"),
    _shape("telegram-token", ":", rf"(?<![0-9A-Za-z])[0-9]{{8,10}}:{_WORD}{{35,}}+"),
    _shape("terraform-token", ".atlasv1.", rf"(?<!{_WORD})[A-Za-z0-9]{{14}}\.atlasv1\.{_WORD}{{60,}}+"),
    _shape("trello-token", "ATTA", r"(?<![A-Za-z0-9])ATTA[0-9a-f]{64}[0-9A-F]{8}"),
    _shape(
        "crystal-token",
        ".",
        rf"\.(?<=[0-9a-f]{{32}}\.)(?P<secret>{_WORD}{{43}})(?!{_WORD})",
    ),
)
"""Known by their structure: looked for in long words only."""

_START_CHARS = 2


def _by_start() -> dict[str, tuple[TokenRule, ...]]:
    found: dict[str, tuple[TokenRule, ...]] = {}
    for rule in PREFIXED:
        for start in dict.fromkeys(word[:_START_CHARS] for word in rule.words):
            found[start] = (*found.get(start, ()), rule)
    return found


RULES_BY_START = _by_start()
"""The rules whose tokens may begin with these two characters."""
STARTS = re.compile(r"(?<![A-Za-z0-9])(?=([A-Za-z0-9][A-Za-z0-9./_+-]))", re.ASCII)
TOKEN_CHARS_MIN = 15
"""Every token is, or ends, an unbroken word of at least so many characters. Most texts have few such words, and rules for
tokens are tried on those only."""
