"""The second reader's part about secrets under a passphrase, written from docs/protocol.md alone."""

import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from tests.crypto.independent_reader import hkdf, label, must, refuse


def read_wrapped(passphrase: bytes, header: bytes, name: str, file: bytes) -> bytes:
    """The secret."""
    masters = open_header(passphrase, header)
    must(file[:5] == b"CRYW\x01" and len(file) > 53, "wrong key")
    known = {hkdf(master, b"", label("crystal/v2/passphrase/key-id"), 8): master for master in masters}
    must(file[5:13] in known, "wrong key")
    info = label("crystal/v2/passphrase/secret") + name.encode()
    return opened(hkdf(known[file[5:13]], file[13:37], info, 44), file[37:], file[:37] + name.encode())


def open_header(passphrase: bytes, header: bytes) -> list[bytes]:
    """The master keys: the current one first."""
    must(len(header) >= 5 and header[:4] == b"CRYH")
    must(header[4] == 1, "unknown version")
    must(len(header) == 151)
    state, lanes, memory, passes = struct.unpack(">BBII", header[5:15])
    must(1 <= state <= 3)
    must(1 <= lanes <= 8 and 1 <= passes <= 64 and 8 * lanes <= memory <= 256 * 1024)
    function = Argon2id(salt=header[15:31], length=32, iterations=passes, lanes=lanes, memory_cost=memory)
    kek = function.derive(passphrase)
    must(hkdf(kek, b"", label("crystal/v2/passphrase/check"), 16) == header[31:47], "wrong key")
    keys = hkdf(kek, header[47:71], label("crystal/v2/passphrase/header"), 44)
    both = opened(keys, header[71:], header[:71])
    return [key for key in (both[:32], both[32:]) if any(key)]


def opened(keys: bytes, sealed: bytes, bound: bytes) -> bytes:
    try:
        return AESGCM(keys[:32]).decrypt(keys[32:], sealed, bound)
    except InvalidTag:
        refuse("wrong key")
