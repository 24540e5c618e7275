"""Memories: listed, remembered and changed, for the commands and for programs.

Reading is from an open device's rows, with its pending operations; writing goes into its outbox and is seen at once. Text is
cleaned before it is kept, and credentials are blanked out. While private mode is on, only a memory's status can be changed.
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
