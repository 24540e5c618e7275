"""Certificates of relays: which are trusted, and what is wrong with one that is not.

This machine trusts what `SSL_CERT_FILE` (a file) or `SSL_CERT_DIR` (a directory) names, else the system's store, else, on a
system without one, the list that comes with httpx.

A refused certificate is fetched again, unverified and without a request, to name its dates, names and issuer. That is for a
person to read; nothing is decided by it.
"""

import asyncio
import datetime as dt
import ipaddress
import os
import ssl
import sys
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import httpx

from crystal_relay.errors import BadRequest, UntrustedCertificate

LOOK_SECONDS_MAX = 5.0
"""For both connections that fetch a refused certificate."""
NAMES_SHOWN_MAX = 5
TEXT_CHARS_MAX = 80
"""Of a name in a certificate, which anybody may have written."""
_NO_CHECK_TIME = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL, for which Python has no name."""
_HASHED_SUFFIX = ".0"
_AGAIN = "Nothing on this device is lost."


def verifying_context() -> ssl.SSLContext:
    """A context that verifies by what this machine trusts. Raises BadRequest for an unusable SSL_CERT_FILE or SSL_CERT_DIR."""
    paths = ssl.get_default_verify_paths()
    # Not `cafile` and `capath`, which are None for a file or a directory that is missing.
    file, directory = (os.environ.get(name) for name in (paths.openssl_cafile_env, paths.openssl_capath_env))
    try:
        if directory and not file and not any(map(os.path.isdir, directory.split(os.pathsep))):
            raise NotADirectoryError(directory)  # OpenSSL would say nothing
        if file or directory:
            return ssl.create_default_context(cafile=file or None, capath=directory or None)
        if sys.platform in ("darwin", "win32"):
            import truststore

            return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # OpenSSL reads the system's store by itself; truststore would load it again for each connection.
        context = ssl.create_default_context()
        return context if _has_authorities(context, paths) else httpx.create_ssl_context()
    except (OSError, ssl.SSLError):
        named = f"SSL_CERT_FILE ({file})" if file else f"SSL_CERT_DIR ({directory})"
        raise BadRequest(
            f"{named} names no readable certificates",
            hint="Let SSL_CERT_FILE name a PEM file with the certificates of your authorities, or unset it.",
        ) from None


async def certificate_problem(error: BaseException | None, url: str) -> UntrustedCertificate | None:
    """What is wrong with the certificate of the server at `url`, if that made a request fail with `error`; else None."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    if error is None:
        return None
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        async with asyncio.timeout(LOOK_SECONDS_MAX):
            shown = await _shown_certificate(host, parts.port or 443)
    except (OSError, ValueError):  # also a time limit, and a server that shows another one now
        shown = {}
    return _problem(host, shown, error.verify_message or "it cannot be verified")


def _problem(host: str, shown: dict[str, Any], reason: str) -> UntrustedCertificate:
    now = dt.datetime.now(dt.UTC)
    begins, ends = _time(shown.get("notBefore")), _time(shown.get("notAfter"))
    names = [_text(value) for kind, value in shown.get("subjectAltName", ()) if kind in ("DNS", "IP Address")]
    subject, issuer = _name(shown.get("subject", ())), _name(shown.get("issuer", ()))
    clock = f"If this machine's clock is wrong ({now:%Y-%m-%d %H:%M} UTC), set it."
    if ends is not None and ends < now:
        return UntrustedCertificate(
            f"the certificate of {host} expired on {ends:%Y-%m-%d %H:%M} UTC",
            hint=f"The relay's operator has to renew it. {clock} {_AGAIN}",
        )
    if begins is not None and begins > now:
        return UntrustedCertificate(
            f"the certificate of {host} is valid only from {begins:%Y-%m-%d %H:%M} UTC on",
            hint=f"{clock} {_AGAIN}",
        )
    if shown and not any(_matches(name, host) for name in names):
        listed = ", ".join(names[:NAMES_SHOWN_MAX]) or "no name at all"
        more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
        return UntrustedCertificate(
            f"the certificate that {host} shows is for {listed}{more}",
            hint="Use one of its names in the relay's address, or ask its operator for a certificate for "
            f"{host}. On a network with a login page, log in first. {_AGAIN}",
        )
    by = ""
    if shown:
        by = (
            ": it signed itself"
            if subject == issuer
            else f": it is signed by {issuer}, which this machine does not trust"
        )
    return UntrustedCertificate(
        f"the certificate of {host} is not trusted{by} ({_text(reason)})",
        hint="If that authority is your own, add its certificate to the system's store, or let SSL_CERT_FILE name its file. "
        f"If not, somebody may be between this machine and the relay: try another network. {_AGAIN}",
    )


async def _shown_certificate(host: str, port: int) -> dict[str, Any]:
    """The server's certificate as `SSLSocket.getpeercert` gives it, whatever its signer, dates and names.

    Python decodes only what it has verified. So the second connection trusts the certificate that the first one saw.
    """
    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE
    seen = cast(bytes, await _peer(host, port, unverified, binary=True))
    same = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    same.check_hostname = False
    same.verify_flags = ssl.VerifyFlags(ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME)
    same.load_verify_locations(cadata=seen)
    return cast(dict[str, Any], await _peer(host, port, same, binary=False))


async def _peer(host: str, port: int, context: ssl.SSLContext, *, binary: bool) -> bytes | dict[str, Any]:
    _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=host)
    try:
        return writer.get_extra_info("ssl_object").getpeercert(binary_form=binary) or {}
    finally:
        writer.transport.abort()


def _has_authorities(context: ssl.SSLContext, paths: ssl.DefaultVerifyPaths) -> bool:
    """Whether the system's store has anything. A directory of it is read only when a certificate is looked for."""
    if context.cert_store_stats()["x509_ca"]:
        return True
    try:
        return any(
            each.suffix == _HASHED_SUFFIX for each in Path(paths.capath or paths.openssl_capath).iterdir()
        )
    except OSError:
        return False


def _time(text: Any) -> dt.datetime | None:
    if not isinstance(text, str):
        return None
    try:
        return dt.datetime.fromtimestamp(ssl.cert_time_to_seconds(text), dt.UTC)
    except (ValueError, OverflowError, OSError):  # whoever made the certificate may have written anything
        return None


def _name(parts: Any) -> str:
    """An issuer's or a subject's common name, else its organisation."""
    known = {str(name): str(value) for part in parts for name, value in part}
    return _text(known.get("commonName") or known.get("organizationName") or "an authority without a name")


def _text(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text[:TEXT_CHARS_MAX])


def _matches(name: str, host: str) -> bool:
    """Whether a name of a certificate covers a host (RFC 6125, section 6.4.3: a wildcard is one whole label)."""
    try:
        return ipaddress.ip_address(name) == ipaddress.ip_address(host)
    except ValueError:
        pass
    name, host = name.lower(), host.lower()
    return name == host or (name.startswith("*.") and name[1:] == host[host.find(".") :] and "." in host)
