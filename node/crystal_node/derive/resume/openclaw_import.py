"""Bringing a session into OpenClaw's database, by OpenClaw's own import of files: ``openclaw doctor --session-sqlite import``.

It takes the session's whole file and a row of ``sessions.json``, both where older versions kept them; appends, in one
transaction, the lines that the database does not have; and puts the files into its archive. It refuses while OpenClaw's gateway
runs. It would import all files that lie there, so nothing is done if there are some already.
"""

import json
import shutil
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import apsw

from crystal_crypto.errors import CrystalError
from crystal_node.base.errors import ExitCode
from crystal_node.base.settings import child_environment
from crystal_node.base.wording import one_line
from crystal_node.capture.database_file import read_snapshot, tables_of
from crystal_node.capture.json_values import as_array, as_object, as_text, is_object, parse_json
from crystal_node.derive.resume.files import create

PROGRAM = "openclaw"
_OPTION = "--session-sqlite"
_TABLE = "sessions.json"
_SECONDS_MAX = 900.0
_WORDS_CHARS = 300
_OF_SESSION = {
    "session_nodes": "SELECT session_key, entry_json FROM session_nodes WHERE current_session_id = ?",
    "session_windows": "SELECT session_key FROM session_windows WHERE session_id = ?",
}
"""By table: a session that was replaced by a later one under its key is in the second only."""


class NotImported(CrystalError):
    """OpenClaw has not imported the session into its database."""

    exit_code = ExitCode.STORAGE
    hint = "If its gateway runs, stop it with `openclaw gateway stop`, then run this again."


class StoredSession(NamedTuple):
    """What OpenClaw's database says of a session besides its lines: under which key it is, and its settings as JSON."""

    key: str
    entry: str


def stored_session(store: Path, session: str) -> StoredSession | None:
    """None if the database does not have it. Raises OSError."""

    def read(database: apsw.Connection) -> StoredSession | None:
        there = tables_of(database)
        for table, query in _OF_SESSION.items():
            if table in there:
                for key, *entry in database.execute(query, (session,)):
                    return StoredSession(str(key), str(entry[0]) if entry else "")
        return None

    return read_snapshot(store, read, None)[0]


def can_import() -> bool:
    """Whether the program that is installed keeps sessions in a database, and can import them."""
    program = shutil.which(PROGRAM)
    if program is None:
        return False
    return _OPTION in _run([program, "doctor", "--help"], child_environment({})).stdout


def import_session(root: Path, agent: str, session: str, named: StoredSession, lines: Iterable[bytes]) -> int:
    """Have OpenClaw append the lines that its database does not have. Returns how many bytes it was given.

    Raises NotImported; SessionBusy: another program has just made such files; OSError: they cannot be written.
    """
    program = shutil.which(PROGRAM)
    if program is None:
        raise NotImported(
            "OpenClaw (`openclaw`) is not installed on this machine, and only it writes its database",
            hint="Install it and see that it is on your PATH, or go on in another tool: `crystal handoff ID --to TOOL`.",
        )
    folder = root / "agents" / agent / "sessions"
    file, table = folder / f"{session}.jsonl", folder / _TABLE
    if folder.exists() and any(each.name == _TABLE or each.suffix == ".jsonl" for each in folder.iterdir()):
        raise NotImported(
            f"{folder} has sessions that OpenClaw has not imported into its database yet",
            hint=f"Run `openclaw doctor {_OPTION} import {_OPTION}-agent {agent}`, then this again.",
        )
    made: list[Path] = []
    try:
        given = create(file, lines)
        made.append(file)
        known: object = parse_json(named.entry.encode()) if named.entry else {}
        row: dict[str, object] = dict(known) if is_object(known) else {}
        row |= {"sessionId": session, "sessionFile": str(file)}
        row.setdefault("updatedAt", file.stat().st_mtime_ns // 1_000_000)
        create(table, (json.dumps({named.key: row}).encode(),))
        made.append(table)
        words = ["doctor", _OPTION, "import", f"{_OPTION}-agent", agent, "--json"]
        environment = child_environment({"OPENCLAW_STATE_DIR": str(root)})
        done = _run([program, *words], environment)
        if done.returncode != 0 or _issues(done.stdout):
            raise NotImported(f"OpenClaw did not import the session: {_why_not(done)}")
    finally:
        # What was imported is in OpenClaw's archive by now. What another program made there meanwhile is not ours.
        for each in reversed(made):
            with suppress(FileNotFoundError):
                each.unlink()
    return given


def _run(command: list[str], environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NotImported(f"`{PROGRAM} doctor` took longer than {_SECONDS_MAX / 60:.0f} minutes") from error


def _issues(report: str) -> bool:
    try:
        read = parse_json(report.encode())
    except ValueError:
        return True
    return as_object(as_object(read).get("totals")).get("issues") != 0


def _why_not(done: "subprocess.CompletedProcess[str]") -> str:
    with suppress(ValueError):
        report = as_object(parse_json(done.stdout.encode()))
        issues = [
            each
            for target in as_array(report.get("targets"))
            for each in as_array(as_object(target).get("issues"))
        ]
        for each in (report.get("error"), *issues):
            if message := as_text(as_object(each).get("message")):
                return one_line(message, _WORDS_CHARS)
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return one_line(said[-1], _WORDS_CHARS) if said else f"it ended with {done.returncode}"
