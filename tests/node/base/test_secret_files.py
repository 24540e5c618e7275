"""Which files are secrets, by name and by form. What looks like a secret here is made for these tests, in pieces."""

import base64
import json
import re
import time
import unicodedata

import pytest

from crystal_crypto.hierarchy import Root
from crystal_crypto.kit import encode_kit
from crystal_crypto.pairing import encode
from crystal_node.base.secret_files import FORM_BYTES, is_secret_folder, is_secret_name, secret_form
from tests.mirror.support import new_root


def words(text: str) -> list[str]:
    return text.split()


NAMES = words(
    """
    .env .env.production prod.env .envrc .netrc _netrc .npmrc .pypirc .pgpass pgpass.conf .my.cnf .mylogin.cnf
    .htpasswd htpasswd .git-credentials .s3cfg .boto .dockercfg .vault-token rclone.conf kubeconfig prod.kubeconfig
    kaggle.json terraform.tfstate prod.tfvars .bash_history .psql_history .irb_history fish_history cookies.txt
    key4.db logins.json credentials credentials.json credentials.csv application_default_credentials.json
    new_user_credentials.csv client_secret.json client_secret_1234-abc.apps.googleusercontent.com.json
    client-secrets.json service_account.json service-account-prod.json myapp-firebase-adminsdk-x1y2z-0123456789.json
    gcp-key.json rootkey.csv me_accessKeys.csv azureauth.json AuthKey_2X9R4HXF34.p8 secrets.yaml secret.json
    app-secrets.yaml .secrets id_rsa id_ed25519 id_ed25519_sk id_rsa.bak deploy_rsa ssh_host_rsa_key authorized_keys
    known_hosts private-key.txt server.key cert.pem store.p12 store.pfx store.jks release.keystore keys.kdbx old.kdb
    putty.ppk vpn.ovpn backup.gpg secring.gpg krb5.keytab bitwarden_export_20260101120000.json lastpass_export.csv
    1password-export.1pux keepass-export.xml aegis-backup-2026.json passwords.csv passwords.txt Passwords.xlsx
    my-passwords.txt Passwörter.txt passwort.txt contraseñas.txt passwords.md my_passwords.md chrome-passwords.csv
    vault.enpassdb safe.psafe3 recovery-codes.txt github-recovery-codes.txt recovery_codes.md backup-codes.txt
    Backup-codes-somebody.txt 2fa-codes.txt recovery-code.txt wiederherstellungscodes.txt códigos-de-recuperación.txt
    emergency-kit.pdf recovery-kit.txt crystal-recovery-kit.txt recovery-key.txt bitlocker-recovery-key-1234.txt
    seed-phrase.txt seedphrase.txt mnemonic.txt wallet.dat wallet.json electrum.wallet default_wallet my-wallet.json
    utc--2026-01-02t03-04-05.6z--0123456789abcdef0123456789abcdef01234567
    """
)
OPEN_NAMES = words(
    """
    .env.example .env.sample readme.md notes.md about-credentials.md recovery.md recovery-codes.py backup_codes.ts
    password_reset.go change-password.html reset-password.md tokens.json auth.json design-tokens.json wallet.ts
    seeds.rb seed.sql passwords.php backup.md backup-plan.md code-of-conduct.md emergency-code-review.md keyboard.md
    keys.md keynote.md monkey.txt secretary.txt environment.md envoy.yaml recoverycodes.rs client.json service.json
    accounts.csv logins_test.go id_card.txt cookies.md passwordless.md kitchen.txt kit.txt phrases.txt
    """
)
FOLDERS = words(
    """
    .ssh .SSH .gnupg .aws .kube .password-store Keychains .ldm .bitcoin x.opvault .electrum
    """
)
OPEN_FOLDERS = words(
    """
    ssh aws docs bitwarden keys wallet .github ldm
    """
)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_a_secret_is_one_in_any_spelling(name: str) -> None:
    assert is_secret_name(name)
    assert is_secret_name(name.upper())
    assert is_secret_name(unicodedata.normalize("NFD", name))
    assert is_secret_name(name[:1] + "\u200b" + name[1:])


@pytest.mark.parametrize("name", OPEN_NAMES)
def test_other_names_are_read(name: str) -> None:
    assert not is_secret_name(name)


def test_folders() -> None:
    assert [name for name in FOLDERS if not is_secret_folder(name)] == []
    assert [name for name in OPEN_FOLDERS if is_secret_folder(name)] == []


