"""Taking a memory out as plain files, and bringing one in: an export of ours, or what the published prototype left.

| module | what it is |
|---|---|
| `records` | the lines of an export, as types |
| `exporting`, `importing` | a memory as lines and files; an export into a vault |
| `published`, `takeover` | the prototype's databases, read only; its home, made ours in place |
| `taking` | records into the memory, wherever they were read: in batches, each piece once |
| `saying` | what was taken in, in words |

Nothing that comes in is believed: it is recorded anew by this device. A damaged export is refused before anything of it is.
"""
