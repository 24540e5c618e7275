"""Memories: listed, remembered and changed, for the commands and for programs.

Reading is from an open device's rows, with its pending operations; writing goes into its outbox and is seen at once. Text is
cleaned before it is kept, and credentials are blanked out. While private mode is on, only a memory's status can be changed.
"""
