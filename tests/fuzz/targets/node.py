"""What a device reads that others wrote: transcripts, settings, backups, exports, requests, repositories, answers."""
# pyright: reportPrivateUsage=false

import contextlib
import functools
import json
import tempfile
from collections.abc import Callable, Iterable
from datetime import UTC
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

from msgspec.json import decode as json_decode

from crystal_node.agent.hooks import jsondocument
from crystal_node.base.agent_names import agent_id, folder_name, session_name
from crystal_node.base.errors import BadConfig, LocalStorage, UsageError
from crystal_node.base.file_rules import TreeRules, pattern_fault
from crystal_node.base.obeyed_names import obeyed_part
from crystal_node.base.project import normalised_remote, project_name, repository_name
from crystal_node.base.secret_files import is_secret_name, secret_form
from crystal_node.base.settings.config import read_config
from crystal_node.base.timespans import parse_since, parse_until
from crystal_node.capture.claude_code import ClaudeCode
from crystal_node.capture.codex import Codex
from crystal_node.capture.context import Context
from crystal_node.capture.context import decoded as decoded_context
from crystal_node.capture.drop import DropFolder
from crystal_node.capture.gemini import GeminiCli
from crystal_node.capture.json_values import records_within
from crystal_node.capture.line_adapter import LineAdapter, LinePosition
from crystal_node.capture.openclaw import OpenClaw
from crystal_node.capture.redaction import redact
from crystal_node.derive.sources.ignorefiles import patterns
from crystal_node.derive.sources.reader import decoded as decoded_document
from crystal_node.models.llm.http import reason_of
from crystal_node.safekeeping.backup.manifest import (
    MANIFEST_NAME,
    SUMS_NAME,
    BackupManifest,
    read_manifest,
    sums,
)
from crystal_node.safekeeping.portable import export_format, importer
from crystal_node.search.finding.documents import SearchRequest, ShowRequest
from crystal_node.search.finding.schema_errors import SchemaMismatch, decoded
from crystal_node.search.finding.validation import within_limits
from crystal_node.search.recall.hook import read_input
from crystal_node.surfaces.mcp import arguments
from crystal_node.surfaces.mcp.clients import toml_form
from crystal_node.surfaces.mcp.schemas import read_as
from tests.fuzz.seeds import with_nested_json
from tests.fuzz.target import Target

_FIXTURES = Path(__file__).resolve().parents[2] / "node" / "capture" / "fixtures"
_HOME = Path("/home/someone")
_MEMORY = Path("/dev/shm")
"""Where files cost least, if there is such a place."""
_NOW_MS = 1_767_600_000_000


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


@functools.cache
def _folder() -> Path:
    """A folder of this process; it goes with the interpreter."""
    found = tempfile.TemporaryDirectory(prefix="crystal-fuzz-", dir=_MEMORY if _MEMORY.is_dir() else None)
    _kept.append(found)
    return Path(found.name)


_kept: list[tempfile.TemporaryDirectory[str]] = []


def _lines_of(adapter: LineAdapter) -> Callable[[bytes], None]:
    """Lines of one transcript, one after the other, with what earlier ones say about later ones. It never raises."""

    def read(data: bytes) -> None:
        context = Context()
        at = LinePosition(Path("/x/session.jsonl"), 0)
        for line in data.split(b"\n"):
            for said in adapter.said(line, context, at):
                assert said is not None
        assert decoded_context(context.encoded()) == context
        records_within(data)

    return read


