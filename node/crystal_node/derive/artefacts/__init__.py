"""Files that the Core makes from the memory, for people and for other programs: transcripts, summaries, daily logs.

They are derived: the replicated rows are the truth, and what is here can be made again from them at any time
(docs/decisions/0032-artefacts-are-derived.md).
"""
