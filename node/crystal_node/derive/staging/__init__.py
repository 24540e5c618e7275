"""Staging: where an agent that is new to the Core waits before its files are made and its past is woven.

Only derived files and weaving wait. What the agent said is ordered, embedded, searchable and durable like everything else
(docs/decisions/0031-staging.md).
"""
