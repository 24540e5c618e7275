"""The sessions of all machines, as a person or a program asks for them: listed, found by an id, and read."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import apsw

from crystal_core.database import Database
from crystal_crypto.errors import CrystalError
from crystal_node.base.errors import NoSuchEntry, NotSetUp, UsageError
from crystal_node.base.settings import Settings
from crystal_node.base.wording import one_line
from crystal_node.derive.resume.forgetting import follow_forgets, torn
from crystal_node.derive.resume.index import IndexFile
from crystal_node.derive.resume.plan import lines_of
from crystal_node.derive.resume.projects import ProjectFolders
from crystal_node.derive.resume.rows import SessionIndex, SessionRow
from crystal_node.derive.resume.tools import SessionName, tool_sessions
from crystal_node.derive.sessions.layout import CopyPlace, Head
from crystal_node.search.devices import DeviceNames
from crystal_node.search.finding.deep_outcome import forget_mark
from crystal_node.sync.files.marker import read_marker

if TYPE_CHECKING:
    from crystal_node.derive.resume.handoff import Handoff

ID_CHARS_MIN = 4
_IDS_NAMED = 8
_NAME_CHARS = 60


class Sessions:
    """The sessions of a home, and what is known here to resume them."""

    def __init__(self, settings: Settings) -> None:
        """Raises NotSetUp."""
        if settings.vault is None:
            raise NotSetUp(f"{settings.home.root} belongs to no vault yet")
        self.settings = settings
        self.tools = tool_sessions(settings)
        self.index_file = IndexFile(settings.home.root)
        marker = read_marker(settings.home.root)
        self.device = marker.device if marker is not None else ""
        self.index = self.index_file.read()
        self.aside = torn(settings.home)
        self._own_in: dict[str, list[Head]] = {}
        self.projects = ProjectFolders(settings.home.state / "resume" / "projects.json", settings.person_home)

    def refresh(self, tell: Callable[[SessionIndex], None] = lambda _: None) -> None:
        """Look at all copies again."""
        names = self._from_memory() or self.index.names
        self.index = self.index_file.refreshed(self.index, self.device, names, tell)

    def _from_memory(self) -> dict[str, str]:
        """The vault's devices by id; nothing where the memory cannot be read. What was forgotten is let go of first."""
        try:
            with Database.open(self.settings.home.database) as database:
                if follow_forgets(self.settings.home, forget_mark(database)):
                    self.index = SessionIndex()
                return DeviceNames(database).all()
        except (apsw.Error, CrystalError):
            return {}

    def named(self, given: str) -> SessionRow:
        """The session that an id means. Raises UsageError, NoSuchEntry."""
        wanted = given.strip()
        if len(wanted) < ID_CHARS_MIN:
            raise UsageError(
                f"`{one_line(wanted, 40)}` is too short for a session's id",
                hint=f"Give at least {ID_CHARS_MIN} characters of it; `crystal resume` alone lists sessions.",
            )
        self.refresh()
        rows = self.index.rows()
        found = [row for row in rows if row.session == wanted] or [
            row for row in rows if row.session.startswith(wanted)
        ]
        if not found:
            names = self._conversations(wanted)
            found = [row for row in rows if row.session in names]
            if names and not found:
                raise NoSuchEntry(
                    f"the memory has the conversation {one_line(wanted, 40)}, but no copy of its session is here to go on from",
                    hint="`crystal sessions show ID` has what was said. A copy comes with the next `crystal sync`, if the "
                    "background service of the machine that has it copies sessions of that tool.",
                )
        if not found:
            raise NoSuchEntry(
                f"no session's id begins with {one_line(wanted, 40)}",
                hint="`crystal resume` lists sessions. One that was just held elsewhere comes with the next `crystal sync`.",
            )
        if len({(row.tool, row.session) for row in found}) > 1:
            ids = ", ".join(one_line(row.session, _NAME_CHARS) for row in found[:_IDS_NAMED])
            raise UsageError(
                f"several sessions' ids begin with {one_line(wanted, 40)}", hint=f"Name one of these: {ids}."
            )
        return found[0]

    def latest(self, wanted: "Wanted") -> SessionRow:
        """The one that something was last said in. Raises NoSuchEntry."""
        self.refresh()
        found = next((row for row in self.index.rows() if wanted.takes(row)), None)
        if found is None:
            raise self.none()
        return found

    def none(self) -> NoSuchEntry:
        """The error if there is no session of the wanted kind."""
        if self.index.sessions:
            return NoSuchEntry("there is no such session", hint="`crystal resume` lists all of them.")
        return NoSuchEntry(
            "there is no session yet",
            hint="The background service copies sessions while they are held (`crystal status` tells of it); those of other "
            "machines come with `crystal sync`.",
        )

    def head(self, row: SessionRow) -> Head:
        """Raises NoSuchEntry: it is gone since the list was made."""
        found = self.index_file.copies.head(CopyPlace(row.tool, row.session, row.device, row.number))
        if found is None:
            raise NoSuchEntry(
                "this session's copy is gone", hint="`crystal sessions list` shows what is left of it."
            )
        return found

    def own(self, head: Head) -> list[Head]:
        """This machine's own copies of a session, whoever has most of it, and one for each folder in which it had the same
        repository, that which grew last first."""
        mine = self._own_of(head.tool, head.session)
        if head.repository and head.repository not in self._own_in:
            rows = [row for row in self.index.rows() if row.project == head.repository]
            sessions = dict.fromkeys((row.tool, row.session) for row in rows)
            heads = [each for session in sessions for each in self._own_of(*session)]
            self._own_in[head.repository] = list({each.cwd: each for each in reversed(heads)}.values())[::-1]
        return mine + self._own_in.get(head.repository, [])

    def _own_of(self, tool: str, session: str) -> list[Head]:
        return [each for each in self.index_file.copies.of(tool, session) if each.device == self.device]

    def handoff(self, head: Head) -> "Handoff":
        """What another tool is told of a session. Raises CopyIncomplete, CopyDamaged."""
        from crystal_node.capture.line_adapter import LineAdapter
        from crystal_node.capture.tools import all_adapters
        from crystal_node.derive.resume.handoff import handoff_of

        adapter = next(
            each for each in all_adapters(self.settings, self.settings.person_home) if each.name == head.tool
        )
        assert isinstance(adapter, LineAdapter), "only tools that write lines have copies"
        lines = lines_of(self.index_file.copies, head, self.tools[head.tool], SessionName.of(head))
        return handoff_of(adapter, lines())

    def _conversations(self, wanted: str) -> set[str]:
        """The tools' ids of the conversations that `crystal sessions list` shows under this id."""
        from crystal_node.search.conversation_documents import ConversationsRequest
        from crystal_node.search.finding.client import memory_client

        with memory_client(self.settings) as memory:
            found = memory.conversations(ConversationsRequest(session=wanted, limit=2))
        return {each.session for each in found.conversations}


class Wanted:
    """Which sessions a person wants to see."""

    def __init__(self, project: str, tool: str, device: str, sessions: Sessions) -> None:
        """Raises UsageError."""
        if tool and tool not in sessions.tools:
            named = ", ".join(sessions.tools)
            raise UsageError(
                f"no sessions of {one_line(tool, 40)} can be resumed", hint=f"Name one of these: {named}."
            )
        self._project, self._tool = project.strip("/").casefold(), tool
        self._device, self._sessions = device.casefold(), sessions

    def takes(self, row: SessionRow, index: SessionIndex | None = None) -> bool:
        """Whether a row of an index, else of the sessions' own, is wanted."""
        name = (index or self._sessions.index).device_name(row.device).casefold()
        project = row.project.casefold()
        return (
            (not self._tool or row.tool == self._tool)
            and (not self._device or name == self._device or row.device.startswith(self._device))
            and (not self._project or project == self._project or project.endswith(f"/{self._project}"))
        )
