"""What is written in a simulated world, and where it must not be seen again."""

from hashlib import sha256
from random import Random

from crystal_crypto.hierarchy import VaultSecret
from crystal_mirror.operations import Capture, Forget, Operation, Piece, Remember
from tests.sim.embedding import embed
from tests.sim.filing import LINES, PATHS
from tests.sim.secrecy import PLANTED_BYTES_MIN, Secrecy

TEXTS = (
    "tea, no sugar",
    "the spare key is under the third stone",
    "ship on Friday",
    "a text that is long enough to need two windows of the embedder",
    "Böhm's number: +49 30 1234",
    "forget me",
)
SOURCE = "claude-code"


def plant_writings(secrecy: Secrecy) -> None:
    """Every text, vector and file name that a world may hold."""
    for text in TEXTS:
        secrecy.plant("a text", text.encode())
        for vector in embed(text):
            secrecy.plant("a vector", vector)
    for text in (SOURCE, *PATHS, *LINES):
        if len(text) >= PLANTED_BYTES_MIN:
            secrecy.plant("a name, or a file's text", text.encode())


class Writer:
    """Makes operations."""

    def __init__(self, secret: VaultSecret) -> None:
        self._secret = secret
        self._serial = 0

    def new_operation(self, draw: Random) -> Operation:
        """One of few texts, so that they meet again; made unique by a serial number; with a clock that is off by years."""
        self._serial += 1
        clock = draw.choice((0, 1, 10**12, 2 * 10**12, 2**50)) + self._serial
        match draw.randrange(6):
            case 0:
                return Remember(draw.choice(TEXTS), draw.choice(("fact", "event")), f"a{self._serial}", clock)
            case 1:
                return self.forget(draw.choice(TEXTS))
            case _:
                pieces = tuple(
                    Piece(draw.choice(TEXTS), "user", clock, f"m{draw.randrange(4)}", part)
                    for part in range(draw.randint(1, 3))
                )
                return Capture("agent", draw.choice(("s1", "s2")), f"p{self._serial}", "", SOURCE, pieces)

    def forget(self, text: str) -> Forget:
        """A second target that no text has makes every forget different from all others."""
        self._serial += 1
        nothing = sha256(f"nothing {self._serial}".encode()).digest()
        return Forget((self._secret.forget_hash(sha256(text.encode()).digest()), nothing))
