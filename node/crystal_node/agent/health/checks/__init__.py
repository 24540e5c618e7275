"""The doctor's checks, by what they check. Each opens what it needs and closes it again.

| module | checks |
|---|---|
| `home` | who may use the home's files, space on its disks, older copies |
| `keys` | the key store and its passphrase |
| `databases` | every database's file |
| `memory` | the memory's indexes, and the embedding model's files |
| `device` | what an open device knows: outbox, device log, access, keys' generation, snapshots, recovery kit |
| `background` | hooks, service, jobs, staging, backups |
| `relay` | whether the relay can be reached, has the right time, and still holds what this device has seen there |
"""
