"""Recovering a vault with its recovery kit: from the relay, or from a copy of any device's home.

``restore`` is the whole, step by step. ``source_home`` copies another home's databases without writing there, ``home_copy``
puts the copies into an empty home, checks them and can undo it, ``files`` brings the other home's files.
"""
