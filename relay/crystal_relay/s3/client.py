"""The SDK's client: one for each process, with limits on time, tries and connections, counting what it sends.

The SDK's own loggers are held at warnings: at debug they write bodies, object names and signatures.
"""

import logging
import threading
from collections import Counter
from typing import Any
from xml.etree import ElementTree as ET

from crystal_relay.errors import Unusable
from crystal_relay.extra import require
from crystal_relay.s3.address import DEFAULT_REGION, S3Address
from crystal_relay.s3.failures import Try, try_of
from crystal_relay.s3.settings import S3Settings

KINDS = {
    "PutObject": "put",
    "GetObject": "get",
    "HeadObject": "head",
    "ListObjectsV2": "list",
    "DeleteObject": "delete",
}
"""Operations of the SDK, and what they are counted as."""
_TALKATIVE_LOGGERS = ("boto3", "botocore", "s3transfer", "urllib3")


class Wire:
    """What went over the wire: requests counted by kind, and how each try of the calling thread's operation ended."""

    def __init__(self) -> None:
        self.operations: Counter[str] = Counter()
        """HTTP requests that were sent, by kind. Read it from any thread."""
        self._lock = threading.Lock()
        self._of_thread = threading.local()

    def begin(self) -> None:
        """Forget the tries of this thread's last operation."""
        self._of_thread.tries = []

    @property
    def tries(self) -> list[Try]:
        """How each try since `begin` ended."""
        found: list[Try] = getattr(self._of_thread, "tries", [])
        return found

    def watch(self, client: Any) -> None:
        """Hook into the client's events."""
        client.meta.events.register("before-send.s3", self._sent)
        client.meta.events.register("response-received.s3", self._answered)

        client.meta.events.register("before-parse.s3.ListObjectsV2", _read_list)

    def _sent(self, event_name: str, **_: object) -> None:
        kind = KINDS.get(event_name.rpartition(".")[2], "other")
        with self._lock:
            self.operations[kind] += 1

    def _answered(self, parsed_response: dict[str, Any] | None = None, **_: object) -> None:
        self.tries.append(try_of(parsed_response))


def _read_list(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: object) -> None:
    """Take names and sizes out of a list before the SDK parses it. The SDK takes 0.2 s for a page of 1,000, of which most goes
    into dates that nobody asks for; this takes 6 ms."""
    try:
        document = ET.fromstring(response_dict["body"])  # noqa: S314  (as the SDK itself; it knows no entities)
        space, mark, name = document.tag.rpartition("}")
        if name != "ListBucketResult":
            return
        contents, key, size = (f"{space}{mark}{part}" for part in ("Contents", "Key", "Size"))
        found = [(each.findtext(key), int(each.findtext(size) or "")) for each in document.findall(contents)]
    except (ET.ParseError, ValueError):
        return  # an error, or a web page from a proxy: the SDK says what it is
    if any(not name for name, _ in found):
        return
    customized_response_dict["Contents"] = [{"Key": name, "Size": size} for name, size in found]
    document[:] = [each for each in document if each.tag != contents]
    response_dict["body"] = ET.tostring(document)


def make_client(address: S3Address, settings: S3Settings, wire: Wire, session: Any = None) -> Any:
    """Takes some 100 ms: blocks. Raises Unusable if the SDK is not installed, or for settings of it that it cannot work with.

    `session`: the SDK's, with credentials and region; None takes what its own chain finds (see `credentials`).
    """
    require("boto3", "a bucket")
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    from crystal_relay.s3.credentials import session_with_current_keys

    for name in _TALKATIVE_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        session = session if session is not None else session_with_current_keys()
        region = address.region or session.region_name
        if region is None and address.endpoint is not None:
            region = DEFAULT_REGION
        client = session.client(
            "s3",
            endpoint_url=address.endpoint,
            region_name=region,
            config=Config(
                signature_version="s3v4",
                connect_timeout=settings.connect_seconds,
                read_timeout=settings.read_seconds,
                retries={"mode": "standard", "total_max_attempts": settings.attempts},
                max_pool_connections=settings.connections,
                s3={"addressing_style": "path" if address.endpoint else "auto"},
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                tcp_keepalive=True,
            ),
        )
    except (BotoCoreError, ValueError) as error:
        # The message may repeat a setting's value; its kind is enough.
        raise Unusable(
            f"the object store's settings cannot be used ({type(error).__name__})",
            hint="Check the SDK's settings: AWS_REGION, AWS_PROFILE and the files they name.",
        ) from None
    wire.watch(client)
    return client
