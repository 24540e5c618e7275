"""The published prototype's routes, for devices that still run it. Off unless the relay runs with `--v1`.

names      channels, spaces, ids and keys in the store    tokens   tokens and the readers of each channel
spool      a drop's body while it arrives                 drops    drop, list, pick up, confirm
documents  the JSON                                       routes   the HTTP side
openapi    their description

docs/relay-v1.md specifies the routes, and names what the old wire format leaves open.
"""
