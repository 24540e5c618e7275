"""Limits of the Dream Weaver. What a model writes is cut to them, whatever a transcript made it write."""

BATCH_TOKENS = 24_000
"""Of transcripts in one batch, where the model's context has room."""
BATCH_BYTES_MIN = 2_000
"""A batch that would be smaller, because the budget is almost used, is not begun."""
REFLECTION_TOKENS = 4_000
JOURNAL_TOKENS = 3_000
FACTS_TOKENS = 2_500
DOCUMENT_TOKENS = 4_000
ANSWER_CHARS_MAX = 64 * 1024
"""Of what a server gives for one of these, whatever it was asked for. The rest is not read."""
CALL_SECONDS_MAX = 600.0
"""One call, with its waiting and trying again."""
TRIES_MAX = 2
"""An answer that cannot be read is asked for once more."""

JOURNAL_BYTES_MAX = 24 * 1024
"""Prose of one batch."""
IDENTITY_BYTES_MAX = 5 * 1000
SOUL_BYTES_MAX = 5 * 1000
CONTEXT_BYTES_MIN = 5 * 1000
CONTEXT_BYTES_MAX = 10 * 1000
WARM_START_LINES_MAX = 49
DOCUMENT_INPUT_BYTES = 24 * 1024
"""Journals and notes that a document is written from."""

ITEMS_MAX = 20
"""Decisions, promises, concerns, missed tasks: of each, in one batch."""
ITEM_CHARS_MAX = 400
QUOTATIONS_MAX = 24
QUOTATION_CHARS_MIN = 8
QUOTATION_CHARS_MAX = 600
MEMORIES_A_DAY_MAX = 20
MEMORY_CHARS_MIN = 12
MEMORY_CHARS_MAX = 500
REFERENCES_MAX = 30
"""Lines for REFERENCE.md from one batch."""
