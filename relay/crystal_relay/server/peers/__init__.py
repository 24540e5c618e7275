"""Relay processes over one bucket: each tells the others what was written through it, and whose credentials to forget."""

from crystal_relay.server.peers.announcement import announce_forget
from crystal_relay.server.peers.fleet import Peers, PeersStatus
from crystal_relay.server.peers.times import PeerTimes

__all__ = ["PeerTimes", "Peers", "PeersStatus", "announce_forget"]
