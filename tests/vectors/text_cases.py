"""The vectors about pairing texts and version 1 payloads."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Iterator

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.vectors.craft import Change, checked_root, fixed, flip, hkdf, unchanged
from tests.vectors.vectorfile import Vector

# A root whose base64 holds both characters in which the alphabets differ.
_ROOT = b"\xfb\xff\xbf" + fixed("root of a code", 29)
_CODE = base64.b64encode(checked_root(_ROOT)).decode()
_STANDARD = base64.b64encode(_ROOT).decode()
_URL_SAFE = base64.urlsafe_b64encode(_ROOT).decode()
KEY = fixed("version 1 key", 32)
_NONCE = fixed("version 1 nonce", 12)
_PLAIN = b'{"agent_id":"cc-mini","messages":[]}'


def cases() -> Iterator[Vector]:
    yield from _codes()
    yield from _v1()


def _codes() -> Iterator[Vector]:
    def good(name: str, what: str, text: str) -> Vector:
        return Vector("code", name, {"what": what, "expect": "success", "root": _ROOT.hex()}, text.encode())

    def bad(name: str, what: str, text: str) -> Vector:
        return Vector("code", name, {"what": what, "expect": "bad code"}, text.encode())

    url_safe = base64.urlsafe_b64encode(checked_root(_ROOT)).decode()
    yield good("good_standard", "standard base64", f"mc3:{_CODE}")
    yield good("good_url_safe", "URL-safe base64", f"mc3:{url_safe}")
    yield good("good_white_space", "white space around it", f"\n \tmc3:{_CODE}\r\n")
    yield bad("white_space_only", "white space only", " \n")
    yield bad("prefix_only", "the prefix only", "mc3:")
    yield bad("prefix_missing", "no prefix", _CODE)
    yield bad("prefix_upper_case", "the prefix in upper case", f"MC3:{_CODE}")
    yield bad("prefix_of_an_invite", "an invite", "MC2:" + base64.b32encode(_ROOT).decode())
    yield bad("prefix_mc4", "an unknown prefix", f"mc4:{_CODE}")
    yield bad("one_character_short", "one character short", f"mc3:{_CODE[:-1]}")
    yield bad("one_character_long", "one character long", f"mc3:{_CODE}A")
    yield bad(
        "33_bytes", "33 bytes of a root, and a check of them", "mc3:" + _base64(checked_root(_ROOT + b"\x00"))
    )
    yield bad("no_check", "the root without a check", f"mc3:{_STANDARD}")
    yield bad("wrong_check", "a check with a bit flipped", f"mc3:{_base64(flip(35)(checked_root(_ROOT)))}")
    yield bad("wrong_root", "a root with a bit flipped", f"mc3:{_base64(flip(0)(checked_root(_ROOT)))}")
    yield bad("white_space_inside", "a space inside", f"mc3:{_CODE[:20]} {_CODE[20:]}")
    yield bad("foreign_character", "a character outside of both alphabets", f"mc3:{_CODE[:20]}!{_CODE[21:]}")
    yield bad("foreign_letter", "a letter that only looks right", f"mc3:{_CODE[:20]}\u0410{_CODE[21:]}")
    yield bad("mixed_alphabets", "both alphabets in one code", f"mc3:{_mixed(_CODE)}")
    yield bad("padding", "padding, which nothing needs", f"mc3:{_CODE}=")
    yield bad("zero_byte_after", "a zero byte after it", f"mc3:{_CODE}\x00")
    yield from _old_codes(good, bad)


def _old_codes(good: Callable[..., Vector], bad: Callable[..., Vector]) -> Iterator[Vector]:
    """As earlier versions wrote them."""
    bare = _STANDARD.rstrip("=")
    yield good("old_good_standard", "standard base64 with padding", f"mc1:{_STANDARD}")
    yield good("old_good_no_padding", "standard base64 without padding", f"mc1:{bare}")
    yield good("old_good_url_safe", "URL-safe base64 with padding", f"mc1:{_URL_SAFE}")
    yield good("old_good_url_safe_no_padding", "URL-safe without padding", f"mc1:{_URL_SAFE.rstrip('=')}")
    yield good("old_good_white_space", "white space around it", f"\n \tmc1:{_STANDARD}\r\n")
    yield bad("old_prefix_only", "the prefix only", "mc1:")
    yield bad("old_prefix_upper_case", "the prefix in upper case", f"MC1:{_STANDARD}")
    yield bad("old_one_character_short", "one character short", f"mc1:{bare[:-1]}")
    yield bad("old_one_character_long", "one character long", f"mc1:{bare}A")
    yield bad("old_31_bytes", "31 bytes", "mc1:" + _base64(_ROOT[:31]))
    yield bad("old_33_bytes", "33 bytes", "mc1:" + _base64(_ROOT + b"\x00"))
    yield bad("old_with_check", "a root and a check under the earlier prefix", f"mc1:{_CODE}")
    yield bad("old_mixed_alphabets", "both alphabets in one code", f"mc1:{_mixed(_STANDARD)}")
    yield bad("old_two_padding_characters", "two padding characters", f"mc1:{bare}==")
    yield bad("old_padding_inside", "a padding character inside", f"mc1:{bare[:20]}={bare[21:]}")
    yield bad("old_spare_bits", "a last character with a spare bit set", f"mc1:{bare[:-1]}{_next(bare[-1])}=")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _mixed(code: str) -> str:
    """+ and / become - and /: the first is from one alphabet, the second from the other."""
    assert "+" in code
    assert "/" in code
    return code.replace("+", "-")


def _next(character: str) -> str:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    return alphabet[alphabet.index(character) + 1]


def v1_fields(plain: bytes = _PLAIN, before_mac: Change = unchanged) -> dict[str, object]:
    sealed = before_mac(AESGCM(KEY).encrypt(_NONCE, plain, None))
    mac_key = hkdf(KEY, b"", b"crystal-relay-sign", 32)
    return {
        "v": 1,
        "nonce": base64.b64encode(_NONCE).decode(),
        "ciphertext": base64.b64encode(sealed[:-16]).decode(),
        "tag": base64.b64encode(sealed[-16:]).decode(),
        "hmac": hmac.digest(mac_key, _NONCE + sealed, "sha256").hex(),
    }


def _v1() -> Iterator[Vector]:
    def good(name: str, what: str, payload: bytes, plain: bytes = _PLAIN) -> Vector:
        digest = hashlib.sha256(plain).hexdigest()
        fields = {"what": what, "expect": "success", "key": KEY.hex(), "plain": digest}
        return Vector("v1", name, fields, payload)

    def bad(name: str, what: str, payload: bytes, expect: str = "malformed", key: bytes = KEY) -> Vector:
        return Vector("v1", name, {"what": what, "expect": expect, "key": key.hex()}, payload)

    def changed(**changes: object) -> bytes:
        return json.dumps(v1_fields() | changes, separators=(",", ":")).encode()

    fields = v1_fields()
    texts = {name: str(value) for name, value in fields.items()}
    right = changed()
    yield good("good", "as the prototype writes it", right)
    yield good(
        "good_other_layout",
        "white space and another order",
        json.dumps(dict(reversed(fields.items())), indent=1).encode(),
    )
    yield good("good_empty", "nothing inside", json.dumps(v1_fields(b"")).encode(), b"")
    yield bad("version_2", "version 2", changed(v=2), "unknown version")
    yield bad("version_0", "version 0", changed(v=0), "unknown version")
    yield bad("version_text", "a version in quotation marks", changed(v="1"))
    yield bad("version_true", "true for a version", changed(v=True))
    yield bad("version_fraction", "1.0 for a version", right.replace(b'"v":1', b'"v":1.0'))
    for name in ("v", "nonce", "ciphertext", "tag", "hmac"):
        without = json.dumps({key: value for key, value in fields.items() if key != name}).encode()
        yield bad(f"without_{name}", f"without the field {name}", without)
    yield bad("extra_field", "a field too many", changed(sender="x"))
    twice = right.replace(b'"v":1', b'"v":1,"v":1')
    yield bad("field_twice", "a field twice", twice)
    yield bad("nonce_short", "a nonce of 11 bytes", changed(nonce=base64.b64encode(_NONCE[:11]).decode()))
    yield bad(
        "nonce_long", "a nonce of 16 bytes", changed(nonce=base64.b64encode(_NONCE + bytes(4)).decode())
    )
    yield bad("nonce_number", "a number for a nonce", changed(nonce=12))
    yield bad("tag_short", "a tag of 12 bytes", changed(tag=base64.b64encode(bytes(12)).decode()))
    yield bad("tag_null", "null for a tag", changed(tag=None))
    yield bad("tag_without_padding", "base64 without padding", changed(tag=texts["tag"].rstrip("=")))
    spare = texts["tag"][:-3] + _next(texts["tag"][-3]) + "=="
    yield bad("tag_spare_bits", "base64 with a spare bit set", changed(tag=spare))
    url_safe = base64.urlsafe_b64encode(b"\xfb\xff\xbf" + bytes(13)).decode()
    yield bad("tag_url_safe", "URL-safe base64", changed(tag=url_safe))
    yield bad(
        "ciphertext_with_line_break",
        "base64 with a line break",
        changed(ciphertext=texts["ciphertext"][:8] + "\n" + texts["ciphertext"][8:]),
    )
    yield bad("ciphertext_not_ascii", "a letter outside of ASCII", changed(ciphertext="\u00e4" * 4))
    yield bad(
        "ciphertext_surrogate",
        "half of a surrogate pair",
        right.replace(b'"ciphertext":"', b'"ciphertext":"\\ud800'),
    )
    yield bad("hmac_upper_case", "the MAC in upper-case hex", changed(hmac=texts["hmac"].upper()))
    yield bad("hmac_short", "a MAC of 62 digits", changed(hmac=texts["hmac"][:-2]))
    yield bad("hmac_line_break", "a MAC and a line break", changed(hmac=texts["hmac"] + "\n"))
    flipped = flip(0)(bytes.fromhex(texts["hmac"])).hex()
    yield bad("hmac_changed", "one bit of the MAC flipped", changed(hmac=flipped), "wrong key")
    nonce = base64.b64encode(flip(0)(_NONCE)).decode()
    yield bad("nonce_changed", "one bit of the nonce flipped", changed(nonce=nonce), "wrong key")
    ciphertext = base64.b64encode(flip(0)(base64.b64decode(texts["ciphertext"]))).decode()
    yield bad(
        "ciphertext_changed", "one bit of the ciphertext flipped", changed(ciphertext=ciphertext), "wrong key"
    )
    damaged = json.dumps(v1_fields(before_mac=flip(-1)), separators=(",", ":")).encode()
    yield bad("tag_changed_before_the_mac", "a tag changed before the MAC was made", damaged, "wrong key")
    yield bad("another_key", "another key", right, "wrong key", flip(0)(KEY))
    yield bad("empty", "no bytes", b"")
    yield bad("not_json", "not JSON", b"mc1:")
    yield bad("not_an_object", "an array", b"[1]")
    nested = {"what": "100,000 opening brackets", "expect": "malformed", "key": KEY.hex()}
    yield Vector("v1", "nested", nested | {"parts": "x5b*100000"})
    yield bad("not_utf_8", "a byte that is not UTF-8", right.replace(b'"v"', b'"\xff"'))
    yield bad("utf_16", "UTF-16", right.decode().encode("utf-16"))
    yield bad("byte_order_mark", "a byte-order mark", b"\xef\xbb\xbf" + right)
    yield bad("cut", "without its last brace", right[:-1])
    yield bad("longer", "a brace after the end", right + b"}")
