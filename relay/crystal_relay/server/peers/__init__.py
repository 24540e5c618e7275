"""Relay processes over one bucket tell each other what was written through them, and whose credentials to forget."""

from crystal_relay.server.peers.announcement import announce_forget
from crystal_relay.server.peers.fleet import Peers
from crystal_relay.server.peers.status import PeerLink, PeersStatus
from crystal_relay.server.peers.times import PeerTimes

__all__ = ["PeerLink", "PeerTimes", "Peers", "PeersStatus", "announce_forget"]
