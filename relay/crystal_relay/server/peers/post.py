"""One message to one process over HTTP, on a connection that is kept."""

import hmac
import ssl

import httpx
import msgspec

from crystal_relay.errors import RelayError, StoreUnavailable
from crystal_relay.server.peers.messages import AUTHORIZATION, PATH, Heard, News, answer, sign

CONNECT_SECONDS_MAX = 2.0
ANSWER_SECONDS_MAX = 5.0


class NotHeard(StoreUnavailable):
    """A message did not arrive, or it is unknown whether it did."""

    code = "not-heard"


class AnotherProcess(RelayError):
    """The message was for a process that is not the one at this address (any more)."""

    status = 421
    code = "another-process"


class Line:
    """To the process at one address. `aclose` it."""

    def __init__(self, url: str) -> None:
        """Raises NotHeard for an address that is none."""
        # Reading the system's certificates takes a tenth of a second, which plain HTTP has no use for. A context without
        # any still verifies, and refuses all.
        verify: ssl.SSLContext | bool = (
            True if url.startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        )
        try:
            self._http = httpx.AsyncClient(
                base_url=url,
                verify=verify,
                timeout=httpx.Timeout(ANSWER_SECONDS_MAX, connect=CONNECT_SECONDS_MAX),
                limits=httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=60),
                follow_redirects=False,
                trust_env=False,
                headers={"User-Agent": "crystal-relay", "Content-Type": "application/json"},
            )
        except (httpx.InvalidURL, ValueError):
            raise NotHeard("the address of another process is not a URL") from None

    async def tell(self, secret: bytes, news: News) -> None:
        """Return once the other one has heard it. Raises NotHeard, AnotherProcess."""
        body = msgspec.json.encode(news)
        code = sign(secret, body)
        try:
            response = await self._http.post(
                PATH, content=body, headers={"Authorization": AUTHORIZATION + code}
            )
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise NotHeard(f"another process cannot be reached ({type(error).__name__})") from None
        if response.status_code == AnotherProcess.status:
            raise AnotherProcess("another process is at that address now")
        try:
            heard = msgspec.json.decode(response.content, type=Heard).heard
        except (msgspec.DecodeError, UnicodeDecodeError):
            heard = ""
        if response.status_code != 200 or not hmac.compare_digest(
            heard.encode(), answer(secret, code).encode()
        ):
            raise NotHeard(f"another process answered with HTTP status {response.status_code}")

    async def aclose(self) -> None:
        """Close the connection."""
        await self._http.aclose()
