"""What the demo captures and searches for: the bundled sample conversation, or this machine's newest ones."""

from dataclasses import dataclass
from heapq import nlargest
from importlib.resources import files
from pathlib import Path

from crystal_node.base.errors import NoSuchEntry
from crystal_node.base.settings import Settings
from crystal_node.base.wording import counted
from crystal_node.capture.claude_code import ClaudeCode

MINE_BYTES_MAX = 1024 * 1024
"""Own transcripts that are captured at most, the newest first: the demo is to end while somebody watches."""
MINE_FILES_MAX = 50
PHRASES_MAX = 20
_WORDS_OF_QUERY = 8
_PHRASE_CHARS_MIN = 24


@dataclass(frozen=True, slots=True)
class DemoSource:
    """Transcripts, and a query whose answer they contain.

    ``expected`` is part of what ``query`` must find, question or answer; ``phrases`` must not be found at the relay;
    ``afterwards`` is remembered after a device was revoked.
    """

    what: str
    paths: tuple[Path, ...]
    query: str
    expected: str
    phrases: tuple[str, ...]
    afterwards: str = "The spare tide gauge is in the boat shed, behind the yellow oilskins."

    @property
    def bytes(self) -> int:
        return sum(path.stat().st_size for path in self.paths)


def sample() -> DemoSource:
    """The bundled conversation."""
    path = Path(str(files("crystal_node.surfaces.demo").joinpath("samples", "tidewatch.jsonl")))
    return DemoSource(
        what="a made-up conversation about a tide gauge",
        paths=(path,),
        query="what did we decide about the retry budget",
        expected="nine tries",
        phrases=("barometric", "Port Ellery", "old pier", "pelican", "tw_live", "tidewatch"),
    )


def mine(settings: Settings) -> DemoSource:
    """This machine's newest transcripts, which are only read.

    Raises:
        NoSuchEntry: there are none, or they contain no messages.
    """
    adapter = ClaudeCode(settings.claude_folder, settings.person_home)
    found = [
        path for path in (item.path for item in adapter.discover() if item.problem is None) if path.is_file()
    ]
    newest = nlargest(MINE_FILES_MAX, found, key=lambda path: path.stat().st_mtime)
    chosen: list[Path] = []
    left = MINE_BYTES_MAX
    for path in newest:
        size = path.stat().st_size
        if size <= left:
            chosen.append(path)
            left -= size
    if not chosen:
        raise NoSuchEntry(
            f"there are no conversations in {adapter.folder} that fit a demo",
            hint="Run `crystal demo` without --mine: it brings its own.",
        )
    texts = [
        piece.text
        for path in chosen
        for operation in adapter.read(path, None, agent=settings.agent_id, hides=lambda _: False).operations
        for piece in operation.pieces
        if piece.role in ("user", "assistant")
    ]
    spoken = sorted((text for text in texts if len(text.split()) >= _WORDS_OF_QUERY), key=len)
    if not spoken:
        raise NoSuchEntry(
            "nothing was said in this machine's newest conversations",
            hint="Run `crystal demo` without --mine: it brings its own.",
        )
    asked = spoken[len(spoken) // 2]
    return DemoSource(
        what=f"this machine's newest {counted(len(chosen), 'conversation')} (of {len(found):,})",
        paths=tuple(chosen),
        query=" ".join(asked.split()[:_WORDS_OF_QUERY]),
        expected=asked,
        phrases=tuple(text[:200] for text in spoken if len(text) >= _PHRASE_CHARS_MIN)[-PHRASES_MAX:],
    )
