"""Memories for whoever asks: the commands, and programs that do what they do.

Reading is from an open device's rows, pending operations counted; writing goes into its outbox and is seen at once. Answers are
the documents of `documents`. Text that is kept is cleaned first, credentials blanked out; while private mode is on only what
changes a memory's standing is written, and no words.
"""

from crystal_node.search.memories.changes import (
    amend_memory,
    change_memory,
    edit_memory,
    reactivate_memory,
    remember_text,
)
from crystal_node.search.memories.documents import (
    AlikeDocument,
    HistoryDocument,
    MemoriesDocument,
    MemoryDocument,
    MemoryEdit,
    MemoryEventDocument,
    NewMemory,
    RememberedDocument,
    WhenAlike,
)
from crystal_node.search.memories.queries import find_memory, history_of, list_memories, memory_document
from crystal_node.search.memories.similarity import alike_memories

__all__ = [
    "AlikeDocument",
    "HistoryDocument",
    "MemoriesDocument",
    "MemoryDocument",
    "MemoryEdit",
    "MemoryEventDocument",
    "NewMemory",
    "RememberedDocument",
    "WhenAlike",
    "alike_memories",
    "amend_memory",
    "change_memory",
    "edit_memory",
    "find_memory",
    "history_of",
    "list_memories",
    "memory_document",
    "reactivate_memory",
    "remember_text",
]
