"""New memories and changes of memories: operations into the device's outbox."""

from collections.abc import Callable, Sequence
from hashlib import sha256

from crystal_core.memories import Memory, MemoryStatus, memory
from crystal_core.projects import ProjectKey
from crystal_mirror.operations import SUPERSEDES_MAX, Amend, Remember, Status
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import UsageError
from crystal_node.capture.recorder import clean_text
from crystal_node.device.device import Device
from crystal_node.device.privacy import PrivateNow, read_privacy
from crystal_node.device.repositories import claim
from crystal_node.search.memories.documents import (
    AlikeDocument,
    MemoryEdit,
    NewMemory,
    RememberedDocument,
    WhenAlike,
)
from crystal_node.search.memories.queries import find_memory
from crystal_node.search.memories.similarity import alike_memories, normal_words
from crystal_node.search.projects import NO_PROJECT, asked_scope, inferred_scope, scope_words

Choose = Callable[[Sequence[AlikeDocument]], WhenAlike]
"""Decides what to do with a text when memories say almost the same."""


def remember_text(
    device: Device,
    new: NewMemory,
    *,
    agent: str = "",
    keep_both: bool = False,
    choose: Choose | None = None,
    place: ProjectKey = NO_PROJECT,
) -> RememberedDocument:
    """Keep a memory.

    A memory of the same words, but for case, spaces and punctuation, is the one that is kept: it gets the category and the
    confidence. What is almost the same stays, and is named in the answer, unless ``choose`` says otherwise. With ``keep_both``
    memories that are alike are not looked for. ``place`` is the project that it is made in. Where no scope is asked for, a
    memory that is there keeps its own, and one that takes another's place has that one's.

    Raises:
        Usage: nothing is left of the text, it is too long, an id is none, or it is for a project that is none.
        NoSuchEntry: there is no such memory to take the place of, or no such project.
        PrivateNow: private mode is on.
    """
    _refuse_private(device)
    cleaned = clean_text(new.text)
    if len(new.supersedes) > SUPERSEDES_MAX:
        raise UsageError(f"one memory takes the place of {SUPERSEDES_MAX} at most")
    old = [find_memory(device, each) for each in new.supersedes]
    scope = asked_scope(device, new.scope, new.project, place)
    kept, merged = cleaned.text, False
    alike: list[AlikeDocument] = []
    if not keep_both and memory(device.replica.database, _id(kept)) is None:
        replaced = {each.id.hex() for each in old}
        alike = [
            each
            for each in alike_memories(device.settings, device.replica.database, kept)
            if each.id not in replaced
        ]
    same = [each for each in alike if normal_words(each.text) == normal_words(kept)]
    if same:
        kept, merged, alike = same[0].text, True, []
    elif alike and choose is not None and choose(alike) is WhenAlike.MERGE:
        old += [find_memory(device, each.id) for each in alike[: SUPERSEDES_MAX - len(old)]]
        alike = []
    agent = agent or device.settings.agent_id
    targets = tuple(dict.fromkeys(each.forget_hash for each in old if each.text != kept))
    if scope is None and not targets and memory(device.replica.database, _id(kept)) is None:
        scope = inferred_scope(new.category, place)
    operation = Remember(kept, new.category.value, agent, now_ms(), new.confidence, targets, scope)
    claiming = claim(device.replica.database, *place, now_ms()) if scope and scope == place[1] else []
    device.accept([*claiming, operation], lambda: _refuse_private(device))
    where, project = scope_words(find_memory(device, _id(kept).hex()).scope)
    return RememberedDocument(
        id=_id(kept).hex(),
        category=new.category.value,
        confidence=new.confidence,
        agent=agent,
        merged=merged,
        supersedes=[each.id.hex() for each in old if each.text != kept],
        alike=alike,
        redacted=cleaned.counts.total(),
        scope=where,
        project=project,
    )


def change_memory(device: Device, given: str, edit: MemoryEdit, *, place: ProjectKey = NO_PROJECT) -> Memory:
    """Change a memory as a program asks for it, in the project ``place``.

    Raises what ``edit_memory`` and ``asked_scope`` raise; Usage also for other words and another status at once.
    """
    category = None if edit.category is None else edit.category.value
    scope = asked_scope(device, edit.scope, edit.project, place)
    if edit.status is None:
        return edit_memory(
            device, given, text=edit.text, category=category, confidence=edit.confidence, scope=scope
        )
    if edit.text is not None:
        raise UsageError("a memory gets other words, or another status, not both at once")
    if edit.status == "active" and category is None and edit.confidence is None and scope is None:
        return reactivate_memory(device, given)
    return amend_memory(
        device, given, category=category, confidence=edit.confidence, status=edit.status, scope=scope
    )


def edit_memory(
    device: Device,
    given: str,
    *,
    text: str | None = None,
    category: str | None = None,
    confidence: int | None = None,
    scope: str | None = None,
    agent: str = "",
) -> Memory:
    """Change a memory. Other words are a memory of their own, which takes its place.

    Raises what ``remember_text`` and ``find_memory`` raise; Usage also for a memory whose place another one took.
    """
    before = find_memory(device, given)
    after = before.text if text is None else clean_text(text).text
    if after == before.text:
        return amend_memory(device, given, category=category, confidence=confidence, scope=scope, agent=agent)
    operation = Remember(
        after,
        category or before.category,
        agent or device.settings.agent_id,
        now_ms(),
        before.confidence if confidence is None else confidence,
        (before.forget_hash,),
        before.scope if scope is None else scope,
    )
    device.accept([operation], lambda: _refuse_private(device))
    return find_memory(device, _id(after).hex())


def amend_memory(
    device: Device,
    given: str,
    *,
    category: str | None = None,
    confidence: int | None = None,
    status: Status | None = None,
    scope: str | None = None,
    agent: str = "",
) -> Memory:
    """Change a memory without its words; what is None stays. Raises what ``edit_memory`` raises."""
    before = find_memory(device, given)
    if before.status is MemoryStatus.SUPERSEDED:
        raise UsageError(
            "another memory took its place", hint="Change that one, or remember this text again."
        )
    stated = (category, confidence, status, scope)
    stands = (before.category, before.confidence, before.status.value, before.scope)
    if all(new in (None, old) for new, old in zip(stated, stands, strict=True)):
        return before
    agent = agent or device.settings.agent_id
    operation = Amend(before.forget_hash, category, confidence, status, agent, now_ms(), scope)
    device.accept([operation])
    return find_memory(device, before.id.hex())


def reactivate_memory(device: Device, given: str, *, agent: str = "") -> Memory:
    """Reactivate a retired or superseded memory. A superseded one is remembered again, in its own words."""
    before = find_memory(device, given)
    if before.status is not MemoryStatus.SUPERSEDED:
        return amend_memory(device, given, status="active", agent=agent)
    agent = agent or device.settings.agent_id
    operation = Remember(before.text, before.category, agent, now_ms(), before.confidence)
    device.accept([operation], lambda: _refuse_private(device))
    return find_memory(device, before.id.hex())


def _refuse_private(device: Device) -> None:
    if read_privacy(device.journal).on:
        raise PrivateNow("private mode is on: nothing is recorded")


def _id(text: str) -> bytes:
    return sha256(text.encode()).digest()
