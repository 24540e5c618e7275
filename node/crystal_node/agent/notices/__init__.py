"""What needs a person, said on the desktop once a day at most: ``needs`` decides what, ``desktop`` shows it, ``job`` does it.

A desktop's notices are read by who passes by, and kept in lists: so they are sentences of our own, without a name of a device
or an agent, without a path, and without a word of any conversation. `crystal status` and `crystal doctor` tell the rest.
"""
