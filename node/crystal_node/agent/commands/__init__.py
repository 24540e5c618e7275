"""Commands between the devices of a vault: status, verify, snapshot, backup, backfill, dream-weave.

client    asking another device, and waiting for its answer
service   in the background service: listens, runs what is asked, and answers
policy    which device may have which action run here
database  what was asked and answered, in `state/commands.db`
"""
