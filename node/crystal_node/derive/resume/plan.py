"""Resuming a session: what would be written and run on this machine, and doing it.

Nothing of a copy reaches a shell, and no path of it is used: the tool's own rules and this machine's folders make all paths
(``tools``, ``projects``). Written is in this order, so that a session is never half there: what lies beside the transcript, the
transcript, what names it to the tool.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid5

from crystal_node.derive.resume.files import Comparison, Lines, Relation, compare, write
from crystal_node.derive.resume.tools import CannotPlace, SessionName, ToolSessions
from crystal_node.derive.sessions.copies import SessionCopies
from crystal_node.derive.sessions.layout import MAIN, Head, side_path_fault
from crystal_node.derive.sessions.tools import side_root

FORKS_MAX = 100
_FORKS = UUID("6d0c3f0b-6a53-4b8e-9a39-5f1f5a2f64d4")


@dataclass(frozen=True, slots=True)
class FilePlan:
    """One file: where it goes, which stream of the copy it is, and how the own file stands to it."""

    path: Path
    stream: str
    compared: Comparison


@dataclass(frozen=True, slots=True)
class ResumePlan:
    """``session``: under which the tool knows it here; ``forked``: the id that this machine's own session keeps, "" if this is
    no fork. ``side``: files beside it. ``kept``: side files that differ here and are left alone."""

    tool: ToolSessions
    head: Head
    session: SessionName
    forked: str
    cwd: Path
    main: FilePlan
    side: tuple[FilePlan, ...]
    kept: tuple[Path, ...]

    @property
    def command(self) -> list[str]:
        return self.tool.command(self.session, self.cwd)

    @property
    def written(self) -> list[FilePlan]:
        """The files that are to be written."""
        return [each for each in (*self.side, self.main) if each.compared.new_bytes]

    @property
    def new_bytes(self) -> int:
        return sum(each.compared.new_bytes for each in self.written)


def plan_resume(copies: SessionCopies, head: Head, tool: ToolSessions, cwd: Path) -> ResumePlan:
    """What resuming a copy in a folder takes. Reads the copy whole, and writes nothing.

    Raises:
        CannotPlace: the tool would not find it.
        CopyIncomplete, CopyDamaged: the copy is not all here, or not what it should be.
        OSError: a file cannot be read.
    """
    session, forked = SessionName.of(head), ""
    there = _file(tool, session, cwd)
    compared = tool.compare(there, lines_of(copies, head, tool, session))
    if compared.relation is Relation.FORKED:
        forked = session.own
        session, there, compared = _fork(copies, head, tool, cwd)
    side, kept = _side_files(copies, head, tool, session, there)
    return ResumePlan(tool, head, session, forked, cwd, FilePlan(there, MAIN, compared), side, kept)


def carry_out(plan: ResumePlan, copies: SessionCopies, aside: Path) -> list[Path]:
    """Write what the plan says. Returns the files that were written. Idempotent.

    Raises SessionBusy, LocalStorage, CopyIncomplete, CopyDamaged.
    """
    done: list[Path] = []
    for each in plan.written:
        lines = lines_of(copies, plan.head, plan.tool, plan.session, each.stream)
        bring = plan.tool.write if each is plan.main else write
        bring(each.path, lines, each.compared, aside)
        done.append(each.path)
    return done + plan.tool.note(plan.session, plan.main.path, plan.cwd)


def lines_of(
    copies: SessionCopies, head: Head, tool: ToolSessions, session: SessionName, stream: str = MAIN
) -> Lines:
    """The lines of a copy's file as the session of this name has them."""
    own = SessionName.of(head).own

    def lines() -> Iterator[bytes]:
        for block in copies.read(head, stream):
            for line in _lines(block):
                yield line if session.own == own else tool.renamed(line, own, session.own)

    return lines


def _lines(block: bytes) -> Iterator[bytes]:
    *whole, last = block.split(b"\n")
    yield from (line + b"\n" for line in whole)
    if last:
        yield last


def _file(tool: ToolSessions, session: SessionName, cwd: Path) -> Path:
    """Where the session goes on: the file that the tool has of it in the wanted folder, whatever its name, or a new one."""
    target = tool.place(session, cwd)
    own = tool.find(session)
    return target if target in own else next((path for path in own if path.parent == target.parent), target)


def _fork(
    copies: SessionCopies, head: Head, tool: ToolSessions, cwd: Path
) -> tuple[SessionName, Path, Comparison]:
    """A new id for a copy that went another way than this machine's own file. The same copy gets the same id each time, as
    long as the fork itself has not gone another way."""
    name = SessionName.of(head)
    for number in range(FORKS_MAX):
        session = name.fork(str(uuid5(_FORKS, f"{head.tool}/{head.session}/{head.device}/{number}")))
        there = _file(tool, session, cwd)
        compared = tool.compare(there, lines_of(copies, head, tool, session))
        if compared.relation is not Relation.FORKED:
            return session, there, compared
    raise CannotPlace(f"{FORKS_MAX} forks of the session {head.session} are here already")


def _side_files(
    copies: SessionCopies, head: Head, tool: ToolSessions, session: SessionName, file: Path
) -> tuple[tuple[FilePlan, ...], tuple[Path, ...]]:
    folder = side_root(head.tool, file, session.own)
    plans: list[FilePlan] = []
    kept: list[Path] = []
    for stream in head.side if folder is not None else ():
        assert folder is not None, "there are none without a folder"
        if fault := side_path_fault(stream.path):
            raise CannotPlace(f"a file of the session cannot be written: {fault}")
        path = folder / stream.path
        _no_links(path, tool.root)
        compared = compare(path, lines_of(copies, head, tool, session, stream.path))
        if compared.relation is Relation.FORKED:
            kept.append(path)
        elif stream.whole and compared.relation is Relation.BEHIND:
            kept.append(path)  # the beginning of a file that is written as a whole is another file
        else:
            plans.append(FilePlan(path, stream.path, compared))
    return tuple(plans), tuple(kept)


def _no_links(path: Path, root: Path) -> None:
    for place in (path, *path.parents):
        if place == root:
            return
        if place.is_symlink():
            raise CannotPlace(
                f"{place} is a link", hint="Nothing is written through links: remove it, then try again."
            )
