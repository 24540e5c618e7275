"""The bridge: this device takes in what devices of the prototype drop at their relay, as captures of its own.

::

    list --> fetch --> open --> recorded in the outbox --> confirm
                         not opened: stays there      killed: fetched again, and known
                                             not all of it is text: what is text is recorded, and the drop stays there

It reads the channel `conversations` alone. Commands are left where they are: nothing in a drop proves who sent it. What a drop
claims of its sender (`agent_id`) is kept as a name only. Its key and token are kept in the key store, under one name.
"""

import base64
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Annotated, Any

import httpx
from msgspec import Meta, Struct, structs

from crystal_crypto.errors import UNDECODABLE, CrystalError
from crystal_crypto.hierarchy import Root
from crystal_crypto.limits import KEY_BYTES, V1_PAYLOAD_BYTES_MAX
from crystal_crypto.pairing import PREFIX as OFFLINE_CODE
from crystal_node.base.agent_names import agent_id
from crystal_node.base.clock import now_ms
from crystal_node.base.decoding import from_fields, from_json
from crystal_node.base.errors import UsageError
from crystal_node.capture.json_values import as_text, parse_json
from crystal_node.device.bridge import BridgeReport, read_bridge, write_bridge
from crystal_node.device.device import Device
from crystal_node.device.relay import PLAIN_HTTP_HINT
from crystal_node.safekeeping.portable.export_format import PieceRecord
from crystal_node.safekeeping.portable.record_import import RecordImporter
from crystal_prototype.messages import NAME_CHARS_MAX, message_record
from crystal_prototype.sealing import open_v1
from crystal_relay.address import (
    check_relay_url,
    is_loopback,
    is_wrong_certificate,
    pin_of,
    tls_context,
)
from crystal_relay.errors import BadRequest

PAIRING = "mc1:"
"""What the prototype's pairing text begins with; standard base64 of the key follows."""
TOKEN_CHARS_MAX = 512
_SECONDS = 60.0
_LIST_BYTES_MAX = 64 * 1024 * 1024


class RelayTrouble(CrystalError):
    """The prototype's relay cannot be asked, or answers something else."""

    hint = "Nothing is lost: what waits there stays until it is taken in. `crystal bridge run` tries again."


class _OneRefused(RelayTrouble):
    """Its answer to one request is of no use. The others may be."""


class Credentials(Struct, frozen=True):
    """Key and token of the bridge, as they are kept in the key store."""

    key: Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
    token: str

    @classmethod
    def of(cls, key: str, token: str) -> "Credentials":
        """Of what a person has typed: the prototype's pairing text or its key in hex or base64, and the token.

        Raises UsageError, which repeats neither.
        """
        if key.strip().lower().startswith(OFFLINE_CODE):
            raise _root_refused()
        text = key.strip().removeprefix(PAIRING)
        try:
            raw = bytes.fromhex(text) if len(text) == 2 * KEY_BYTES else base64.b64decode(text, validate=True)
        except ValueError:
            raw = b""
        if len(raw) != KEY_BYTES:
            raise UsageError(
                "that is not a key of the prototype",
                hint="Give CRYSTAL_RELAY_KEY of its devices, or the text that its `pair` prints, which begins with mc1:.",
            )
        if not token.isascii() or not token.isprintable() or not 0 < len(token) <= TOKEN_CHARS_MAX:
            raise UsageError(
                "that is not a token", hint="Give the token that `crystal-relay v1 add --role core` printed."
            )
        return cls(raw, token)


def _root_refused() -> UsageError:
    return UsageError(
        "that is an offline code of Crystal, and no key of the prototype",
        hint="The offline code opens a whole vault. Give CRYSTAL_RELAY_KEY of the prototype's devices.",
    )


class _Blob(Struct, frozen=True):
    id: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,256}$")]


class _List(Struct, frozen=True):
    blobs: list[_Blob]


class _Conversation(Struct, frozen=True):
    messages: list[dict[str, Any]]
    agent_id: object = None


def _is_read(conversation: _Conversation) -> bool:
    """Whether a drop holds a text, and nothing but messages with one, empty ones among them."""
    texts = [as_text(each.get("text")) for each in conversation.messages]
    return None not in texts and any(text and text.strip() for text in texts)


@dataclass
class BridgeRound:
    """What one round did: drops taken in, messages new here, and drops that stay there, because they could not be opened
    (``sealed``) or not be read in full (``unread``)."""

    drops: int = 0
    messages: int = 0
    sealed: int = 0
    unread: int = 0


