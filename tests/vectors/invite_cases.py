"""The vectors about invites: the text, and each message as the side that reads it meets it."""

import base64
import hashlib
from collections.abc import Iterator

from tests.vectors.craft import OTHER, SENDER, VAULT, Change, fixed, flip, hkdf, unchanged, verify_key
from tests.vectors.invite_craft import (
    EXCHANGE,
    HASH,
    HEAD,
    IDENTITY,
    LABEL,
    SECRET,
    SEED,
    URL,
    A,
    Item,
    Session,
    content,
    pack,
    public,
)
from tests.vectors.vectorfile import Vector

_BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_ORDER_EIGHT = bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800")


def cases() -> Iterator[Vector]:
    yield from _texts()
    yield from _offers()
    yield from _joins()
    yield from _reveals()
    yield from _welcomes()
    yield from _ends_and_answers()
    yield from _passed_off()


def _texts() -> Iterator[Vector]:
    right = Session().text()

    def text(data: bytes, check: Change = unchanged) -> str:
        data += check(hashlib.sha256(LABEL + b"check\x00" + data).digest()[:4])
        return "MC2:" + base64.b32encode(data).decode().rstrip("=")

    stated = {
        "vault": VAULT.hex(),
        "secret": SECRET.hex(),
        "exchange": public(A).hex(),
        "url": URL,
        "mailbox": Session().mailbox.hex(),
        "access": hkdf(SECRET, VAULT, LABEL + b"access\x00", 32).hex(),
    }

    def good(name: str, what: str, code: str) -> Vector:
        fields = {"of": "text", "what": what, "expect": "success"} | stated
        return Vector("invite", f"text_{name}", fields, code.encode())

    def bad(name: str, what: str, code: str) -> Vector:
        fields = {"of": "text", "what": what, "expect": "bad code"}
        return Vector("invite", f"text_{name}", fields, code.encode())

    code = text(right)
    spaced = "\n".join(code[at : at + 20] for at in range(0, len(code), 20))
    yield good("good", "as it is written", code)
    yield good("good_lower_case", "in lower case", code.lower())
    yield good("good_lines", "in lines, with white space around", f" \n{spaced}\r\n")
    yield good("good_groups", "in groups with dashes and no-break spaces", spaced.replace("\n", "-\u00a0\t"))
    for at in (0, 3, 4, 5, 6, 20, 50, len(code) // 2, len(code) - 1):
        yield bad(f"cut_{at}", f"cut after {at} characters", code[:at])
    yield bad("longer", "a character too many", code + "A")
    yield bad("much_longer", "the text twice", code + code)
    yield bad("no_prefix", "without its prefix", code[4:])
    yield bad("prefix_mc1", "the prefix of an earlier version's offline code", "mc1:" + code[4:])
    yield bad("prefix_mc3", "the prefix of an offline code", "mc3:" + code[4:])
    yield bad("address", "an address", URL)
    for char, name in (
        ("0", "zero"),
        ("1", "one"),
        ("8", "eight"),
        ("=", "padding"),
        ("\u0410", "foreign_a"),
    ):
        yield bad(f"character_{name}", "a character that cannot occur", code[:40] + char + code[41:])
    yield bad("mistyped", "one letter is another", code[:40] + ("A" if code[40] != "A" else "B") + code[41:])
    yield bad("swapped_letters", "two letters swapped", code[:30] + code[31] + code[30] + code[32:])
    yield bad("version_1", "version 1", text(b"\x01" + right[1:]))
    yield bad("version_3", "version 3", text(b"\x03" + right[1:]))
    for name, at in (
        ("vault", 1),
        ("secret", 17),
        ("exchange", 33),
        ("length", 65),
        ("url", 66),
        ("check", -4),
    ):
        data = base64.b32decode(code[4:] + "=" * (-len(code[4:]) % 8))
        changed = base64.b32encode(flip(at)(data)).decode().rstrip("=")
        yield bad(f"flipped_{name}", f"one bit flipped in the field: {name}", "MC2:" + changed)
    swapped = b"\x02" + SECRET + VAULT + right[33:]
    check = hashlib.sha256(LABEL + b"check\x00" + right).digest()[:4]
    yield bad("fields_swapped", "vault and secret swapped", text(swapped, lambda _: check))
    yield bad("url_empty", "no URL", text(right[:65] + b"\x00"))
    yield bad("url_long", "a URL of 201 bytes", text(right[:65] + b"\xc9" + b"https://" + b"a" * 193))
    for name, url in (
        ("ftp", b"ftp://example.org"),
        ("space", b"https://example.org/a b"),
        ("line_break", b"https://example.org\n"),
        ("escape", b"https://example.org\x1b[2J"),
        ("direction", "https://example.org/\u202e".encode()),
        ("not_utf_8", b"https://example.org/\xff"),
    ):
        yield bad(f"url_{name}", "a URL that is none", text(right[:65] + bytes([len(url)]) + url))
    slash = text(right[:65] + bytes([len(URL) + 1]) + URL.encode() + b"/")
    last = _BASE32.index(slash[-1])
    assert last % 4 == 0, "two spare bits"
    for bit in (1, 2):
        yield bad(f"spare_bit_{bit}", "a spare bit set", slash[:-1] + _BASE32[last | bit])


def _joiner(session: Session) -> dict[str, str]:
    """What the newcomer has before it reads anything."""
    return {
        "vault": session.vault.hex(),
        "secret": session.secret.hex(),
        "exchange": public(session.a).hex(),
        "private": session.b.hex(),
        "identity": IDENTITY.hex(),
        "name": "новый ноутбук".encode().hex(),
        "system": b"Darwin arm64".hex(),
        "token-hash": fixed("hash of a token", 32).hex(),
        "nonce": fixed("newcomer's nonce", 32).hex(),
    }


def _inviter(session: Session) -> dict[str, str]:
    return {
        "vault": session.vault.hex(),
        "secret": session.secret.hex(),
        "private": session.a.hex(),
        "device": SENDER.hex(),
        "name": b"desk in the study".hex(),
        "system": b"Linux x86_64".hex(),
        "nonce": fixed("inviter's nonce", 32).hex(),
    }


def _message(
    of: str, name: str, what: str, given: dict[str, str], data: bytes, stated: dict[str, str] | None = None
) -> Vector:
    expect = "bad message" if stated is None else "success"
    fields = {"of": of, "what": what, "expect": expect} | given | (stated or {})
    return Vector("invite", f"{of}_{name}", fields, data)


def _damaged(of: str, given: dict[str, str], right: bytes, clear: int = 0) -> Iterator[Vector]:
    """What can be done to any message without its key."""
    yield _message(of, "empty", "no bytes", given, b"")
    for at in sorted({1, 1 + clear, 17 + clear, len(right) - 16, len(right) - 1}):
        yield _message(of, f"cut_{at}", f"cut after {at} bytes", given, right[:at])
    yield _message(of, "longer", "a byte after the end", given, right + b"\x00")
    yield _message(of, "over_4_kib", "4,097 bytes", given, right + bytes(4097 - len(right)))
    yield _message(of, "version_1", "version 1", given, b"\x01" + right[1:])
    yield _message(of, "version_3", "version 3", given, b"\x03" + right[1:])
    for place, at in (("first", 1 + clear), ("middle", len(right) // 2), ("tag", -1)):
        yield _message(of, f"flipped_{place}", f"one bit flipped: {place}", given, flip(at)(right))


def _bodies(items: list[Item]) -> Iterator[tuple[str, str, bytes]]:
    """Layouts of a body that are none, each a fault of whoever has the keys."""
    body = pack(*items)
    yield "field_missing", "without its last field", content(pack(*items[:-1]))
    yield "field_added", "a field too many", content(pack(*items, 0))
    yield "nil", "nil for its first field", content(pack(None, *items[1:]))
    yield "map", "a map in place of an array", content(bytes([0x80 | len(items)]) + body[1:])
    yield "byte_after", "a byte after the array", content(body + b"\x00")
    yield "body_empty", "no body", content(b"")
    inside = content(body)
    yield "padding_not_zero", "padding that is not zero", inside[:-1] + b"\x01"
    yield "padding_longer", "padding that is longer than needed", inside + bytes(256)
    yield "no_padding", "no padding", inside[: 2 + len(body)]
    yield "length_beyond", "a length beyond the content", b"\xff\xff" + inside[2:]
    yield "one_byte", "one byte in all", b"\x00"


def _offers() -> Iterator[Vector]:
    session = Session()
    given = {
        name: value for name, value in _joiner(session).items() if name in ("vault", "secret", "exchange")
    }
    right = session.offer()
    yield _message(
        "offer", "good", "an offer", given, right, {"inviter-name": session.offer_name.encode().hex()}
    )
    long = Session(offer_name="\U0001f4bb" * 200)
    stated = {"inviter-name": long.offer_name.encode().hex()}
    yield _message(
        "offer", "good_long_name", "a name of 200 characters, 800 bytes", given, long.offer(), stated
    )
    yield _message("offer", "name_too_long", "a name of 201", given, Session(offer_name="a" * 201).offer())
    yield from _damaged("offer", given, right)
    commitment: Item = hashlib.sha256(b"any").digest()
    for name, what, inside in _bodies([commitment, "name"]):
        yield _message("offer", name, what, given, session.offer(inside))
    for name, items in (
        ("commitment_short", (fixed("c", 31), "n")),
        ("commitment_text", ("c" * 32, "n")),
        ("name_bytes", (commitment, b"n")),
    ):
        yield _message("offer", name, "a field of another kind", given, session.offer(content(pack(*items))))
    bad = content(b"\x92\xc4\x20" + bytes(32) + b"\xa2\xff\xfe")
    yield _message("offer", "name_not_utf_8", "a name that is not UTF-8", given, session.offer(bad))
    for name, other in (
        ("vault", Session(vault=OTHER)),
        ("secret", Session(secret=fixed("other", 16))),
        ("exchange", Session(a=fixed("other", 32))),
    ):
        yield _message("offer", f"other_{name}", f"made for another {name}", given, other.offer())


def _joins() -> Iterator[Vector]:
    session = Session()
    given = _inviter(session)
    items = list(session.join_items)
    newcomer = {
        "newcomer-device": OTHER.hex(),
        "newcomer-signing": verify_key(SEED).hex(),
        "newcomer-exchange": public(EXCHANGE).hex(),
        "newcomer-name": "новый ноутбук".encode().hex(),
        "newcomer-system": b"Darwin arm64".hex(),
        "newcomer-token-hash": fixed("hash of a token", 32).hex(),
        "digits": session.digits(),
    }
    right = session.join()
    yield _message("join", "good", "a join", given, right, newcomer)
    yield from _damaged("join", given, right, clear=32)
    for name, what, inside in _bodies(items):
        yield _message("join", name, what, given, session.join(inside))
    for at, name in enumerate(("device", "signing", "exchange", "name", "system", "token_hash", "nonce")):
        value = items[at]
        wrong: Item = "a" * 201 if isinstance(value, str) else fixed("wrong", 33)
        changed = [*items[:at], wrong, *items[at + 1 :]]
        yield _message(
            "join", f"{name}_long", f"too long: {name}", given, session.join(content(pack(*changed)))
        )
    for name, at, bad in (
        ("device_zero", 0, bytes(16)),
        ("signing_small_order", 1, b"\x01" + bytes(31)),
        ("signing_not_canonical", 1, (2**255 - 16).to_bytes(32, "little")),
        ("exchange_zero", 2, bytes(32)),
        ("exchange_order_eight", 2, _ORDER_EIGHT),
    ):
        changed = [*items[:at], bad, *items[at + 1 :]]
        yield _message(
            "join", name, "a key or id that is refused", given, session.join(content(pack(*changed)))
        )
    yield _message("join", "flipped_key", "one bit of E_b flipped", given, flip(1)(right))
    # The top bit of an X25519 key is ignored: the same secret, another encoding. It is refused all the same.
    yield _message("join", "key_top_bit", "E_b in another encoding", given, flip(32, 7)(right))
    for name, point in (("zero", bytes(32)), ("one", b"\x01" + bytes(31)), ("order_eight", _ORDER_EIGHT)):
        yield _message("join", f"key_{name}", "E_b of low order", given, b"\x02" + point + right[33:])
    for name, other in (
        ("vault", Session(vault=OTHER)),
        ("secret", Session(secret=fixed("other", 16))),
        ("agreement", Session(a=fixed("other", 32))),
    ):
        yield _message("join", f"other_{name}", f"made for another {name}", given, other.join())


def _reveals() -> Iterator[Vector]:
    session = Session()
    given = _joiner(session) | {"offer": session.offer().hex()}
    stated = {
        "inviter-device": SENDER.hex(),
        "inviter-name": b"desk in the study".hex(),
        "inviter-system": b"Linux x86_64".hex(),
        "digits": session.digits(),
    }
    right = session.reveal()
    yield _message("reveal", "good", "a reveal", given, right, stated)
    yield from _damaged("reveal", given, right)
    nonce, name, system = fixed("inviter's nonce", 32), "desk in the study", "Linux x86_64"
    for what, body in (
        ("nonce", pack(fixed("another nonce", 32), SENDER, name, system)),
        ("device", pack(nonce, OTHER, name, system)),
        ("name", pack(nonce, SENDER, "desk in the hall", system)),
        ("system", pack(nonce, SENDER, name, "Linux aarch64")),
        ("layout", b"\xdc\x00\x04" + pack(nonce, SENDER, name, system)[1:]),
    ):
        yield _message(
            "reveal", f"another_{what}", "not as promised", given, Session(reveal_body=body).reveal()
        )
    for what, made in (
        ("field_missing", Session(reveal_body=pack(nonce, SENDER, name))),
        ("nonce_short", Session(reveal_body=pack(nonce[:31], SENDER, name, system))),
        ("other_name", Session(offer_name="another name")),
    ):
        offered = _joiner(made) | {"offer": made.offer().hex()}
        yield _message("reveal", what, "as promised, and wrong in itself", offered, made.reveal())
    other = Session(b=fixed("other", 32))
    yield _message("reveal", "other_agreement", "for another newcomer", given, other.reveal())


def _welcomes() -> Iterator[Vector]:
    session = Session()
    given = _joiner(session) | {"offer": session.offer().hex(), "reveal": session.reveal().hex()}
    stated = {"slot": "7", "entry-hash": HASH.hex(), "head": HEAD.hex(), "root-number": "0"}
    right = session.welcome()
    yield _message("welcome", "good", "a welcome", given, right, stated)
    large = session.welcome(pack(2**53, HASH, HEAD, 2**53))
    most = stated | {"slot": str(2**53), "root-number": str(2**53)}
    yield _message("welcome", "good_large", "the largest numbers", given, large, most)
    long_form = b"\x94\xcd\x00\x07\xc5\x00\x20" + HASH + b"\xc6\x00\x00\x00\x20" + HEAD + b"\xd3" + bytes(8)
    yield _message("welcome", "good_long_forms", "longer forms", given, session.welcome(long_form), stated)
    yield from _damaged("welcome", given, right)
    for name, items in (
        ("too_large", (2**53 + 1, HASH, HEAD, 0)),
        ("fraction", (3.0, HASH, HEAD, 0)),
        ("true", (True, HASH, HEAD, 0)),
        ("text", ("7", HASH, HEAD, 0)),
        ("hash_short", (7, HASH[:31], HEAD, 0)),
        ("head_long", (7, HASH, HEAD + b"\x00", 0)),
        ("swapped", (HASH, 7, HEAD, 0)),
    ):
        body = session.welcome(pack(*items))
        yield _message("welcome", name, "a field of another kind", given, body)
    negative = b"\x94\xff" + pack(0, HASH, HEAD, 0)[2:]
    yield _message("welcome", "negative", "a negative number", given, session.welcome(negative))
    other = Session(offer_name="desk in the hall")
    yield _message("welcome", "other_transcript", "after another offer", given, other.welcome())


def _ends_and_answers() -> Iterator[Vector]:
    session = Session()
    given = {
        name: value for name, value in _joiner(session).items() if name in ("vault", "secret", "exchange")
    }
    for reason in ("digits", "withdrawn", "failed"):
        end = session.end(pack(reason))
        yield _message("end", f"good_{reason}", f"an end: {reason}", given, end, {"reason": reason})
    yield from _damaged("end", given, session.end(pack("digits")))
    for name, body in (
        ("unknown", pack("other")),
        ("upper_case", pack("Digits")),
        ("bytes", pack(b"digits")),
        ("number", pack(1)),
        ("none", pack()),
    ):
        yield _message("end", name, "no reason", given, session.end(body))
    given = _inviter(session) | {"join": session.join().hex()}
    for word, accepted in (("yes", True), ("no", False)):
        answer = {"accepted": str(int(accepted))}
        yield _message(
            "done", f"good_{word}", f"an answer: {word}", given, session.done(pack(accepted)), answer
        )
    yield from _damaged("done", given, session.done(pack(True)))
    for name, body in (
        ("number", pack(1)),
        ("two", pack(True, True)),
        ("nil", pack(None)),
        ("text", pack("yes")),
    ):
        yield _message("done", name, "no answer", given, session.done(body))


def _passed_off() -> Iterator[Vector]:
    """Every message in the place of every other."""
    session = Session()
    messages = {
        "offer": session.offer(),
        "join": session.join(),
        "reveal": session.reveal(),
        "welcome": session.welcome(),
        "end": session.end(pack("digits")),
        "done": session.done(pack(True)),
    }
    more = {
        "reveal": {"offer": messages["offer"].hex()},
        "welcome": {"offer": messages["offer"].hex(), "reveal": messages["reveal"].hex()},
        "done": {"join": messages["join"].hex()},
    }
    for place in messages:
        side = _inviter(session) if place in ("join", "done") else _joiner(session)
        for name, data in messages.items():
            if name != place:
                given = side | more.get(place, {})
                yield _message(place, f"is_{name}", f"the message `{name}` in its place", given, data)
