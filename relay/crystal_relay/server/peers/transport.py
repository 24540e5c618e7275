"""Messages to one process over HTTP, on a persistent connection."""

import asyncio
import hmac
import ssl

import httpx
import msgspec

from crystal_relay.certificates import verifying_context
from crystal_relay.errors import UNDECODABLE, BadReply, RelayError, StoreUnavailable
from crystal_relay.limits import KIB
from crystal_relay.server.peers.messages import AUTHORIZATION, PATH, Heard, News, answer, sign

CONNECT_SECONDS_MAX = 2.0
ANSWER_SECONDS_MAX = 5.0
ANSWER_BYTES_MAX = 16 * KIB


class NotHeard(StoreUnavailable):
    """A message did not arrive, or it is unknown whether it did."""

    code = "not-heard"


class AnotherProcess(RelayError):
    """The message was for a process that is not (or no longer) at this address."""

    status = 421
    code = "another-process"


class PeerConnection:
    """A connection to the process at one URL. `aclose` it."""

    def __init__(self, url: str) -> None:
        """Raises NotHeard for an invalid URL."""
        # Loading the system's certificates takes a tenth of a second, which plain HTTP does not need. A context without
        # any still verifies, and refuses all.
        verify = verifying_context() if url.startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
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
        """Send a message; return once the other process has heard it. Raises NotHeard, AnotherProcess."""
        body = msgspec.json.encode(news)
        code = sign(secret, body)
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX + ANSWER_SECONDS_MAX):
                status, said = await self._post(body, code)
        except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, OSError, BadReply) as error:
            raise NotHeard(f"another process cannot be reached ({type(error).__name__})") from None
        if status == AnotherProcess.status:
            raise AnotherProcess("another process is at that address now")
        try:
            heard = msgspec.json.decode(said, type=Heard).heard
        except UNDECODABLE:
            heard = ""
        if status != 200 or not hmac.compare_digest(heard.encode(), answer(secret, code).encode()):
            raise NotHeard(f"another process answered with HTTP status {status}")

    async def _post(self, body: bytes, code: str) -> tuple[int, bytes]:
        """Status and body of the answer. Its length is bounded, because another program may listen there by now."""
        headers = {"Authorization": AUTHORIZATION + code}
        async with self._http.stream("POST", PATH, content=body, headers=headers) as response:
            said = bytearray()
            async for piece in response.aiter_raw():
                said += piece
                if len(said) > ANSWER_BYTES_MAX:
                    raise BadReply("the answer is longer than any that a process gives")
            return response.status_code, bytes(said)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._http.aclose()
