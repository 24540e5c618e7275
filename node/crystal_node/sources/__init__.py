"""Sources: folders of a person that are read into the memory, kept up to date, and found by every device.

| module | what it knows |
|---|---|
| `ignoring` | ignore files, as git has them |
| `kinds` | what a file is by its name, and what is never looked at |
| `scan` | one pass over a folder |
"""