def _fixture_lines(*names: str) -> Callable[[], Iterable[bytes]]:
    """Lines of real transcripts, alone and with the one before."""

    def seeds() -> Iterable[bytes]:
        lines: list[bytes] = []
        for name in names:
            place = _FIXTURES / name
            files = sorted(place.rglob("*")) if place.is_dir() else [place]
            for file in files:
                if file.is_file() and file.suffix in (".jsonl", ".json"):
                    lines += [line for line in file.read_bytes().splitlines() if 0 < len(line) <= 3000]
        chosen = lines[:: max(1, len(lines) // 40)]
        yield from with_nested_json(chosen)
        yield from (b"\n".join(pair) for pair in pairwise(chosen))

    return seeds


def _transcript_file(data: bytes) -> None:
    """A whole file through the reader of lines, twice: what was read once is not read again."""
    path = _folder() / "session.jsonl"
    path.write_bytes(data)
    adapter = ClaudeCode(_folder(), _HOME)
    read = adapter.read(path, None, agent="main", hides=lambda _: False)
    again = adapter.read(path, read.state, agent="main", hides=lambda _: False)
    assert again.operations == [] or read.more


def _redact(data: bytes) -> None:
    once = redact(_text(data))
    again = redact(once.text)
    assert again.text == once.text, "what was blanked stays as it is"


def _redact_seeds() -> Iterable[bytes]:
    return [
        text.encode()
        for text in (
            "export API_KEY_PROD=ghp_0123456789abcdefghijABCDEFGHIJ012345",
            "\x1b[31mAKIAIOSFODNN7EXAMPLE\x1b[0m password\\u003dhunter22 token%3Dabcdefgh12345678",
            '{"name": "DB_PASSWORD", "value": "s3cr3t value with spaces"}',
            "postgres://user:p%40ss:w@rd@db.example.org:5432/x mysql -psecret99 sshpass -p 'x y z'",
            "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj\n-----END PRIVATE KEY-----",
            "<password>hunter22</password> define('DB_PASSWORD', 'hunter22'); //registry/:_auth=aGVsbG8gd29ybGQ=",
            "&quot;secret&quot;: &quot;abcdefgh12345678&quot; Passwort: geheim123 contraseña=secreto99",
            "[redacted:token] api_key: [redacted:password]abc",
        )
    ]


def _config(data: bytes) -> None:
    path = _folder() / "config.json"
    path.write_bytes(data)
    read_config(path)


def _backup(data: bytes) -> None:
    folder = _folder()
    (folder / MANIFEST_NAME).write_bytes(data)
    listed = f"{sha256(data).hexdigest()}  {MANIFEST_NAME}\n".encode()
    with contextlib.suppress(Exception):
        listed = sums(json_decode(data, type=BackupManifest), data)
    (folder / SUMS_NAME).write_bytes(listed)
    for item in read_manifest(folder).items:
        assert (folder / item.path).resolve().is_relative_to(folder.resolve())


def _backup_seeds() -> Iterable[bytes]:
    manifest = {
        "format": "crystal-backup",
        "version": 1,
        "vault": "ab" * 16,
        "device": "cd" * 16,
        "number": 1,
        "made_ms": 5,
        "program": "0.1.0",
        "keys": "none",
        "epoch": 1,
        "sequence": 2,
        "digest": "00",
        "unsent": 0,
        "items": [{"path": "config.json", "size": 2, "sha256": "0" * 64}],
    }
    return with_nested_json([json.dumps(manifest).encode()])


def _export(data: bytes) -> None:
    """A manifest, or one of the line files, by the first byte."""
    folder = _folder()
    if data[:1] < b"@":
        (folder / export_format.MANIFEST).write_bytes(data[1:])
        importer._manifest(folder)
        return
    kinds = (export_format.PieceRecord, export_format.MemoryRecord, export_format.SourceRecord)
    path = folder / "records.jsonl"
    path.write_bytes(data[1:])
    for kind in (*kinds, export_format.DocumentRecord):
        with contextlib.suppress(importer.DamagedExport):
            list(importer._records(path, kind))


def _export_seeds() -> Iterable[bytes]:
    records = [
        b'{"text":"a","agent":"main","session":"s","role":"user","created_at":5}',
        b'{"text":"a","superseded_by":"","scope":"host/x"}\n{"name":"notes","include":["*.md"]}',
    ]
    manifest = b'{"format":"crystal-export","version":1,"made_at":"x","device":"y","parts":{},"files":[]}'
    yield from (b"0" + each for each in with_nested_json([manifest]))
    yield from (b"a" + each for each in with_nested_json(records))


def _request(data: bytes) -> None:
    """Of the gateway and the page: a search and a show, within their limits."""
    for kind in (SearchRequest, ShowRequest):
        with contextlib.suppress(SchemaMismatch):
            found = decoded(data, kind)
            if isinstance(found, SearchRequest):
                with contextlib.suppress(UsageError):
                    within_limits(found)


_ARGUMENTS = (
    arguments.SearchArguments,
    arguments.OpenArguments,
    arguments.RememberArguments,
    arguments.ForgetArguments,
    arguments.MemoriesArguments,
    arguments.SourcesAddArguments,
    arguments.SourcesSyncArguments,
)


def _mcp(data: bytes) -> None:
    """A model's arguments for a tool, as the SDK hands them over: any JSON value."""
    try:
        given: object = json.loads(data)
    except (ValueError, RecursionError):
        return
    for kind in _ARGUMENTS:
        with contextlib.suppress(UsageError):
            read_as(kind, given)


def _hook(data: bytes) -> None:
    read_input(data)


def _settings_file(data: bytes) -> None:
    """Another program's settings, which are changed as text and must stay what they were but for one entry."""
    text = _text(data)
    document = jsondocument.parse(text)
    if isinstance(document, dict) and "crystal" not in document:
        changed = jsondocument.with_member(text, (), "crystal", {"a": 1})
        assert jsondocument.parse(changed) == {**document, "crystal": {"a": 1}}
        assert jsondocument.parse(jsondocument.without(changed, ("crystal",))) == document


def _toml(data: bytes) -> None:
    toml_form.entry_in(_text(data), ("mcp_servers",))


def _ignore(data: bytes) -> None:
    """Patterns, an empty line, and paths that they are asked about."""
    lines, _, paths = _text(data).partition("\n\n")
    rules = patterns(lines.splitlines())
    for path in paths.splitlines()[:20]:
        rules.verdict(path)


def _file_rules(data: bytes) -> None:
    pattern, _, path = _text(data).partition("\n")
    if pattern_fault(pattern) is None:
        TreeRules((f"-{pattern}",)).excluded(path)
    obeyed_part(path)


def _names(data: bytes) -> None:
    """Names of agents and sessions become one component of a path."""
    text = data.decode("utf-8", "surrogateescape")
    for made in (folder_name(text), session_name(text), agent_id(text, "main")):
        assert made
        assert "/" not in made
        assert "\0" not in made
        assert made not in (".", "..")
    is_secret_name(text)
    project_name(text, _HOME)
    remote = normalised_remote(text)
    assert "@" not in remote.partition("/")[0]


def _repository(data: bytes) -> None:
    """A folder's pointer, its repository's configuration, and what a worktree names, between lines of dashes."""
    pieces = [*data.split(b"\n---\n"), b"", b"", b""]
    root = _folder() / "repository"
    for name, content in zip((".git", "sub/config", "sub/commondir", "sub/gitdir"), pieces, strict=False):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    found = repository_name(str(root))
    assert "@" not in found.partition("/")[0]


def _time(data: bytes) -> None:
    text = _text(data)
    with contextlib.suppress(UsageError):
        assert parse_since(text, _NOW_MS, UTC) >= 0
    parse_until(text, _NOW_MS, UTC)


def _document(data: bytes) -> None:
    decoded_document(data)
    secret_form(data)


def _server_error(data: bytes) -> None:
    said = reason_of(data, ["Bearer key-123"])
    assert "key-123" not in said
    assert said == "" or said.isprintable()


def _texts(*texts: str) -> Callable[[], Iterable[bytes]]:
    return lambda: [text.encode() for text in texts]


def _json_texts(*texts: str) -> Callable[[], Iterable[bytes]]:
    return lambda: with_nested_json(text.encode() for text in texts)


_CLAUDE = ("claude-code-1.0.jsonl", "claude-code-2.1.jsonl", "claude-code-2.1-agent.jsonl")
_GIT_CONFIG = '[remote "origin"]\n\turl = git@example.org:owner/name.git ; x\n[branch "main"]\n'

TARGETS = (
    Target("node.claude_code", _lines_of(ClaudeCode(Path("/x"), _HOME)), (), _fixture_lines(*_CLAUDE), 8192),
    Target("node.codex", _lines_of(Codex(Path("/x"), _HOME)), (), _fixture_lines("codex"), 8192),
    Target("node.gemini", _lines_of(GeminiCli(Path("/x"), _HOME)), (), _fixture_lines("gemini"), 8192),
    Target("node.openclaw", _lines_of(OpenClaw(Path("/x"), _HOME)), (), _fixture_lines("openclaw"), 8192),
    Target("node.drop", _lines_of(DropFolder(Path("/x"), _HOME, "main")), (), _fixture_lines("drop"), 8192),
    Target("node.transcript_file", _transcript_file, (), _fixture_lines(*_CLAUDE), 8192),
    Target("node.redaction", _redact, (), _redact_seeds),
    Target(
        "node.config",
        _config,
        (BadConfig,),
        _json_texts('{"version": 1, "vault": "", "relay_url": "http://127.0.0.1:1", "agent": "main"}'),
        8192,
    ),
    Target("node.backup", _backup, (LocalStorage,), _backup_seeds, 8192),
    Target("node.export", _export, (UsageError,), _export_seeds, 8192),
    Target(
        "node.request",
        _request,
        (),
        _json_texts('{"query": "a", "limit": 3, "since": "7d"}', '{"id": "ab"}'),
        8192,
    ),
    Target(
        "node.mcp",
        _mcp,
        (),
        _json_texts('{"query": "a", "limit": 3}', '{"text": "x", "category": "fact"}', '{"ids": ["ab"]}'),
        8192,
    ),
    Target(
        "node.hook",
        _hook,
        (),
        _json_texts('{"hook_event_name": "SessionStart", "cwd": "/x", "session_id": "s"}'),
        8192,
    ),
    Target(
        "node.settings_file",
        _settings_file,
        (jsondocument.DamagedDocument,),
        _json_texts('{\n  "hooks": {"Stop": [{"command": "x"}]},\n  "a": [1, 2]\n}\n', "{}"),
        8192,
    ),
    Target(
        "node.toml",
        _toml,
        (jsondocument.DamagedDocument,),
        _texts('[mcp_servers.crystal]\ncommand = "x"\nargs = ["a"]\n', "a = [[[[1]]]]\n"),
    ),
    Target(
        "node.ignore",
        _ignore,
        (),
        _texts("*.log\n!a/**/b\n/x/\n\na/c/b\nx/y.log", "a*b*c*d*e\n\n" + "ab" * 60),
        1024,
    ),
    Target("node.file_rules", _file_rules, (), _texts("a/**/*.md\na/b/c.md", "*?*\n.git/config")),
    Target(
        "node.names", _names, (), _texts("main", "../x", "con", "git@example.org:a/b.git", "https://u:p@h/x")
    ),
    Target(
        "node.repository",
        _repository,
        (),
        _texts(
            f"gitdir: sub\n---\n{_GIT_CONFIG}",
            f"gitdir: sub\n---\n{_GIT_CONFIG}\n---\n../sub\n---\n/x/.git",
        ),
    ),
    Target(
        "node.time",
        _time,
        (UsageError,),
        _texts("7d", "last week", "2026-01-31T18:00", "letzten Montag", "in march"),
    ),
    Target(
        "node.document",
        _document,
        (),
        _texts(
            '{"type": "service_account", "private_key": "x"}', "1: ABCD-EFGH", "a,b\nuser,password\n", "text"
        ),
    ),
    Target(
        "node.server_error",
        _server_error,
        (),
        _json_texts('{"error": {"message": "bad key-123", "type": "x"}}', '{"error": "x"}'),
        8192,
    ),
)
