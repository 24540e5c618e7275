"""A relay's own certificate: self-signed, without a name, without an expiry date (RFC 5280).

An address names it by its fingerprint; issuer and dates mean nothing. `python -P -m crystal_crypto.certificate` writes a
new one to standard output, for the relay, which may not import this package.
"""

import datetime as dt
import sys

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

_FROM = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
"""A machine whose clock is behind accepts it, too."""
_UNTIL = dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=dt.UTC)
"""No expiry date (RFC 5280, 4.1.2.5)."""


def new_certificate() -> bytes:
    """A new P-256 key (PKCS #8) and its certificate, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([])  # it tells nobody whose it is
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_FROM)
        .not_valid_after(_UNTIL)
        .sign(key, SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return private + certificate.public_bytes(Encoding.PEM)


if __name__ == "__main__":
    sys.stdout.buffer.write(new_certificate())
