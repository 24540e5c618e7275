"""Access to the gateway: by its token, or by the session of a page that was opened by a link.

::

    crystal serve ──► token, in the home or from the environment ──► programs send it
    crystal serve [--link] ──► code, good once and for ten minutes ──► POST /api/session ──► a page's session, in memory
                                                                                              ends after twelve idle hours,
                                                                                              signed out, or with the process

The token is in no address and no argument, and stays in no browser: a page whose person pastes it gets a session for it. A code
is in an argument (`--open`), and is useless afterwards. Of codes and sessions only the SHA-256 is kept, so that comparing
reveals nothing of them.
"""

import hmac
import secrets
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec

from crystal_node.base.decoding import from_json
from crystal_node.base.errors import BadConfig, LocalStorage
from crystal_node.base.home import DIRECTORY_MODE, Home, exposure, locked_directory, write_private

TOKEN_BYTES = 32
TOKENS_BEGIN = "crystal_page_"
"""Tokens and links say what they are, so that redaction knows them wherever somebody pastes them."""
TOKEN_CHARS_MIN = 16
TOKEN_CHARS_MAX = 512
LINK_SECONDS = 10 * 60
LINKS_MAX = 16
SESSION_SECONDS = 12 * 3600
SESSIONS_MAX = 32
_FILE_BYTES_MAX = 16 * 1024
_BEARER = b"bearer "


class _Link(msgspec.Struct, frozen=True):
    digest: str
    until: int


class GatewayAccess:
    """Of one serving process. ``clock``: milliseconds since 1970."""

    def __init__(self, home: Home, token: str, clock: Callable[[], int]) -> None:
        self._home = home
        self._token = _digest(token)
        self._clock = clock
        self._sessions: dict[bytes, int] = {}

    def admits(self, header: bytes | None) -> bool:
        """Whether this ``Authorization`` header has the token, or a session's."""
        if header is None or header[: len(_BEARER)].lower() != _BEARER:
            return False
        given = sha256(header[len(_BEARER) :].strip()).digest()
        if hmac.compare_digest(given, self._token):
            return True
        now = self._clock()
        if self._sessions.get(given, 0) <= now:
            self._sessions.pop(given, None)
            return False
        self._sessions[given] = now + SESSION_SECONDS * 1000
        return True

    def open_session(self, code: str) -> str | None:
        """A session's token for a link's code, which is used up. None: there is no such code, or it has expired."""
        return self.new_session() if _redeem(self._home.gateway_folder, code, self._clock()) else None

    def new_session(self) -> str:
        """A session's token, for a page whose person gave the gateway's own."""
        token = _new_token()
        while len(self._sessions) >= SESSIONS_MAX:
            self._sessions.pop(min(self._sessions, key=lambda each: self._sessions[each]))
        self._sessions[_digest(token)] = self._clock() + SESSION_SECONDS * 1000
        return token

    def close_session(self, header: bytes | None) -> None:
        """End the session of this header, if it has one."""
        self._sessions.pop(sha256((header or b"")[len(_BEARER) :].strip()).digest(), None)


def kept_token(home: Home, given: str) -> str:
    """The token: the environment's, else the home's own, which is made if there is none.

    Raises:
        BadConfig: the environment's is too short to resist guessing, or cannot stand in a header.
        LocalStorage: others can read the file, or it holds no token.
    """
    if given:
        if len(given) < TOKEN_CHARS_MIN or not given.isascii() or not given.isprintable() or " " in given:
            raise BadConfig(
                f"CRYSTAL_SERVE_TOKEN has to have {TOKEN_CHARS_MIN} characters or more, without spaces",
                hint="Leave it out: `crystal serve` then makes one of its own.",
            )
        return given
    path = token_file(home)
    _folder(home)
    with locked_directory(path.parent):
        problem = exposure(path)
        if problem is not None:
            raise LocalStorage(problem.text, hint=problem.fix)
        try:
            token = path.read_bytes()[: TOKEN_CHARS_MAX + 2].decode("ascii", "replace").strip()
        except FileNotFoundError:
            token = _new_token()
            write_private(path, token.encode() + b"\n")
    if not TOKEN_CHARS_MIN <= len(token) <= TOKEN_CHARS_MAX or not token.isprintable() or "\ufffd" in token:
        raise LocalStorage(
            f"{path} holds no token", hint="Delete it: the next `crystal serve` makes another."
        )
    return token


def _new_token() -> str:
    return TOKENS_BEGIN + secrets.token_urlsafe(TOKEN_BYTES)


def token_file(home: Home) -> Path:
    return home.gateway_folder / "token"


def new_link(home: Home, now_ms: int) -> str:
    """A code that opens the page once. Any process of this home may make one."""
    code = _new_token()
    folder = _folder(home)
    with locked_directory(folder):
        links = [each for each in _links(folder) if each.until > now_ms][-(LINKS_MAX - 1) :]
        _write(folder, [*links, _Link(_digest(code).hex(), now_ms + LINK_SECONDS * 1000)])
    return code


def _redeem(folder: Path, code: str, now_ms: int) -> bool:
    given = _digest(code).hex()
    if not folder.is_dir():
        return False
    with locked_directory(folder):
        links = _links(folder)
        found = [each for each in links if hmac.compare_digest(each.digest, given) and each.until > now_ms]
        if found:
            _write(folder, [each for each in links if each.until > now_ms and each not in found])
    return bool(found)


def _links(folder: Path) -> list[_Link]:
    """The links; a damaged file has none."""
    with suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
        data = _links_file(folder).read_bytes()
        if len(data) <= _FILE_BYTES_MAX:
            return from_json(data, list[_Link])
    return []


def _write(folder: Path, links: list[_Link]) -> None:
    write_private(_links_file(folder), msgspec.json.encode(links))


def _links_file(folder: Path) -> Path:
    return folder / "links.json"


def _folder(home: Home) -> Path:
    home.gateway_folder.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    problem = exposure(home.gateway_folder)
    if problem is not None:
        raise LocalStorage(problem.text, hint=problem.fix)
    return home.gateway_folder


def _digest(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogatepass")).digest()
