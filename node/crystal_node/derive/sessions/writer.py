"""Copying a transcript of this device into the memory home, as it grows.

::

    lines of the tool's file, at most 4 MiB -> which texts of them were forgotten? (the memory says)
    -> blanked in place -> segment -> head -> cursor

Each step is durable before the next, so that a copy that was stopped anywhere goes on: a segment that no head names is not
used, and if a head is ahead of the cursor, the file is read from its beginning. Such a file is first compared with the
copies that are here. It goes on where they agree: in this device's own stream if that ends there, else in a new one that stands
on the other.
"""

import os
import time
from collections.abc import Callable, Collection
from pathlib import Path

from msgspec import structs

from crystal_node.base.clock import now_ms
from crystal_node.capture.exclusions import Exclusions
from crystal_node.capture.folders import files_below
from crystal_node.capture.line_adapter import LineAdapter
from crystal_node.capture.line_reader import (
    FileState,
    open_regular,
    unchanged,
)
from crystal_node.derive.sessions.copies import CopyDamaged, SessionCopies, read_segment
from crystal_node.derive.sessions.database import Cursor, SessionDatabase
from crystal_node.derive.sessions.facts import (
    TITLE_CHARS_MAX,
    WORDS_CHARS_MAX,
    git_place,
    short,
)
from crystal_node.derive.sessions.heads import note_head
from crystal_node.derive.sessions.layout import (
    SIDE_FILES_MAX,
    Base,
    CopyPlace,
    Head,
    Stream,
    segment_path,
    side_path_fault,
)
from crystal_node.derive.sessions.line_redaction import LineRedactor, blank
from crystal_node.derive.sessions.lines import LinesPass, blanked, read_lines, state_at
from crystal_node.derive.sessions.segments import (
    growing_run,
    put_segment,
    replaced,
    settled_runs,
    tidy,
    write_head,
    write_segment,
)
from crystal_node.derive.sessions.streams import LineDigest, best_base, digest_of, ends
from crystal_node.derive.sessions.tools import side_root
from crystal_node.device.privacy import Privacy
from crystal_node.device.redaction_version import RULES_VERSION

SUPERSEDED_SECONDS = 600.0
"""Segments that a head names no more are removed after this time: other devices may not have the new head yet."""
SIDE_BYTES_MAX = 32 * 1024 * 1024
"""A larger file beside a transcript that is no file of lines is not copied."""
LIVE_MS = 2 * 60 * 1000
"""A session that grew within this time has seen what is checked out now."""
NAMES_ITS_FOLDER = frozenset({"claude-code", "codex", "qwen-code"})
"""Tools whose sessions name their folder within the first lines. Nothing is copied before: the project may be excluded."""

HidesTexts = Callable[[Collection[bytes]], set[bytes]]
"""Of SHA-256 hashes of texts those that were forgotten."""