class Bridge:
    """The bridge of one open device."""

    def __init__(self, device: Device, url: str, credentials: Credentials) -> None:
        self._device, self._url, self._credentials = device, url, credentials

    @classmethod
    def of(cls, device: Device) -> "Bridge | None":
        """The one that was set up; None if none was. Raises KeyStoreError."""
        report, kept = read_bridge(device.journal), device.keys.bridge()
        if report is None or kept is None:
            return None
        return cls(device, report.url, from_json(kept, Credentials))

    def check(self) -> None:
        """Ask the relay once. Raises RelayTrouble, or UsageError if the key is a root of this device's vault."""
        admin = Root.from_bytes(self._credentials.key).admin.public.to_bytes()
        if any(record.admin == admin for record, _ in self._device.member.log.roots):
            raise _root_refused()
        with self._client() as http:
            self._listed(http)

    def run(self) -> BridgeRound:
        """Take in what waits. Raises RelayTrouble, PrivateNow and what recording raises; what was not recorded stays there.

        A drop that the relay does not give out keeps no other back: the error is raised at the end.
        """
        done = BridgeRound()
        refused: _OneRefused | None = None
        try:
            with self._client() as http:
                for name in self._listed(http):
                    try:
                        self._take_in(http, name, done)
                    except _OneRefused as error:
                        refused = error
            if refused is not None:
                raise refused
        except CrystalError as error:
            self._note(done, str(error))
            raise
        self._note(done, "")
        return done

    def _take_in(self, http: httpx.Client, name: str, done: BridgeRound) -> None:
        sealed = self._asked(http, "GET", f"/pickup/conversations/{name}")
        try:
            plain = open_v1(self._credentials.key, sealed)
        except CrystalError:
            done.sealed += 1
            return
        try:
            conversation = from_fields(parse_json(plain), _Conversation)
        except (ValueError, *UNDECODABLE):
            done.unread += 1
            return
        taking = RecordImporter(self._device, dry_run=False)
        taking.pieces(self._records(conversation))
        if not _is_read(conversation):
            done.messages += taking.taken.new
            done.unread += 1
            return
        self._asked(http, "DELETE", f"/confirm/conversations/{name}")
        done.drops += 1
        done.messages += taking.taken.new

    def _records(self, conversation: _Conversation) -> Iterator[PieceRecord]:
        claimed = as_text(conversation.agent_id) or ""
        agent = agent_id(claimed[:NAME_CHARS_MAX], self._device.settings.agent_id)
        for each in conversation.messages:
            record = message_record(each, agent)
            if record is not None:
                yield record

    def _note(self, done: BridgeRound, trouble: str) -> None:
        before = read_bridge(self._device.journal) or BridgeReport(self._url)
        write_bridge(
            self._device.journal,
            structs.replace(
                before,
                drops=before.drops + done.drops,
                messages=before.messages + done.messages,
                sealed=done.sealed if not trouble else before.sealed,
                unread=done.unread if not trouble else before.unread,
                at=now_ms(),
                trouble=trouble,
            ),
        )

    def _client(self) -> "closing[httpx.Client]":
        try:
            url = check_relay_url(self._url, allow_insecure=self._device.settings.allow_http)
            verify = tls_context(url)
        except BadRequest as error:
            raise RelayTrouble(
                str(error), hint=PLAIN_HTTP_HINT if self._url.startswith("http:") else error.hint
            ) from error
        headers = {"Authorization": f"Bearer {self._credentials.token}"}
        return closing(
            httpx.Client(
                base_url=url.partition("#")[0],
                headers=headers,
                timeout=_SECONDS,
                verify=True if verify is None else verify,
                trust_env=pin_of(url) is None and not is_loopback(httpx.URL(url).host),
            )
        )

    def _listed(self, http: httpx.Client) -> list[str]:
        try:
            found = from_json(self._asked(http, "GET", "/pickup/conversations", _LIST_BYTES_MAX), _List)
        except UNDECODABLE:
            raise RelayTrouble(f"{self._url} does not answer as the prototype's relay does") from None
        return [blob.id for blob in found.blobs]

    def _asked(
        self, http: httpx.Client, method: str, path: str, bytes_max: int = V1_PAYLOAD_BYTES_MAX
    ) -> bytes:
        body = bytearray()
        try:
            with http.stream(method, path) as reply:
                for piece in reply.iter_bytes():
                    body += piece
                    if len(body) > bytes_max:
                        raise _OneRefused(f"{self._url} sent more than {bytes_max} bytes")
                status = reply.status_code
        except httpx.HTTPError as error:
            if is_wrong_certificate(error):
                raise RelayTrouble(
                    f"{self._url.partition('#')[0]} has another certificate than the address names",
                    hint="If it was renewed, give the address again that the relay shows now: `crystal bridge add URL`.",
                ) from error
            raise RelayTrouble(f"{self._url} cannot be reached: {error}") from error
        if status in (401, 403):
            raise RelayTrouble(
                f"{self._url} refuses the token: it has to be one of a Core",
                hint="`crystal-relay v1 add --role core` makes one there; then `crystal bridge add` takes it.",
            )
        if status != 200:
            raise _OneRefused(f"{self._url} answers {status} to {method} {path.split('/')[1]}")
        return bytes(body)
