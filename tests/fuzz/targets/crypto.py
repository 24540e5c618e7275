"""The byte formats. Where a check or a key stands before a parser, the target computes it, so that the parser is reached."""
# pyright: reportPrivateUsage=false

from collections.abc import Callable, Iterable
from typing import Any

from crystal_crypto import identity, invite_code, invite_messages, kit, pairing, short_invite
from crystal_crypto.blob import open_blob, parse_blob_header
from crystal_crypto.bundle import open_bundle
from crystal_crypto.compression import compress, decompress
from crystal_crypto.entry import parse
from crystal_crypto.errors import BadCode, BadMessage, CryptoError, Malformed
from crystal_crypto.frames import Frame, content_of, frames_of
from crystal_crypto.hierarchy import GenerationKey, Root
from crystal_crypto.identity import DeviceIdentity, ExchangeKey, VerifyKey
from crystal_crypto.invite_messages import (
    DoneBody,
    EndBody,
    EndReason,
    InviteSlot,
    JoinBody,
    OfferBody,
    RevealBody,
    WelcomeBody,
)
from crystal_crypto.keystore.passphrase import Cost, MasterKeys, PassphraseHeader, new_header
from crystal_crypto.letter import open_letter
from crystal_crypto.limits import INVITE_CHECK_BYTES
from crystal_crypto.padding import padded_length
from tests.fuzz.seeds import vectors, with_nested
from tests.fuzz.target import Target
from tests.vectors.craft import GENERATION_KEY

_KEY = GenerationKey(1, GENERATION_KEY)
_ROOT = Root.from_bytes(bytes(range(32)))
_PRIVATE = ExchangeKey(bytes(range(1, 33)))
_FRAMES_BYTES_MAX = 64 * 1024
_TEXT = b"the same words again and again, and again the same words " * 8


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _entry(data: bytes) -> None:
    entry = parse(data)
    assert entry.data == data
    again = parse(bytes(bytearray(data)))
    assert (again.header, again.public, again.salt) == (entry.header, entry.public, entry.salt)
    entry.open(_KEY)


def _frames(data: bytes) -> None:
    found = frames_of(memoryview(data))
    parts, padded = content_of([Frame(frame, compress=False) for frame in found], 2**25)
    assert frames_of(memoryview(b"".join(parts))) == found
    assert len(data) <= padded, "stored frames are never longer than their data"
    if len(data) == padded:
        assert b"".join(parts) == data, "frames that are stored as they are have one form"


def _frame_seeds() -> Iterable[bytes]:
    for frames in ([], [b""], [b"one", b"two"], [_TEXT], [_TEXT, b"x" * 700, _TEXT]):
        for packed in (False, True):
            yield b"".join(content_of([Frame(frame, compress=packed) for frame in frames], 2**20)[0])


def _zstd(data: bytes) -> None:
    length = int.from_bytes(data[:2], "big")
    assert len(decompress(data[2:], length)) == length


def _zstd_seeds() -> Iterable[bytes]:
    frame = compress(_TEXT) or b""
    return [len(_TEXT).to_bytes(2, "big") + frame, b"\x00\x00" + frame[:6]]


def _blob(data: bytes) -> None:
    header = parse_blob_header(data)
    key = GenerationKey(header.generation, bytes(32)) if header.generation else _KEY
    list(open_blob([data], content_hash=bytes(32), name=header.name, vault=header.vault, key=key))


def _bundle(data: bytes) -> None:
    open_bundle(
        data,
        _PRIVATE,
        vault=bytes(16),
        recipient_id=bytes(16),
        log_head=bytes(32),
        generation_number=1,
    )


def _letter(data: bytes) -> None:
    open_letter(
        data,
        _PRIVATE,
        vault=bytes(16),
        sender=bytes(16),
        recipient_id=bytes(16),
        log_head=bytes(32),
        incarnation=bytes(8),
        sequence=1,
    )


def _identity(data: bytes) -> None:
    whole = data + identity._check(data)
    assert DeviceIdentity.from_bytes(whole).to_bytes() == whole