class SessionWriter:
    """Copies transcripts of one tool. Synchronous: it is run in a thread, one call at a time."""

    def __init__(
        self,
        root: Path,
        device: str,
        database: SessionDatabase,
        adapter: LineAdapter,
        *,
        person_home: Path,
        exact: Callable[[str, str], bool] = lambda _cwd, _repository: False,
        stopped: Callable[[], bool] = lambda: False,
        uncommitted: Callable[[str], tuple[str, ...] | None] = lambda _cwd: None,
    ) -> None:
        """``root``: the memory home; ``device``: this device's id in hex; ``exact``: whether a project's sessions are copied
        without redaction, by folder and repository; ``stopped``: whether to stop before the next lines; ``uncommitted``: files
        of a working folder with uncommitted changes, None if they are not known."""
        self._root = root
        self._device = device
        self._database = database
        self._adapter = adapter
        self._person_home = person_home
        self._exact = exact
        self._stopped = stopped
        self._uncommitted = uncommitted
        self._copies = SessionCopies(root)

    def copy(
        self,
        path: Path,
        session: str,
        privacy: Privacy,
        hides: HidesTexts,
        *,
        quiet_ns: int = -1,
        native: Path | None = None,
    ) -> int:
        """Copies all that is new in a transcript. Returns how many bytes its copy grew by. ``native``: where the tool has it,
        if ``path`` is made from that.

        Raises:
            OSError: the transcript cannot be read, or the home not be written. CopyDamaged.
        """
        grown = 0
        while not self._stopped():
            found = self._read_pass(path, session, privacy, hides, quiet_ns)
            if found is None:
                break
            grown += self._write_pass(
                path, found, hides(found.hashes) if found.hashes else set(), native or path
            )
            if not found.more:
                break
        return grown if self._stopped() else grown + self._copy_side(path, privacy, hides)

    def unchanged(self, path: Path, quiet_ns: int = -1) -> bool:
        """Whether there is nothing to copy, told by the times of the files alone. Raises OSError."""
        cursor = self._database.cursor(path)
        if cursor is None or not self._adapter.unchanged(path, cursor.state, quiet_ns):
            return False
        root = side_root(self._adapter.name, path, cursor.tool_session or cursor.session)
        if root is None or not root.is_dir():
            return True
        return all(
            file.problem is not None
            or side_path_fault(name := file.path.relative_to(root).as_posix()) is not None
            or ((state := cursor.side.get(name)) is not None and unchanged(file.path, state))
            for file in files_below(root, lambda _: True)
        )

    def _read_pass(
        self, path: Path, session: str, privacy: Privacy, hides: HidesTexts, quiet_ns: int
    ) -> LinesPass | None:
        """The next lines; None if there is nothing to copy now. Raises OSError."""
        if privacy.on:
            return None
        cursor = self._current(path, session)
        exclusions = self._adapter.exclusions()
        found = self._lines(path, cursor, privacy, exclusions, quiet_ns)
        if found.restarted or (cursor.number == 0 and not cursor.state.offset):
            cursor = self._begin(path, session, privacy, exclusions, hides, quiet_ns)
            found = self._lines(path, cursor, privacy, exclusions, quiet_ns)
        if not found.lines:
            if found.state.size != cursor.state.size:
                self._database.set_cursor(path, structs.replace(cursor, state=found.state))
            return None
        if (
            not found.cwd
            and self._adapter.name in NAMES_ITS_FOLDER
            and not found.more
            and found.state.modified > quiet_ns
        ):
            return None
        if found.cwd and exclusions.hides(found.cwd, found.repository, now_ms()):
            return None
        return found

    def _write_pass(self, path: Path, found: LinesPass, forgotten: set[bytes], native: Path) -> int:
        """Writes what was read, without what is in ``forgotten``. Returns by how many bytes the copy grew. Raises OSError."""
        cursor = found.cursor
        exact = self._exact(found.cwd, found.repository)
        lines = blanked(found, forgotten, LineRedactor(exact=exact))
        place = CopyPlace(self._adapter.name, cursor.session, self._device, cursor.number)
        head = self._copies.head(place) if cursor.number else None
        stream = (
            head.main
            if head is not None
            else Stream(bytes=cursor.length, digest=cursor.digest, base=cursor.base)
        )
        lines, stream, place = self._or_continued(lines, stream, place)
        data = b"".join(lines)
        folder = place.folder(self._root)
        if data:
            stream = write_segment(folder, stream, data)
            stream = self._merge_growing(place, stream)
            old = head if head is not None and head.place == place else None
            head = self._head(native, place, stream, found, old, len(lines), exact, forgotten)
            self._put_head(head)
        after = Cursor(
            session=cursor.session,
            tool_session=cursor.tool_session,
            number=place.number,
            state=structs.replace(found.state, size=-1, modified=-1) if found.more else found.state,
            length=stream.bytes,
            digest=stream.digest,
            base=None if data else stream.base,
            context=found.context,
            moment=found.moment,
            cwd=found.cwd,
            repository=found.repository,
            ended=found.ended,
            side=cursor.side if place.number == cursor.number else {},
        )
        self._database.set_cursor(path, after)
        return len(data)

    def _copy_side(self, path: Path, privacy: Privacy, hides: HidesTexts) -> int:
        """Copies what is new in the files beside a transcript. Returns how many bytes the copy grew by."""
        cursor = self._database.cursor(path)
        if cursor is None or not cursor.number or privacy.on:
            return 0
        root = side_root(self._adapter.name, path, cursor.tool_session or cursor.session)
        head = self._copies.head(CopyPlace(self._adapter.name, cursor.session, self._device, cursor.number))
        if root is None or head is None or head.removed or not root.is_dir():
            return 0
        exclusions = self._adapter.exclusions()
        if exclusions.hides(cursor.cwd, cursor.repository, now_ms()):
            return 0
        states, streams, grown = dict(cursor.side), {stream.path: stream for stream in head.side}, 0
        redactor = LineRedactor(exact=self._exact(cursor.cwd, cursor.repository))
        for file in files_below(root, lambda _: True):
            name = file.path.relative_to(root).as_posix()
            if file.problem is not None or side_path_fault(name) or len(streams) >= SIDE_FILES_MAX:
                continue
            before = states.get(name)
            if before is not None and unchanged(file.path, before):
                continue
            stream, state = streams.get(name, Stream(path=name)), before or FileState()
            if name.endswith(".jsonl"):
                # Without a state it is not known how much of the file the copy holds: it is read from its beginning.
                begun = Stream(path=name) if before is None else stream
                made, states[name] = self._side_lines(
                    file.path, begun, state, cursor, privacy, hides, redactor, head
                )
            else:
                made, states[name] = self._side_whole(file.path, stream, privacy, redactor, head)
            grown += made.bytes - stream.bytes if made.bytes >= stream.bytes else made.bytes
            if made.segments:
                streams[name] = made
        after = tuple(streams[name] for name in sorted(streams))
        if after != head.side:
            # Killed behind the head, the next call takes no line twice: what it changed has no state then.
            same = {stream.path for stream in head.side if streams[stream.path] == stream}
            kept = {name: state for name, state in cursor.side.items() if name in same}
            self._database.set_cursor(path, structs.replace(cursor, side=kept, settled=False))
            self._put_head(structs.replace(head, side=after))
        if states != cursor.side:
            self._database.set_cursor(path, structs.replace(cursor, side=states, settled=False))
        return grown

    def _side_lines(
        self, path: Path, stream: Stream, state: FileState, cursor: Cursor, privacy: Privacy, hides: HidesTexts,
        redactor: LineRedactor, head: Head,
    ) -> tuple[Stream, FileState]:  # fmt: skip
        exclusions = self._adapter.exclusions()
        place = Cursor(session=cursor.session, state=state, cwd=cursor.cwd, repository=cursor.repository)
        while True:
            found = self._lines(path, place, privacy, exclusions, -1)
            if found.restarted:
                stream = Stream(path=stream.path)
            forgotten = hides(found.hashes) if found.hashes else set[bytes]()
            data = b"".join(blanked(found, forgotten, redactor))
            if data:
                stream = write_segment(head.place.folder(self._root), stream, data)
            place = _after(place, found)
            if not found.more:
                return self._merge_growing(head.place, stream), found.state

    def _side_whole(
        self, path: Path, stream: Stream, privacy: Privacy, redactor: LineRedactor, head: Head
    ) -> tuple[Stream, FileState]:
        with open_regular(path) as file:
            info = os.fstat(file.fileno())
            data = file.read(SIDE_BYTES_MAX + 1) if info.st_size <= SIDE_BYTES_MAX else b""
        state = FileState(
            size=info.st_size, modified=info.st_mtime_ns, changed=info.st_ctime_ns, inode=info.st_ino
        )
        done = redactor.whole(data, hidden=privacy.hides(info.st_mtime_ns // 1_000_000))
        if not done or digest_of(done) == stream.digest:
            return stream, state
        fresh = Stream(path=stream.path, whole=True)
        return write_segment(head.place.folder(self._root), fresh, done), state

    def settle(self, path: Path) -> bool:
        """Merges the segments of a quiet session, and removes those that are not used any more. Returns whether anything
        changed. Raises OSError."""
        cursor = self._database.cursor(path)
        if cursor is None or not cursor.number or cursor.settled:
            return False
        head = self._copies.head(CopyPlace(self._adapter.name, cursor.session, self._device, cursor.number))
        if head is None or head.removed:
            return False
        folder = head.place.folder(self._root)
        streams = [self._settled(folder, stream) for stream in head.streams]
        changed = streams != list(head.streams)
        if changed:
            head = structs.replace(head, main=streams[0], side=tuple(streams[1:]))
            self._put_head(head)
        gone = tidy(folder, head, older_than=time.time() - SUPERSEDED_SECONDS)
        if not changed and not gone:
            self._database.set_cursor(path, structs.replace(cursor, settled=True))
        return changed or bool(gone)

    def _settled(self, folder: Path, stream: Stream) -> Stream:
        if stream.whole:
            return stream
        for start, end in reversed(settled_runs(stream.segments)):
            data = b"".join(self._read(folder, stream, number) for number in range(start, end))
            last = stream.segments[end - 1]
            merged = put_segment(
                folder, stream.path, stream.segments[start].first, data, last.digest, settled=True
            )
            stream = replaced(stream, start, end, merged)
        return stream

    def _merge_growing(self, place: CopyPlace, stream: Stream) -> Stream:
        run = growing_run(stream.segments)
        if not run:
            return stream
        folder, start, end = place.folder(self._root), len(stream.segments) - run, len(stream.segments)
        data = b"".join(self._read(folder, stream, number) for number in range(start, end))
        merged = put_segment(folder, stream.path, stream.segments[start].first, data, stream.digest)
        return replaced(stream, start, end, merged)

    def _read(self, folder: Path, stream: Stream, number: int) -> bytes:
        segment = stream.segments[number]
        path = segment_path(folder, stream, segment)
        try:
            return read_segment(path, segment)
        except (FileNotFoundError, ValueError) as error:
            raise CopyDamaged(f"{path} cannot be read: {error}") from error

    def _current(self, path: Path, session: str) -> Cursor:
        """The cursor, with the sum of this device's copy where a forget changed that; or one at the beginning, for a file that
        is to be compared with its copies."""
        cursor = self._database.cursor(path)
        if cursor is None:
            return Cursor(session=session)
        if not cursor.number:
            return cursor
        head = self._copies.head(CopyPlace(self._adapter.name, cursor.session, self._device, cursor.number))
        if head is None:
            return (
                cursor
                if cursor.base is not None and cursor.length == cursor.base.bytes
                else Cursor(session=session)
            )
        if head.removed:
            # Its content was removed by the retention rules. What comes begins another stream, once there is something.
            same = self._adapter.unchanged(path, cursor.state)
            return cursor if same else Cursor(session=session)
        if (head.main.bytes, head.main.digest) == (cursor.length, cursor.digest):
            return cursor
        if head.main.bytes != cursor.length:
            # A copy was stopped before its cursor was written, and the file may be another one by now.
            return Cursor(session=session)
        return structs.replace(cursor, digest=head.main.digest, base=None)

    def _begin(
        self,
        path: Path,
        session: str,
        privacy: Privacy,
        exclusions: Exclusions,
        hides: HidesTexts,
        quiet_ns: int,
    ) -> Cursor:
        """The cursor of a file that is read from its beginning, after comparing it with the copies of its session."""
        heads = self._copies.of(self._adapter.name, session)
        own = [head for head in heads if head.device == self._device]
        number = max((head.number for head in own), default=0) + 1
        fresh = Cursor(session=session, number=number)
        wanted = {count for head in heads if not head.removed for count, _ in ends(head.main)}
        if not wanted:
            return fresh
        clean, raw = _Places(wanted), _Places(wanted)
        cursor = structs.replace(fresh, number=0)
        last = max(wanted)
        while clean.digest.bytes < last or raw.digest.bytes < last:
            found = self._lines(path, cursor, privacy, exclusions, quiet_ns)
            redactor = LineRedactor(exact=self._exact(found.cwd, found.repository))
            for line, done in zip(found.lines, blanked(found, hides(found.hashes), redactor), strict=True):
                clean.take(done, line.end)
                raw.take((line.data or b"") + b"\n", line.end)
            cursor = _after(cursor, found)
            if not found.more:
                break
        choices = [
            (best, places)
            for places in (clean, raw)
            if (best := best_base(places.at, heads, last)) is not None
        ]
        if not choices:
            return fresh
        (head, base), places = max(choices, key=_agreed)
        ours = [
            one.number
            for one in own
            if (one.main.bytes, one.main.digest) == (base.bytes, base.digest) and not one.removed
        ]
        offset = places.offsets[base.bytes]
        fresh = structs.replace(
            fresh,
            state=state_at(path, offset),
            length=base.bytes,
            digest=base.digest,
            tool_session=head.tool_session,
            ended=cursor.ended and offset == cursor.state.offset,
        )
        if number - 1 in ours:
            return structs.replace(fresh, number=number - 1)
        return structs.replace(fresh, base=base)

    def _or_continued(
        self, lines: list[bytes], stream: Stream, place: CopyPlace
    ) -> tuple[list[bytes], Stream, CopyPlace]:
        """If these lines bring what another device's copy holds already: what follows it, in a stream that stands on it."""
        heads = [
            head
            for head in self._copies.of(self._adapter.name, place.session)
            if head.device != self._device and not head.removed and head.main.bytes > stream.bytes
        ]
        wanted = {count for head in heads for count, _ in ends(head.main) if count > stream.bytes}
        if not wanted:
            return lines, stream, place
        digest = LineDigest(stream.digest, stream.bytes)
        found: dict[int, str] = {}
        after: dict[int, int] = {}
        for number, line in enumerate(lines):
            digest.line(line)
            if digest.bytes in wanted:
                found[digest.bytes] = digest.hex
                after[digest.bytes] = number + 1
        best = best_base(found.get, heads, digest.bytes)
        if best is None or best[1].bytes not in found:
            return lines, stream, place
        base = best[1]
        number = place.number if not stream.segments else self._next_number(place.session)
        fresh = Stream(bytes=base.bytes, digest=base.digest, base=base)
        return lines[after[base.bytes] :], fresh, place._replace(number=number)

    def _next_number(self, session: str) -> int:
        heads = self._copies.of(self._adapter.name, session)
        return max((head.number for head in heads if head.device == self._device), default=0) + 1

    def _put_head(self, head: Head) -> None:
        write_head(self._root, head)
        note_head(self._root, self._database, head.place)

    def _lines(
        self, path: Path, cursor: Cursor, privacy: Privacy, exclusions: Exclusions, quiet_ns: int
    ) -> LinesPass:
        return read_lines(self._adapter, self._person_home, path, cursor, privacy, exclusions, quiet_ns)

    def _head(
        self, path: Path, place: CopyPlace, stream: Stream, found: LinesPass, old: Head | None, lines: int,
        exact: bool, forgotten: set[bytes],
    ) -> Head:  # fmt: skip
        """The head after this pass."""
        if old is None and stream.base is not None:
            base = self._copies.head(
                CopyPlace(place.tool, place.session, stream.base.device, stream.base.number)
            )
            old = (
                None
                if base is None
                else structs.replace(base, main=Stream(), side=(), rules=(), forgotten=0, left_out=0)
            )
        old = old or Head(tool=place.tool, session=place.session, device=place.device, number=place.number)
        # What is checked out now says nothing of a session that was held long ago.
        live = found.state.modified > (now_ms() - LIVE_MS) * 1_000_000
        branch, commit = git_place(found.cwd) if live else ("", "")
        changed = self._uncommitted(found.cwd) if live else None
        # What another machine had checked out is in that machine's head.
        own = old.device == place.device
        lost = {text for texts in found.texts for mark, text in texts.items() if mark in forgotten}
        said = [(role, blank(text.encode(), lost).decode("utf-8", "replace")) for role, text in found.said]
        first = next((text for role, text in said if role == "user"), "")
        rules = old.rules
        if not exact and (not rules or rules[-1][1] != RULES_VERSION):
            first_byte = stream.segments[-1].first if stream.segments else 0
            rules = (*rules, (max(first_byte, rules[-1][0] + 1 if rules else 0), RULES_VERSION))
        redactor = LineRedactor()
        return structs.replace(
            old,
            changed=(old.changed if own else None) if changed is None else tuple(map(redactor.text, changed)),
            device=place.device,
            number=place.number,
            tool_session=_last(found, "session") or old.tool_session or place.session,
            native=_home_relative(path, self._person_home),
            cwd=_home_relative(Path(found.cwd), self._person_home) if found.cwd else old.cwd,
            repository=found.repository or old.repository,
            branch=branch or _last(found, "branch") or (old.branch if own else ""),
            commit=commit or _last(found, "commit") or (old.commit if own else ""),
            tool_version=_last(found, "tool_version") or old.tool_version,
            model=_last(found, "model") or old.model,
            title=redactor.text(short(_last(found, "title"), TITLE_CHARS_MAX))
            or old.title
            or short(first, TITLE_CHARS_MAX),
            last_words=short(said[-1][1], WORDS_CHARS_MAX) if said else old.last_words,
            lines=old.lines + lines,
            started_at=old.started_at or found.moment,
            updated_at=max(found.state.modified // 1_000_000, old.updated_at),
            exact=old.exact or exact,
            rules=rules,
            left_out=old.left_out + found.left_out,
            main=stream,
        )


class _Places:
    """Digests of a stream at the places that are asked for, and where these are in the tool's file."""

    def __init__(self, wanted: set[int]) -> None:
        self._wanted = wanted
        self.digest = LineDigest()
        self.digests: dict[int, str] = {}
        self.offsets: dict[int, int] = {}

    def take(self, line: bytes, offset: int) -> None:
        self.digest.line(line)
        if self.digest.bytes in self._wanted:
            self.digests[self.digest.bytes] = self.digest.hex
            self.offsets[self.digest.bytes] = offset

    def at(self, count: int) -> str | None:
        return self.digests.get(count)


def _after(cursor: Cursor, found: LinesPass) -> Cursor:
    return structs.replace(
        cursor,
        state=found.state,
        context=found.context,
        moment=found.moment,
        cwd=found.cwd,
        repository=found.repository,
        ended=found.ended,
    )


def _agreed(choice: "tuple[tuple[Head, Base], _Places]") -> int:
    return choice[0][1].bytes


def _last(found: LinesPass, name: str) -> str:
    return next((value for each in reversed(found.facts) if (value := getattr(each, name))), "")


def _home_relative(path: Path, home: Path) -> str:
    for base in (home, home.resolve()):
        if path.is_relative_to(base):
            return (Path("~") / path.relative_to(base)).as_posix()
    return path.as_posix().encode("utf-8", "replace").decode()
