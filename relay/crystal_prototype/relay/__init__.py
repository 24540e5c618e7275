"""The published prototype's routes, for devices that still run it. Off unless `Settings.v1` says otherwise.

names    channels, spaces, ids and the keys that hold them    tokens   who may, and who has to have read what
spool    a drop's body while it arrives                       drops    drop, list, pick up, confirm
wire     the JSON                                             routes   the HTTP side
openapi  their description

What it promises, and what the old wire format cannot: docs/relay-v1.md.
"""
