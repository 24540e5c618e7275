"""Backups: a copy of one device's home in a folder of the person's choice, made while everything goes on.

``making`` is the whole of it; ``databases`` copies what SQLite holds, ``tree`` the files; ``manifest`` says what is in a
backup, ``verifying`` reads it back, ``shelf`` is the folder that holds several of them; ``keys`` are the device's secrets,
where they are wanted; ``restoring`` and ``asnewdevice`` bring one back; ``job`` makes them by itself.
"""
