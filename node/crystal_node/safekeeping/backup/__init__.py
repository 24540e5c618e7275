"""Backups: a copy of one device's home in a folder of the person's choice, made while other processes go on.

``creation`` makes one, ``restore`` brings one back, ``verification`` reads one, ``job`` makes them on a timetable.
``databases`` copies what SQLite holds, ``tree`` finds the files, ``keys`` copies the device's secrets; ``manifest`` says what
is in a backup, ``folder`` holds several of them.
"""
