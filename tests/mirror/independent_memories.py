"""A second reader of memories and documents, written from docs/protocol.md alone; see ``independent_vault.py``."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Row = tuple[Any, ...]
AGENT, CREATED, DEVICE, CATEGORY, CONFIDENCE, STATUS, SUCCESSOR, SCOPE, CHANGED = range(9)
"""Where a memory has what."""


@dataclass
class Kept:
    """Memories by content hash; what they were, in order; sources by name; documents, and their parts, by source and path."""

    memories: dict[bytes, list[Any]] = field(default_factory=dict[bytes, list[Any]])
    changes: dict[bytes, list[Row]] = field(default_factory=dict[bytes, list[Row]])
    sources: dict[str, Row] = field(default_factory=dict[str, Row])
    documents: dict[tuple[str, str], Row] = field(default_factory=dict[tuple[str, str], Row])
    parts: dict[tuple[str, str], dict[int, tuple[bytes, str]]] = field(
        default_factory=dict[tuple[str, str], dict[int, tuple[bytes, str]]]
    )
    links: dict[Row, Row] = field(default_factory=dict[Row, Row])
    """Linked projects by their names, the lesser first."""

    def copy(self) -> "Kept":
        return Kept(
            {content: list(row) for content, row in self.memories.items()},
            {content: list(rows) for content, rows in self.changes.items()},
            dict(self.sources),
            dict(self.documents),
            {where: dict(parts) for where, parts in self.parts.items()},
            dict(self.links),
        )

    def remember(
        self, content: bytes, device: bytes, operation: list[Any], hidden: Callable[[bytes], bytes]
    ) -> None:
        _, _, category, agent, at, *rest = operation
        confidence = rest[0] if rest else 100
        supersedes: list[bytes] = rest[1] if len(rest) > 1 else []
        scope: str | None = rest[2] if len(rest) > 2 else None
        if content in self.memories:
            now = {CATEGORY: category, CONFIDENCE: confidence, STATUS: "active", SUCCESSOR: b""}
            if scope is not None:
                now[SCOPE] = scope
            self.change(content, now, "remembered", agent, at, device)
        else:
            if scope is None:
                by_name = {hidden(other): row for other, row in self.memories.items()}
                there = [by_name[old][SCOPE] for old in supersedes if old in by_name]
                scope = there[0] if there else ""
            self.memories[content] = [agent, at, device, category, confidence, "active", b"", scope, at]
        for old in supersedes:
            for other in [other for other in self.memories if other != content and hidden(other) == old]:
                self.change(other, {SUCCESSOR: hidden(content)}, "superseded", agent, at, device)

    def amend(self, device: bytes, operation: list[Any], hidden: Callable[[bytes], bytes]) -> None:
        _, target, category, confidence, status, agent, at, *rest = operation
        stated = {
            CATEGORY: category,
            CONFIDENCE: confidence,
            STATUS: status,
            SCOPE: rest[0] if rest else None,
        }
        now = {place: value for place, value in stated.items() if value is not None}
        for content in [content for content in self.memories if hidden(content) == target]:
            self.change(content, now, "amended", agent, at, device)

    def change(
        self, content: bytes, now: dict[int, Any], kind: str, agent: str, at: int, device: bytes
    ) -> None:
        row = self.memories[content]
        before = row[CATEGORY : SCOPE + 1]
        for place, value in now.items():
            row[place] = value
        if row[CATEGORY : SCOPE + 1] != before:
            row[CHANGED] = at
            known = self.changes.setdefault(content, [])
            scope = before.pop()
            known.append((len(known), kind, *before, agent, at, device, *([scope] if scope else [])))

    def link(self, device: bytes, operation: list[Any]) -> None:
        _, one, other, linked, at = operation
        names = tuple(sorted((tuple(one), tuple(other))))
        if not linked:
            self.links.pop(names, None)
        elif names not in self.links:
            self.links[names] = (device, at)

    def forget(self, content: bytes) -> None:
        self.memories.pop(content, None)
        self.changes.pop(content, None)
        for parts in self.parts.values():
            for part in [part for part, (at, _) in parts.items() if at == content]:
                del parts[part]

    def replace(self, old: bytes, new: bytes, hidden: Callable[[bytes], bytes]) -> None:
        """Lets the text `new` stand as the memory and in the documents where `old` stood."""
        if old in self.memories and not (new in self.memories and self.memories[new][SUCCESSOR]):
            if new not in self.memories:
                self.memories[new] = self.memories.pop(old)
                if old in self.changes:
                    self.changes[new] = self.changes.pop(old)
            for row in self.memories.values():
                if row[SUCCESSOR] == hidden(old):
                    row[SUCCESSOR] = hidden(new)
        for parts in self.parts.values():
            for part, (content, title) in parts.items():
                if content == old:
                    parts[part] = (new, title)

    def put_document(
        self, device: bytes, operation: list[Any], take: Callable[[str], bytes | None]
    ) -> set[bytes]:
        """Returns what was taken out of its places. `take`: the content hash of a text that may stand."""
        _, source, path, version, modified_at, kind, first, total, texts, titles = operation
        where = (source, path)
        if self.sources.get(source, (b"",))[0] != device:
            return set()
        end = came = first + len(texts)
        if first:
            row = self.documents.get(where)
            if row is None or (row[0], row[3]) != (version, total) or first > row[4]:
                return set()
            came = max(end, row[4])
        self.documents[where] = (version, kind, modified_at, total, came)
        parts = self.parts.setdefault(where, {})
        out = [part for part in parts if part >= first and (part < end or end == total)]
        left = {parts.pop(part)[0] for part in out}
        for part, (text, title) in enumerate(zip(texts, titles, strict=True), start=first):
            content = take(text)
            if content is not None:
                parts[part] = (content, title)
        return left

    def drop_document(self, device: bytes, source: str, path: str) -> set[bytes]:
        if self.sources.get(source, (b"",))[0] != device:
            return set()
        self.documents.pop((source, path), None)
        return {content for content, _ in self.parts.pop((source, path), {}).values()}

    def drop_source(self, name: str) -> set[bytes]:
        device = self.sources.pop(name, (b"",))[0]
        self.sources[name] = (device,)
        left = [self.drop_document(device, *where) for where in list(self.documents) if where[0] == name]
        del self.sources[name]
        return {content for contents in left for content in contents}

    def stand(self) -> set[bytes]:
        return {content for parts in self.parts.values() for content, _ in parts.values()}

    def rows(self, canonical: Callable[..., bytes]) -> dict[str, list[bytes]]:
        memories: list[bytes] = []
        for content, row in self.memories.items():
            first = (content, row[CATEGORY], row[AGENT], row[CREATED], row[DEVICE])
            later = (*row[CONFIDENCE : SUCCESSOR + 1], row[CHANGED])
            plain = (*later, row[SCOPE]) == (100, "active", b"", row[CREATED], "")
            scope = [row[SCOPE]] if row[SCOPE] else []
            memories.append(canonical(*first, *(() if plain else (*later, *scope))))
        return {
            "memories": memories,
            "memory_changes": [
                canonical(content, *change) for content, changes in self.changes.items() for change in changes
            ],
            "sources": [
                canonical(name, device, root, canonical(*include), canonical(*exclude), at)
                for name, (device, root, include, exclude, at) in self.sources.items()
            ],
            "documents": [
                canonical(*where, version, kind, modified_at, total, came)
                for where, (version, kind, modified_at, total, came) in self.documents.items()
            ],
            "document_parts": [
                canonical(*where, part, content, title)
                for where, parts in self.parts.items()
                for part, (content, title) in parts.items()
            ],
            "project_links": [canonical(*one, *other, *row) for (one, other), row in self.links.items()],
        }


def add_rows(
    kept: Kept, names: list[str], devices: list[bytes], contents: list[bytes], part: list[Any]
) -> None:
    """What the elements from 26 to 33, and the memories, of a snapshot's part hold. `contents`: its chunks, then the known."""
    lists: list[list[Any]] = [part[20], *part[26:34], *([[]] * (34 - len(part)))]
    memories, states, changes, sources, documents, parts, scopes, change_scopes, links = lists
    numbered: list[bytes] = []
    for chunk, category, agent, at, device in memories:
        content = contents[int(chunk)]
        numbered.append(content)
        kept.memories[content] = [
            names[agent],
            at,
            devices[device],
            names[category],
            100,
            "active",
            b"",
            "",
            at,
        ]
    for number, confidence, status, successor, changed in states:
        kept.memories[numbered[number]][CONFIDENCE:] = [confidence, status, successor, "", changed]
    for number, scope in scopes:
        kept.memories[numbered[number]][SCOPE] = names[scope]
    scope_of: dict[int, str] = {number: names[scope] for number, scope in change_scopes}
    for place, (chunk, number, *change) in enumerate(changes):
        known = kept.changes.setdefault(contents[int(chunk)], [])
        assert len(known) == number
        known.append((number, *change, *([scope_of[place]] if place in scope_of else [])))
    for folder, repository, other_folder, other_repository, *row in links:
        kept.links[(folder, repository), (other_folder, other_repository)] = tuple(row)
    for name, *source in sources:
        kept.sources[name] = tuple(source)
    for where, path, *document in documents:
        kept.documents[where, path] = tuple(document)
    for where, path, number, title, chunk in parts:
        places = kept.parts.setdefault((names[int(where)], names[int(path)]), {})
        places[number] = (contents[chunk], names[title])