def _public_key(data: bytes) -> None:
    key = VerifyKey.from_bytes(data[:32])
    assert key.to_bytes() == data[:32]
    key.verify(data[32:], b"a message")


def _offline_code(data: bytes) -> None:
    code = pairing.decode(_text(data))
    assert pairing.decode(pairing.encode(code.root, code.vault_id)) == code


def _invite_code(data: bytes) -> None:
    """The bytes of a code with a right check; its letters are those of `invite_text`."""
    text = invite_code.PREFIX + invite_code._base32(data + invite_code._check(data))
    assert invite_code.encode_invite(invite_code.decode_invite(text)) == text


def _invite_text(data: bytes) -> None:
    code = invite_code.decode_invite(_text(data))
    assert invite_code.decode_invite(invite_code.encode_invite(code)) == code


def _short_invite(data: bytes) -> None:
    short = short_invite.decode_short_invite(_text(data))
    assert short_invite.decode_short_invite(short_invite.encode_short_invite(short)) == short


def _sealed_invite(data: bytes) -> None:
    """What a sealed invite holds, once it is opened."""
    code = invite_code.invite_of(data)
    assert invite_code.invite_of(invite_code.invite_bytes(code) + bytes(9)) == code


def _invite_example() -> invite_code.InviteCode:
    return invite_code.InviteCode(
        vault=bytes(range(16)),
        secret=invite_code.InviteSecret(bytes(range(16))),
        exchange=_PRIVATE.public,
        url="https://relay.example.org",
    )


_BODIES: dict[InviteSlot, invite_messages.Body] = {
    InviteSlot.OFFER: OfferBody(bytes(32), "laptop"),
    InviteSlot.JOIN: JoinBody(bytes(16), bytes(32), bytes(32), "laptop", "Linux", bytes(32), bytes(32)),
    InviteSlot.REVEAL: RevealBody(bytes(32), bytes(16), "laptop", "Linux"),
    InviteSlot.WELCOME: WelcomeBody(3, bytes(32), bytes(32), 0),
    InviteSlot.END: EndBody(EndReason.FAILED),
    InviteSlot.DONE: DoneBody(accepted=True),
}
_SLOTS = list(_BODIES)
_FRAMED = 128
"""From this first byte on, an invite's message comes whole."""


def _invite_message(data: bytes) -> None:
    """The first byte chooses the slot, and whether what follows is a whole content or the fields alone, to be framed here."""
    if not data:
        return
    slot = _SLOTS[data[0] % len(_SLOTS)]
    kind: Any = type(_BODIES[slot])
    content = data[1:]
    if data[0] < _FRAMED:
        content = len(content).to_bytes(invite_messages._LENGTH_BYTES, "big") + content
        content += bytes(padded_length(len(content)) - len(content))
    body = invite_messages.body_of(slot, content, kind)
    assert invite_messages.body_of(slot, invite_messages.content_of(body), kind) == body


def _invite_message_seeds() -> Iterable[bytes]:
    start = invite_messages._LENGTH_BYTES
    for number, body in enumerate(_BODIES.values()):
        content = invite_messages.content_of(body)
        used = int.from_bytes(content[:start], "big")
        for each in with_nested([content[start : start + used]]):
            yield bytes([number]) + each
        yield bytes([_FRAMED + (number - _FRAMED) % len(_SLOTS)]) + content


def _kit(data: bytes) -> None:
    found = kit.decode_kit(_text(data))
    assert kit.decode_kit("\n".join(kit.encode_kit(found.root, found.vault))) == found


def _kit_line(data: bytes) -> None:
    """A line, with its own check where there are eight bytes for one."""
    number = data[0] % 6 + 1 if data else 1
    if len(data) == 9:
        assert kit.decode_line(number, kit._line(number, data[1:])) == data[1:]
    kit.decode_line(number, _text(data[1:]))


def _passphrase_header(data: bytes) -> None:
    assert PassphraseHeader.parse(data).to_bytes() == data


