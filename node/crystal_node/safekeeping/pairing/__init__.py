"""Pairing a new device by an invite: the drivers of both sides, their ports, and the QR code.

``crystal_crypto.invite`` seals and opens the messages and the relay keeps the mailbox. This package decides who waits for what,
what a person is asked, and what is stored when. ``inviter`` and ``newcomer`` hold the state machines of the two sides.
"""
