"""Ceph's object gateway (radosgw) over one monitor and one object store in memory: the reference for what S3 promises.

Conditions are atomic, signatures count, and lifecycle rules really act: a "day" of a rule lasts DAY_SECONDS here. From Debian's
or Ubuntu's packages; run from the programs alone, never through the system's services.
"""

import contextlib
import secrets
import shutil
import uuid
from collections.abc import Generator

from tests.support.s3_servers.daemons import Daemons, accepts, daemons, free_port
from tests.support.s3_servers.server import S3Server, ServerMissing

PROGRAMS = (
    "ceph",
    "ceph-authtool",
    "ceph-mon",
    "ceph-osd",
    "monmaptool",
    "osdmaptool",
    "radosgw",
    "radosgw-admin",
)
PACKAGES = ("radosgw", "ceph-mon", "ceph-osd")

# How long a lifecycle rule's day lasts. Rules are looked at as often.
DAY_SECONDS = 2

# cephx must be on: without it radosgw does not come up. One copy of everything, few placement groups (each costs start-up
# time), no journal of operations, and no warning about any of this.
CONFIGURATION = """
[global]
fsid = {fsid}
mon host = v2:127.0.0.1:{mon_port}
ms bind msgr1 = false
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
keyring = {directory}/keyring
run dir = {directory}
log file =
log to stderr = true
err to stderr = true
debug rocksdb = 0/0
debug mon = 0/0
debug osd = 0/0
debug bluestore = 0/0
admin socket =
pid file =
crash dir = {directory}
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
mon max pg per osd = 10000
mon warn on pool no redundancy = false

[mon]
mon data = {directory}/mon
mon cluster log to file = false
mon cluster log to stderr = false
mon data avail crit = 0
mon data avail warn = 0
paxos propose interval = 0.05
paxos min wait = 0.01

[osd]
public addr = 127.0.0.1
cluster addr = 127.0.0.1
osd data = {directory}/osd
osd objectstore = memstore
memstore device bytes = 4294967296
osd class load list = *
osd class default list = *
osd max object name len = 1024
osd check max object name len on startup = false

[client.rgw]
rgw data = {directory}/rgw
rgw frontends = beast endpoint=127.0.0.1:{port} tcp_nodelay=1
rgw lc debug interval = {day}
rgw lc max worker = 1
rgw thread pool size = 64
rgw enable usage log = false
rgw enable ops log = false
rgw dynamic resharding = false
rgw override bucket index max shards = 1
rgw run sync thread = false
rgw rados pool pg num min = 1
rgw enable apis = s3
"""


@contextlib.contextmanager
def rgw() -> Generator[S3Server]:
    """An object gateway and what it stands on."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        raise ServerMissing(
            f"Ceph's object gateway is not installed ({', '.join(missing)}): apt install {' '.join(PACKAGES)}"
        )
    with daemons("rgw") as running:
        port = free_port()
        configuration = running.directory / "ceph.conf"
        configuration.write_text(
            CONFIGURATION.format(
                fsid=(fsid := uuid.uuid4()),
                mon_port=(mon_port := free_port()),
                directory=running.directory,
                port=port,
                day=DAY_SECONDS,
            )
        )
        for part in ("mon", "osd", "rgw"):
            (running.directory / part).mkdir()
        _make_cluster(running, str(fsid), mon_port)
        access, secret = secrets.token_hex(10), secrets.token_hex(20)
        running.run(
            *("radosgw-admin", "-c", configuration, "-n", "client.rgw", "user", "create"),
            *("--uid", "owner", "--display-name", "owner", "--access-key", access, "--secret-key", secret),
        )
        running.start("radosgw", "radosgw", "-f", "-c", configuration, "-n", "client.rgw")
        running.until("answer from radosgw", lambda: accepts(port))
        yield S3Server("rgw", f"http://127.0.0.1:{port}", access, secret, "").with_new_bucket()


def _make_cluster(running: Daemons, fsid: str, mon_port: int) -> None:
    """A monitor and its one object store. Keys and map are given at its birth, which spares seconds of commands."""
    here = running.directory
    conf = ("-c", here / "ceph.conf")
    for name, *capabilities in (
        ("mon.", "mon", "allow *"),
        ("client.admin", "mon", "allow *", "osd", "allow *"),
        ("client.rgw", "mon", "allow *", "osd", "allow *"),
        ("osd.0", "mon", "allow profile osd", "osd", "allow *"),
    ):
        running.run(
            *(
                "ceph-authtool",
                here / "keyring",
                *(() if (here / "keyring").exists() else ("--create-keyring",)),
            ),
            *("--gen-key", "-n", name),
            *(
                part
                for kind, what in zip(capabilities[::2], capabilities[1::2], strict=True)
                for part in ("--cap", kind, what)
            ),
        )
    running.run(
        "monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v2:127.0.0.1:{mon_port}]", here / "monmap"
    )
    running.run("osdmaptool", *conf, "--createsimple", "1", here / "osdmap")
    running.run(
        *("ceph-mon", *conf, "--mkfs", "-i", "a", "--monmap", here / "monmap", "--osdmap", here / "osdmap"),
        *("--keyring", here / "keyring"),
    )
    running.start("ceph-mon", "ceph-mon", "-f", *conf, "-i", "a")
    running.until("answer from ceph-mon", lambda: accepts(mon_port))
    running.run("ceph", *conf, "-n", "client.admin", "osd", "new", identity := str(uuid.uuid4()), "0")
    running.run("ceph-osd", *conf, "--mkfs", "-i", "0", "--osd-uuid", identity)
    running.start("ceph-osd", "ceph-osd", "-f", *conf, "-i", "0")