def _wrapped(data: bytes) -> None:
    keys = MasterKeys(bytearray(32))
    head = keys.wrap("identity", b"secret", bytes)[:13]
    for each in (data, head + data):
        keys.unwrap("identity", each)


def _of(folder: str, bytes_max: int) -> Callable[[], Iterable[bytes]]:
    return lambda: vectors(folder, bytes_max)


def _header_seeds() -> Iterable[bytes]:
    cost = Cost(memory_kib=8, iterations=1, lanes=1)
    header, _ = new_header(bytearray(b"words"), MasterKeys(bytearray(32)), cost, bytes)
    return [header.to_bytes(), *vectors("wrapped", 4096)]


def _texts(*texts: str) -> Callable[[], Iterable[bytes]]:
    return lambda: [text.encode() for text in texts]


_INVITE = _invite_example()
_INVITE_TEXT = invite_code.encode_invite(_INVITE)
_SHORT_TEXT = short_invite.encode_short_invite(short_invite.ShortInvite("relay.example.org", "7KPD3MX9QW"))
_KIT_LINES = kit.encode_kit(_ROOT, bytes(range(16)))

TARGETS = (
    Target("crypto.entry", _entry, (CryptoError,), _of("entry", 4096)),
    Target("crypto.frames", _frames, (Malformed,), _frame_seeds, _FRAMES_BYTES_MAX),
    Target("crypto.zstd", _zstd, (Malformed,), _zstd_seeds),
    Target("crypto.blob", _blob, (CryptoError,), _of("blob", 4096)),
    Target("crypto.bundle", _bundle, (CryptoError,), _of("bundle", 4096)),
    Target("crypto.letter", _letter, (CryptoError,), _of("letter", 4096)),
    Target(
        "crypto.identity",
        _identity,
        (Malformed,),
        lambda: [DeviceIdentity(bytes(16), identity.SigningKey(bytes(32)), _PRIVATE).to_bytes()[:-8]],
    ),
    Target("crypto.public_key", _public_key, (CryptoError,), lambda: [bytes(96), bytes(range(96))]),
    Target(
        "crypto.offline_code",
        _offline_code,
        (BadCode,),
        _texts("", "mc1:", "mc3:", pairing.encode(_ROOT), pairing.encode(_ROOT, bytes(16))),
    ),
    Target(
        "crypto.invite_code",
        _invite_code,
        (BadCode, Malformed),
        lambda: [invite_code._bytes(_INVITE_TEXT[len(invite_code.PREFIX) :])[:-INVITE_CHECK_BYTES]],
    ),
    Target(
        "crypto.invite_text",
        _invite_text,
        (BadCode, Malformed),
        _texts("MC2:", _INVITE_TEXT, _INVITE_TEXT.lower()),
    ),
    Target(
        "crypto.short_invite",
        _short_invite,
        (BadCode,),
        _texts("", "relay.example.org/", _SHORT_TEXT, f"https://{_SHORT_TEXT.lower()}"),
    ),
    Target(
        "crypto.sealed_invite",
        _sealed_invite,
        (BadCode, Malformed),
        lambda: [invite_code.invite_bytes(_invite_example()), bytes(270)],
    ),
    Target("crypto.invite_message", _invite_message, (BadMessage,), _invite_message_seeds),
    Target(
        "crypto.kit",
        _kit,
        (BadCode, Malformed),
        _texts("\n".join(_KIT_LINES), _KIT_LINES[0], "1: 0000", pairing.encode(_ROOT, bytes(16))),
    ),
    Target(
        "crypto.kit_line",
        _kit_line,
        (BadCode,),
        lambda: [b"\x00" + line.encode() for line in _KIT_LINES] + [bytes(9)],
    ),
    Target("crypto.passphrase_header", _passphrase_header, (Malformed,), _header_seeds),
    Target("crypto.wrapped_secret", _wrapped, (CryptoError,), lambda: [bytes(5), bytes(60)]),
)
