"""The relay's server inside the test's own event loop, on a real loopback socket, and vaults on it."""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

from starlette.applications import Starlette

from crystal_crypto.hierarchy import Root
from crystal_relay.client.http import HttpStore, Timeouts
from crystal_relay.embedded.relay import enroll_token as enroll_token_of
from crystal_relay.embedded.transport import URL, EmbeddedTransport
from crystal_relay.server import RelaySettings, create_app
from crystal_relay.server.extension import Extension
from crystal_relay.server.serving import Server, listen
from crystal_relay.store import Store
from crystal_relay.tokens import new_token, recovery_hash, token_hash
from crystal_relay.wire import RootProof

ENROLL_TOKEN = "enrolment-token-of-the-tests"


def root_proof(root: Root, device: str, recovery: str, token: str, host: str) -> RootProof:
    """The proof, by a root that was never replaced, for the founding of its vault with these hashes at this host."""
    signature = root.sign_founding(
        vault=root.vault,
        device=bytes.fromhex(device),
        recovery_hash=bytes.fromhex(recovery),
        token_hash=bytes.fromhex(token),
        host=host,
    )
    return RootProof(root.admin.public.to_bytes().hex(), [], signature.hex())


@dataclass
class Member:
    """A device of a vault, with its token."""

    vault: str = ""
    device: str = field(default_factory=lambda: secrets.token_hex(16))
    token: str = ""
    recovery: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    root: Root = field(default_factory=Root.generate, repr=False)

    def __post_init__(self) -> None:
        self.vault = self.vault or self.root.vault.hex()
        self.token = self.token or new_token(self.device)

    @property
    def prefix(self) -> str:
        return f"v/{self.vault}/"

    @property
    def authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def proof(self, host: str) -> RootProof:
        """That it has its vault's root, for the relay at this host."""
        return root_proof(self.root, self.device, recovery_hash(self.recovery), token_hash(self.token), host)

    def store(self, url: str, *, timeouts: Timeouts | None = None) -> HttpStore:
        return HttpStore(url, vault=self.vault, token=self.token, timeouts=timeouts)

    def embedded_store(self, directory: Path) -> HttpStore:
        """At the relay in a directory, which this process may come to serve."""
        return HttpStore(URL, vault=self.vault, token=self.token, transport=EmbeddedTransport(directory))


@dataclass
class ServedRelay:
    """Where it is, and the server to stop."""

    url: str
    server: Server
    store: Store
    app: Starlette


@asynccontextmanager
async def served(
    store: Store,
    settings: RelaySettings | None = None,
    *,
    clock: Callable[[], float] = time.time,
    extensions: Sequence[Extension] = (),
    drain_seconds: float = 0.0,
) -> AsyncGenerator[ServedRelay]:
    """A server over `store`, which stays the caller's to close. `clock`: the relay's."""
    app = create_app(
        store, settings or RelaySettings(enroll_token=ENROLL_TOKEN), clock=clock, extensions=extensions
    )
    server = Server(app, listen("127.0.0.1", 0), drain_seconds=drain_seconds)
    ready = asyncio.Event()
    serving = asyncio.create_task(server.serve(ready=ready.set))
    await asyncio.wait(
        {serving, ready_task := asyncio.create_task(ready.wait())}, return_when="FIRST_COMPLETED"
    )
    assert ready_task.done(), "the server did not start"
    try:
        yield ServedRelay(server.url, server, store, app)
    finally:
        server.stop()
        await serving


@contextmanager
def threaded_relay(
    make_store: Callable[[], Store],
    settings: RelaySettings | None = None,
    *,
    extensions: Sequence[Extension] = (),
) -> Generator[str]:
    """The address of a server that runs in a thread of its own: for many tests in a row, each with its own vault."""
    started: Future[tuple[str, Server, asyncio.AbstractEventLoop]] = Future()

    async def main() -> None:
        store = make_store()
        try:
            app = create_app(
                store, settings or RelaySettings(enroll_token=ENROLL_TOKEN), extensions=extensions
            )
            server = Server(app, listen("127.0.0.1", 0))
            loop = asyncio.get_running_loop()
            await server.serve(ready=lambda: started.set_result((server.url, server, loop)))
        finally:
            await store.aclose()

    thread = Thread(target=lambda: asyncio.run(main()), name="relay")
    thread.start()
    url, server, loop = started.result(timeout=20)
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(server.stop)
        thread.join(timeout=30)
        assert not thread.is_alive(), "the server does not stop"


async def enrolled(url: str, *, enroll_token: str = ENROLL_TOKEN) -> Member:
    """A new vault whose first device (preset `lead`) is the one returned."""
    member = Member()
    return await _enrolled(member, member.store(url), enroll_token)


async def embedded_member(directory: Path) -> Member:
    """As `enrolled`, at the relay in a directory."""
    member = Member()
    return await _enrolled(member, member.embedded_store(directory), enroll_token_of(directory))


async def _enrolled(member: Member, client: HttpStore, enroll_token: str) -> Member:
    try:
        await client.create_vault(
            enroll_token=enroll_token,
            recovery_hash=recovery_hash(member.recovery),
            device=member.device,
            token_hash=token_hash(member.token),
            proof=member.proof(client.host),
        )
    finally:
        await client.aclose()
    return member


async def joined(url: str, owner: Member, *, preset: str = "device") -> Member:
    """Another device of the vault of `owner`."""
    member = Member(vault=owner.vault, recovery=owner.recovery)
    client = owner.store(url)
    try:
        await client.register_token(
            device=member.device, token_hash=token_hash(member.token), preset=preset, recovery=owner.recovery
        )
    finally:
        await client.aclose()
    return member
