"""Files that are secrets: by their names, and by the form of what they hold. One list for sources and the drop folder.

A name decides before a file is opened. A form is recognised in the first ``FORM_BYTES`` of a file, and only where the file *is*
the secret: a page that shows a key between its paragraphs is a page, and the rules of redaction cut the key out.
"""

import re
from collections.abc import Iterator

from crystal_crypto.errors import BadCode
from crystal_crypto.kit import decode_kit, decode_line
from crystal_crypto.limits import KIT_LINES, KIT_TEXT_CHARS_MAX
from crystal_node.base.obeyed_names import name_form

FORM_BYTES = 64 * 1024
FORM_RULES = 1
"""Counts up with every change of the forms, so that files which were read before it are looked at again."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FOLDERS = _words(
    """
    .ssh .gnupg .aws .azure .kube .docker .password-store .gcloud gcloud keyrings keychains .pki .mozilla
    .thunderbird google-chrome .crystal .ldm .bitcoin .ethereum .electrum .solana .monero .near-credentials .sops
    .step .minisign .1password ssh-keys ssh_keys private-keys private_keys
    """
)
_FOLDER_ENDINGS = (".opvault", ".agilekeychain", ".keychain", ".1pux", ".photokeys")
_OPEN_NAMES = frozenset({".env.example", ".env.sample", ".env.template", ".env.dist"})

_DOCUMENT = r"(?:\.(?:txt|text|md|markdown|csv|tsv|json|pdf|rtf|docx?|odt|html?|png|jpe?g|heic))?"
"""What a person or a web site saves such a list as: ``recovery_codes.py`` is a program."""
_MANAGERS = "bitwarden|lastpass|dashlane|1password|keepass(?:xc)?|proton[-_ ]?pass|nordpass|roboform|enpass|aegis|andotp|raivo"
_LOST = "recovery|backup|rescue|scratch|emergency|2fa|mfa|two[-_ ]factor"
_PASSWORDS = (
    "passwords?|passwort|passw(?:ö|oe)rter|passphrases?|logins|contrase(?:ñ|n)as?|mots?[-_ ]de[-_ ]passe"
)
_BEFORE = r"(?:.*[^a-z0-9])?"
_AFTER = r"(?:[^a-z0-9].*)?"
_NAMES = (
    # Settings and stores of programs
    r"\.env(?:[._~ -].*)?|.+\.env|\.envrc|[._]netrc(?:\.gpg)?|\.npmrc|\.pypirc|\.pgpass|pgpass\.conf|\.my(?:login)?\.cnf",
    r"\.?htpasswd|\.git-credentials|\.s3cfg|\.boto|\.dockercfg|\.vault[-_]token|\.vault_pass(?:word)?|\.authinfo(?:\.gpg)?",
    r"\.xauthority|\.rhosts|rclone\.conf|kubeconfig|.+\.kubeconfig|\.terraformrc|terraform\.rc|kaggle\.json|shadow-?|secring\..+",
    r".+\.tfstate(?:\.backup)?|.+\.tfvars(?:\.json)?|.+\.publishsettings|\.(?:bash|zsh|python|psql|mysql|node_repl|sqlite)_history",
    r"\.(?:irb|pry|rediscli|dbshell|mongo)_?history|\.dbshell|fish_history|\.histfile|\.lesshst|\.viminfo",
    r"(?:.+[._ -])?cookies\.(?:txt|json|sqlite)|login data|key[34]\.db|.+\.(?:bash|zsh)_history",
    # Keys that clouds hand out
    r"(?:.+[._ -])?credentials\.(?:json|csv)|credentials(?:\.ya?ml|\.toml|\.ini|\.db|\.tfrc\.json)?|client[-_]secrets?.*\.json",
    r"service[-_ ]?account.*\.json|(?:.*[-_])?firebase[-_]?adminsdk.*\.json|(?:gcp|gcloud|google)[-_].*key.*\.json",
    r"(?:.*[-_ ])?(?:access[-_ ]?keys?|root[-_ ]?key)\.csv|azureauth\.json|accesstokens\.json|msal_token_cache.*",
    r"oauth_creds\.json|authkey_.+\.p8|(?:.+[-_.])?keyfile\.json",
    r"\.?secrets?|secrets?\.(?:json|ya?ml|toml|ini|env|txt|properties)|(?:.+[._-])secrets?\.(?:json|ya?ml|toml|env)",
    # Keys and certificates
    r"id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?(?:\.pub|\.bak|\.old)?|.+_rsa|.+_ed25519|ssh_host_.+_key|hs_ed25519_secret_key",
    r"authorized_keys|known_hosts|(?:.+[._-])?private[._-]?key(?:\.(?:txt|xml|json|asc))?",
    r".+\.(?:pem|key|p12|pfx|p8|pk8|pkcs12|jks|jceks|bks|keystore|truststore|agekey|asc|gpg|pgp|ovpn|ppk|mobileprovision|cer)",
    r".+\.(?:crt|der|csr|sec|keytab)",
    # Password managers and second factors
    r".+\.(?:kdbx?|psafe3|1pux|1pif|opvault|enpassdb|walletx?|dash|keychain|keychain-db|otpauth|2fas|aegis|bitwarden)",
    rf"(?:{_MANAGERS})[-_ ].*(?:export|backup|vault|logins?|passwords?|otp|accounts?).*",
    rf"{_BEFORE}(?:{_PASSWORDS})(?:\.(?:txt|csv|tsv|json|xlsx?|ods|numbers|docx?|odt|rtf|pdf))?",
    rf"(?:(?:my|all|old|meine|alle|mis|mes)[-_ ])?(?:{_PASSWORDS})\.(?:md|markdown|html?|org|rst)",
    # What brings an account back
    rf"{_BEFORE}(?:{_LOST})[-_ ]?(?:2fa|mfa)?[-_ ]?(?:codes{_AFTER}|code{_DOCUMENT})",
    rf"{_BEFORE}(?:recovery|emergency)[-_ ]?(?:kit|key|sheet|phrase|words){_AFTER}{_DOCUMENT}",
    rf"{_BEFORE}bitlocker.*key.*{_DOCUMENT}",
    rf"{_BEFORE}(?:wiederherstellungs|sicherungs|backup)[-_ ]?(?:codes?|schl(?:ü|ue)ssel){_AFTER}{_DOCUMENT}",
    rf"{_BEFORE}c(?:ó|o)digos?[-_ ]de[-_ ](?:recuperaci(?:ó|o)n|respaldo){_AFTER}{_DOCUMENT}",
    # Wallets
    rf"{_BEFORE}(?:seed|mnemonic|secret)[-_ ]?(?:phrase|words?|recovery){_AFTER}{_DOCUMENT}|{_BEFORE}mnemonics?{_DOCUMENT}",
    r"wallet\.dat|default_wallet|.+\.wallet(?:\.bak)?|(?:.+[._ -])?wallet(?:[-_ ]backup)?\.(?:json|txt|aes\.json)",
    r"utc--.+--[0-9a-f]{40}.*",
)
_NAME = re.compile("|".join(f"(?:{names})" for names in _NAMES))
_SOURCE_CODE = re.compile(
    r".+\.(?:py|pyi|js|jsx|mjs|cjs|ts|tsx|go|rs|rb|java|kt|swift|c|h|cc|cpp|cs|php|sh|ex|exs|vue|svelte)"
)
"""Programs about codes and phrases. Redaction cuts out what they hold."""


def is_secret_folder(name: str) -> bool:
    """Whether a folder of that name holds keys and passwords, in whatever case the name is written."""
    form = name_form(name)
    return form in _FOLDERS or form.endswith(_FOLDER_ENDINGS)


def is_secret_name(name: str) -> bool:
    """Whether a file of that name is a secret."""
    form = name_form(name)
    return _NAME.fullmatch(form) is not None and form not in _OPEN_NAMES and not _SOURCE_CODE.fullmatch(form)


def secret_form(data: bytes) -> str | None:
    """What kind of secret a file is by what it holds, such as "a private key"; None if it is none. ``data``: the whole file or
    its beginning."""
    head = data[:FORM_BYTES]
    start = _text_of(head).lstrip()
    for kind, form in _FORMS:
        if form.match(start):
            return kind
    for kind, holds in (
        (_JSON, _is_secret_json),
        (_EXPORT, _is_export),
        (_KIT, _is_kit),
        (_CODES, _is_codes),
    ):
        if holds(start):
            return kind
    return None


def is_recovery_kit(data: bytes) -> bool:
    """Whether a file is a recovery kit of a vault, or its code. ``data``: all of it."""
    return _is_kit(_text_of(data))


def _text_of(data: bytes) -> str:
    wide = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    return data.decode("utf-16" if wide else "utf-8-sig", "replace")


_EXPORT, _CODES, _KIT = "an export of passwords", "a list of recovery codes", "a recovery kit of Crystal"
_JSON = "a key that a service hands out"
_COMMENTS = r"(?>(?:#|;|//|Bag Attributes|Key Attributes|[ \t]++\w[\w ]*+:|Comment:)[^\n]*+\n|[ \t\r]*+\n)*+"
_WORD = r"\W*+{number}[.):]?[ \t]++[a-z]{{3,8}}+(?:\s++|\Z)"
_FORMS = (
    ("a private key", re.compile(rf"{_COMMENTS}-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----")),
    ("a private key", re.compile(r"PuTTY-User-Key-File-\d|---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----")),
    ("a private key", re.compile(rf"{_COMMENTS}AGE-SECRET-KEY-1[0-9A-Z]{{40}}|untrusted comment: [^\n]*secret key")),
    ("a private key", re.compile(r"\[Interface\][^\[]{0,2000}?PrivateKey[ \t]*=[ \t]*[A-Za-z0-9+/]{42,43}=")),
    ("second factors", re.compile(rf"{_COMMENTS}otpauth(?:-migration)?://")),
    ("passwords of machines", re.compile(rf"{_COMMENTS}(?:machine|default)[ \t]+\S+\s+login[ \t]+\S+\s+password[ \t]+\S")),
    ("an export of passwords", re.compile(r"(?:<\?xml[^>]{0,200}>\s*)?<KeePassFile>")),
    ("a wallet", re.compile(rf"{_WORD.format(number='1')}(?:{_WORD.format(number='(?:[2-9]|1[0-9]|2[0-4])')}){{11,23}}+\Z")),
)  # fmt: skip

_SECRET_VALUES = re.compile(
    r'"(private_key|client_secret|refresh_token|access_token|accessToken|secretAccessKey|SecretAccessKey|clientSecret|private_key_id'
    r'|ciphertext|encryptedPassword|login|otp|totp|password|mnemonic|d)"\s*:\s*("[^"]{8,}|\{|\[)'
)
_KINDS = re.compile(
    r'"(client_email|client_id|clientId|token_uri|auth_uri|redirect_uris|project_id|tenant|tenantId|expiresAt|expires_at|expires_in'
    r"|kdf|kdfparams|folders|items|encrypted|logins|kty|AccessKeyId|accessKeyId|appId|account_id|id_token|OPENAI_API_KEY"
    r'|derivationPath|services|entries)"\s*:'
)
_TOGETHER = (
    ({"private_key"}, {"client_email", "token_uri", "project_id", "private_key_id"}),
    ({"client_secret"}, {"auth_uri", "token_uri", "redirect_uris", "tenant"}),
    (
        {"refresh_token"},
        {"client_id", "clientId", "expires_in", "expires_at", "id_token", "account_id", "token_uri"},
    ),
    ({"access_token"}, {"expires_at", "expires_in", "id_token", "OPENAI_API_KEY"}),
    ({"accessToken"}, {"expiresAt", "AccessKeyId"}),
    ({"clientSecret"}, {"tenantId", "clientId"}),
    ({"secretAccessKey"}, {"accessKeyId"}),
    ({"SecretAccessKey"}, {"AccessKeyId"}),
    ({"ciphertext"}, {"kdf"}),
    ({"encryptedPassword"}, {"logins"}),
    ({"login"}, {"encrypted"}),
    ({"password"}, {"tenant"}),
    ({"d"}, {"kty"}),
    ({"mnemonic"}, {"derivationPath"}),
)
"""Names with a value in a JSON file of which one on the left and one on the right make it a key that a service handed out."""
_KEY_PAIR = re.compile(r"\[\s*(?:\d{1,3}\s*,\s*){63}\d{1,3}\s*\]\s*\Z")


def _is_secret_json(text: str) -> bool:
    if text[:1] == "[" and _KEY_PAIR.match(text):
        return True
    if text[:1] not in ("{", "["):
        return False
    values = {match[1] for match in _SECRET_VALUES.finditer(text)}
    names = {match[1] for match in _KINDS.finditer(text)} | values
    return any(values & left and names & right for left, right in _TOGETHER)


_PASSWORD_COLUMNS = _words(
    """
    password login_password passwort kennwort contraseña secret_access_key otpauth totp otp pass passwd httppassword
    """
)
_OTHER_COLUMNS = _words(
    """
    url username login_uri login_username name title website account login_name web_site user user_name site email
    login access_key_id console_login_link httprealm benutzername benutzer usuario tags folder
    """
)  # fmt: skip
_HEADER_CHARS_MAX = 2000


def _is_export(text: str) -> bool:
    """A table whose first line names a password and to what it belongs, with at least one line below."""
    first, _, rest = text.partition("\n")
    if len(first) > _HEADER_CHARS_MAX or not rest.strip():
        return False
    columns = {
        cell.strip().strip('"').strip().casefold().replace(" ", "_") for cell in re.split("[,;\t]", first)
    }
    return bool(columns & _PASSWORD_COLUMNS and columns & _OTHER_COLUMNS)


_CODE = re.compile(
    r"\W{0,8}(?:[0-9]{1,2}[.):]\s+)?\W{0,4}"
    r"(?:[0-9a-z]{4,6}(?:-[0-9a-z]{4,6}){1,4}|[0-9]{3,4}(?: [0-9]{3,4}){1,2}|(?P<plain>[0-9a-z]{6,16}))\W{0,4}",
    re.IGNORECASE,
)
_CODES_WORDS = re.compile(
    r"(?:recovery|backup|rescue|scratch|emergency|one[- ]time|wiederherstellungs|sicherungs)[- ]?(?:codes?|schl)|"
    r"c[óo]digos? de (?:recuperaci|respaldo|seguridad)",
    re.IGNORECASE,
)
_CODES_PERHAPS = re.compile("[Cc][Oo]|[óÓ][Dd]|[Ss][Cc][Hh][Ll]")
_CODES_BETWEEN = re.compile(r"\t| {2,}|[,;|]")
_CODES_MIN, _CODES_SHARE, _CODES_CHARS_MAX, _CODES_LINE_CHARS_MAX = 6, 0.8, 4000, 200


def _is_codes(text: str) -> bool:
    """A short file of almost nothing but codes. Where no heading says so, each has to be in groups, with digits."""
    if len(text) > _CODES_CHARS_MAX:
        return False
    named = _CODES_PERHAPS.search(text) is not None and _CODES_WORDS.search(text) is not None
    cells = codes = 0
    for line in text.splitlines():
        if len(line) > _CODES_LINE_CHARS_MAX:
            return False
        if named and _CODES_WORDS.search(line):
            continue
        for cell in filter(None, map(str.strip, _CODES_BETWEEN.split(line))):
            cells += 1
            codes += _is_code(cell, named=named)
            if not named and cells > _CODES_MIN and codes < _CODES_SHARE * cells / 2:
                return False
    return codes >= _CODES_MIN and (named or codes >= _CODES_SHARE * cells)


def _is_code(cell: str, *, named: bool) -> bool:
    found = _CODE.fullmatch(cell)
    if found is None or not any(char.isdigit() for char in cell):
        return False
    return named or not found["plain"]


_KIT_LINE = re.compile(
    r"(?<![0-9A-Za-z])(?=((?:[0-9A-Za-z]{4}[^0-9A-Za-z\n]{1,4}){3}[0-9A-Za-z]{4}|[0-9A-Za-z]{16})(?![0-9A-Za-z]))"
)
"""At each place where one could begin, so that a word before it hides none."""
_KIT_PERHAPS = re.compile(
    r"[0-9][0-9A-Za-z]{0,3}[^0-9A-Za-z\n]{1,4}[0-9A-Za-z]{4}[^0-9A-Za-z\n]{1,4}[0-9A-Za-z]{4}(?![0-9A-Za-z])|[0-9][0-9A-Za-z]{9,15}"
)
"""Nineteen lines of a kit in twenty have this, and almost no page has it three times. It is looked for from digit to digit."""
_KIT_LINES_MIN = 3
_KIT_TRIES_MAX = 2000
_DIGIT = re.compile("[0-9]")
"""One line of a kit in four hundred has none; no word of a page has one."""
_KIT_CODE = re.compile(r"mc[13]:\S{20,200}", re.IGNORECASE)


def _is_kit(text: str) -> bool:
    """A kit's lines, by their checks, wherever they stand; or its code."""
    for match in _KIT_CODE.finditer(text):
        try:
            decode_kit(match[0])
        except BadCode:
            continue
        return True
    if len(_KIT_PERHAPS.findall(text, 0, KIT_TEXT_CHARS_MAX)) < _KIT_LINES_MIN:
        return False
    found = (
        re.sub("[^0-9A-Za-z]", "", match[1]) for match in _KIT_LINE.finditer(text, 0, KIT_TEXT_CHARS_MAX)
    )
    likely = list(dict.fromkeys(each for each in found if _DIGIT.search(each)))
    numbers = {number for each in likely[:_KIT_TRIES_MAX] for number in _kit_numbers(each)}
    return len(numbers) >= _KIT_LINES_MIN


def _kit_numbers(text: str) -> Iterator[int]:
    for number in range(1, KIT_LINES + 1):
        try:
            decode_line(number, text)
        except BadCode:
            continue
        yield number
