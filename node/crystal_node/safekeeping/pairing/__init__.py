"""Bringing another machine into the vault by an invite: the drivers of both sides, their ports, and the QR.

``crystal_crypto.invite`` seals and opens the messages, the relay keeps the mailbox; here is who waits for what, what
a person is asked, and what is written down when. ``inviter`` and ``newcomer`` draw the two machines.
"""
