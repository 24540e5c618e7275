"""One end of a wire: a process that makes a network namespace's TUN device and hands it over.

    unshare --user --map-root-user --net python -m tests.support.networks.ends SOCKET ADDRESS

It sets the device up with the address, sends its file descriptor over the socket, and then only keeps the namespace alive
until its standard input ends. No program of the system's is needed for it, and no rights but those in the namespace.
"""

import fcntl
import os
import socket
import struct
import sys

DEVICE = b"wire0"
MTU = 1500

_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8913, 0x8914
_SIOCSIFADDR, _SIOCSIFNETMASK = 0x8916, 0x891C
_IFF_UP = 0x1
_READY = b"ready"


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", DEVICE, _IFF_TUN | _IFF_NO_PI))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFADDR, _request(DEVICE, sys.argv[2]))
        fcntl.ioctl(control, _SIOCSIFNETMASK, _request(DEVICE, "255.255.255.0"))
        for name in (b"lo", DEVICE):
            flags = fcntl.ioctl(control, _SIOCGIFFLAGS, struct.pack("16sH22x", name, 0))
            (before,) = struct.unpack("16xH22x", flags)
            fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH22x", name, before | _IFF_UP))
    socket.send_fds(channel, [_READY], [device])
    sys.stdin.read()


def _request(name: bytes, address: str) -> bytes:
    return struct.pack("16sHH4s16x", name, socket.AF_INET, 0, socket.inet_aton(address))


if __name__ == "__main__":
    main()
