"""Bringing a vault back with its recovery kit: from the relay, or from a copy of any device's home.

``restoring`` is the whole of it, step by step; ``oldhome`` copies another home's databases without ever writing there,
``copying`` puts the copies into a home that holds nothing, checks them, and takes them back if they do not do;
``progress`` is how far that has come, for the process that goes on with it; ``outcome`` is what there is to tell.
"""