def pem(kind: str) -> str:
    return (
        f"-----BEGIN {kind}-----\n"
        + "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7\n" * 4
        + f"-----END {kind}-----\n"
    )


def kit(root: Root | None = None) -> list[str]:
    root = root or new_root()
    return list(encode_kit(root, root.vault))


LONG = "x1Y2z3A4b5C6d7E8f9G0"
KEY = "PRIVATE " + "KEY"
TWELVE = "apple river stone cloud tiger lemon piano chair ocean maple robot zebra"
ATTRIBUTES = "Bag Attributes\n    friendlyName: me\n    localKeyID: 01 02\nKey Attributes: <No Attributes>\n"
BITWARDEN = (
    "folder,favorite,type,name,notes,fields,reprompt,login_uri,login_username,login_password,login_totp"
)
BACKUP = "SAVE YOUR BACKUP CODES\nKeep these backup codes somewhere safe.\n\n"
ACCOUNT = {"type": "service_account", "project_id": "p", "private_key": pem(KEY), "client_email": "a@b.c"}
FORMS = {
    "pkcs8": pem(KEY),
    "openssh": pem(f"OPENSSH {KEY}"),
    "rsa with attributes": ATTRIBUTES + pem(f"RSA {KEY}"),
    "pgp": pem(f"PGP {KEY} BLOCK"),
    "commented": f"# the key of the server\n\n{pem(f'EC {KEY}')}",
    "putty": "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\n",
    "age": "# created: 2026-01-01\n# public key: age1abc\nAGE-SECRET-" + "KEY-1" + "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L" * 2,
    "wireguard": f"[Interface]\nAddress = 10.0.0.2/24\nPrivateKey = {'aB3dE6gH9jK2mN5pQ8sT1vW4yZ7cF0iL' + 'aB3dE6gH9jK'}=\n",
    "otpauth": f"otpauth://totp/Shop:me?secret={'JBSWY3DPEHPK3PXP'}&issuer=Shop\n",
    "netrc": f"machine example.org\n  login me\n  password {LONG}\n",
    "service account": json.dumps(ACCOUNT),
    "client secret": json.dumps({"installed": {"client_id": "1.apps", "client_secret": LONG, "auth_uri": "https://a"}}),
    "oauth token": json.dumps({"token_uri": "https://a", "refresh_token": LONG, "client_id": "x"}),
    "tool login": json.dumps({"tokens": {"id_token": "x", "access_token": LONG, "refresh_token": LONG, "account_id": "y"}}),
    "aws sso": json.dumps({"accessToken": LONG, "expiresAt": "2026-01-01T00:00:00Z"}),
    "azure": json.dumps({"clientId": "x", "clientSecret": LONG, "tenantId": "y"}),
    "ethereum": json.dumps({"version": 3, "crypto": {"cipher": "aes", "ciphertext": LONG, "kdf": "scrypt"}}),
    "solana": json.dumps(list(range(64))),
    "jwk": json.dumps({"kty": "OKP", "crv": "Ed25519", "d": LONG, "x": LONG}),
    "bitwarden": json.dumps({"encrypted": False, "folders": [], "items": [{"login": {"username": "me"}}]}),
    "firefox": json.dumps({"logins": [{"encryptedPassword": LONG}]}),
    "chrome csv": "name,url,username,password,note\nShop,https://shop,me,hunter22,\n",
    "bitwarden csv": f"{BITWARDEN}\n,,login,a,,,0,b,c,d,\n",
    "1password csv": '"Title","Url","Username","Password","OTPAuth"\n"a","b","c","d",""\n',
    "keepass csv": '"Account","Login Name","Password","Web Site","Comments"\n"a","b","c","d","e"\n',
    "keepass xml": '<?xml version="1.0" encoding="utf-8"?>\n<KeePassFile>\n',
    "aws csv": f"Access key ID,Secret access key\nAKIAX,{LONG}\n",
    "semicolons": "Benutzername;Passwort\nich;geheim123\n",
    "github codes": "\n".join(f"{n:02x}f{n}a-{n:02x}b9{n % 10}" for n in range(10, 26)),
    "google codes": BACKUP + "".join(f"{n}. {1234 + n} {5678 + n}\n" for n in range(1, 11)),
    "codes in columns": "Recovery codes for me@example.org\n\n" + "\n".join(f"  a{n}b2c3d4    e5f{n}g7h8" for n in range(5)),
    "spanish codes": "Códigos de recuperación\n" + "\n".join(f"{n}8c2e5a1" for n in range(8)),
    "numbered words": "".join(f"{n}. {word}\n" for n, word in enumerate(words(TWELVE), 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_a_file_that_is_a_secret_is_one_whatever_it_is_called(name: str) -> None:
    text = FORMS[name]
    for data in (text.encode(), b"\xef\xbb\xbf" + text.encode(), text.replace("\n", "\r\n").encode()):
        assert secret_form(data)
    assert secret_form(text.encode("utf-16"))


def test_our_own_kit_is_one_in_every_form_in_which_it_is_given_out() -> None:
    root = new_root()
    lines = kit(root)
    texts = [
        "\n".join(lines),
        "\n".join(line.partition(" ")[2] for line in lines),
        "My notes\n\n" + "\n".join(f"> {line}" for line in lines) + "\nend",
        "\n".join(f'"{line.lower()}",' for line in lines),
        "\n".join(re.sub("[- ]", "", line.partition(" ")[2]) for line in lines),
        "kept here: " + "   ".join(lines),
        "scan this " + encode(root),
        "scan this mc1:" + base64.b64encode(root.to_bytes()).decode(),
    ]
    for text in texts:
        assert secret_form(text.encode()) == "a recovery kit of Crystal", text
    assert secret_form("\n".join(lines[:2]).encode()) is None, "redaction cuts single lines"
    wrong = [line[:-1] + ("2" if line[-1] != "2" else "3") for line in lines]
    assert secret_form("\n".join(wrong).encode()) != "a recovery kit of Crystal"


PAGES = {
    "page on keys": f"# Keys\n\nA key begins like this:\n\n{pem(KEY)}\n\nReplace it each year.",
    "certificate": pem("CERTIFICATE"),
    "public key": pem("PUBLIC KEY"),
    "openapi": json.dumps({"properties": {"client_secret": {"type": "string"}, "client_id": {"type": "string"}}}),
    "package": json.dumps({"name": "x", "version": "1", "scripts": {"login": "run"}}),
    "placeholder": json.dumps({"client_id": "", "client_secret": "", "auth_uri": ""}),
    "table": "name,url,visits\nShop,https://shop,3\n",
    "password column alone": "password,count\n123456,1000\n",
    "header alone": "name,url,username,password,note\n",
    "hashes": "\n".join(f"{n:07x}" for n in range(10**7, 10**7 + 20)),
    "changes": "\n".join(f"- a1b2c{n}: fixed the {n}th fault" for n in range(20)),
    "shopping": "milk\nbread\n12 eggs\nbutter\ncheese\ntea\nrice\n",
    "steps": "\n".join(f"{n}. do the {n}th thing" for n in range(1, 15)),
    "words": TWELVE,
    "on codes": "# Backup codes\n\nEach of your accounts has backup codes. Print them and keep them.\n",
    "versions": "\n".join(f"1.{n}.0" for n in range(20)),
    "phone numbers": "Anna 0170 1234567\nBen 0170 7654321\n",
    "prose of four letters": "this code does what they want when both have some more work done here " * 50,
    "numbers": json.dumps(list(range(100))),
    "wireguard page": "# WireGuard\n\nSet PrivateKey in [Interface].\n",
    "otp page": "Scan the picture; it holds an otpauth://totp/ address.\n",
    "empty": "",
    "binary": "\x00\x01\x02",
}  # fmt: skip


@pytest.mark.parametrize("name", PAGES)
def test_pages_and_data_are_read(name: str) -> None:
    assert secret_form(PAGES[name].encode()) is None


@pytest.mark.parametrize(
    "unit",
    ["# x\n", " a:\n", "1. word ", "\t \n", "a b:", '"a":', "aaaa ", "aaaa-", "1 ", "machine x ", '"', "[Interface]", "mc3:"],
)  # fmt: skip
def test_no_file_takes_long_to_judge(unit: str) -> None:
    data = (unit * FORM_BYTES)[:FORM_BYTES].encode()
    for tried in (data, data[:3999], b"1. word\n" + data[:3000], b"{" + data):
        begun = time.process_time()
        secret_form(tried)
        assert time.process_time() - begun < 2
    begun = time.process_time()
    is_secret_name((unit * 255)[:255])
    assert time.process_time() - begun < 0.2
