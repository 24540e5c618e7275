"""Bringing a vault back with its recovery kit: from the relay, or from a copy of any device's home.

restoring   the whole of it, step by step
oldhome     copying another home's databases, without ever writing there
progress    how far a restore from a home has come, for the process that goes on with it
"""
