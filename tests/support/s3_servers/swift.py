"""OpenStack Swift with its s3api: independent of all the others, and its conditional writes are not atomic.

Four processes (proxy, account, container, object), one disk (a directory), one copy, no memcached. It wants old setuptools, so
it lives in an environment of its own: `.venv-swift`, made by `python -m scripts.install_test_servers`.
"""

import contextlib
import os
import pwd
import secrets
from collections.abc import Generator
from functools import partial
from pathlib import Path

from tests.support.s3_servers.daemons import accepts, daemons, free_port
from tests.support.s3_servers.server import S3Server, ServerMissing

ENVIRONMENT = Path(__file__).resolve().parents[3] / ".venv-swift"
PARTS = ("account", "container", "object")

COMMON = """
[swift-hash]
swift_hash_path_suffix = {salt}
"""

STORAGE = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
user = {user}
swift_dir = {directory}
devices = {directory}/disks
mount_check = false
workers = 0
fallocate_reserve = 0
disable_fallocate = true
conn_timeout = 5
node_timeout = 60
# The list of a bucket learns of a write within this time or, without a further process, never.
container_update_timeout = 60
log_level = WARNING
log_address = {directory}/no-syslog

[pipeline:main]
pipeline = {part}-server

[app:{part}-server]
use = egg:swift#{part}
"""

PROXY = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
user = {user}
swift_dir = {directory}
workers = 0
log_level = WARNING
log_address = {directory}/no-syslog

[pipeline:main]
pipeline = catch_errors gatekeeper listing_formats bulk s3api tempauth slo proxy-server

[filter:catch_errors]
use = egg:swift#catch_errors

[filter:gatekeeper]
use = egg:swift#gatekeeper

[filter:bulk]
use = egg:swift#bulk

[filter:slo]
use = egg:swift#slo

[filter:s3api]
use = egg:swift#s3api
location = us-east-1
s3_acl = false
check_bucket_owner = false

[filter:tempauth]
use = egg:swift#tempauth
user_test_{access} = {secret} .admin

[filter:listing_formats]
use = egg:swift#listing_formats

[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
conn_timeout = 5
node_timeout = 60
# A busy machine makes the only copy slow at times; that is no reason to leave it out.
error_suppression_limit = 1000000
"""

RINGS = """
import sys
from swift.common.ring import RingBuilder
for part, port in zip(sys.argv[1::2], sys.argv[2::2]):
    builder = RingBuilder(4, 1, 0)
    builder.add_dev({"id": 0, "region": 1, "zone": 1, "ip": "127.0.0.1", "port": int(port), "device": "disk", "weight": 1})
    builder.rebalance()
    builder.get_ring().save(part + ".ring.gz")
"""


@contextlib.contextmanager
def swift() -> Generator[S3Server]:
    """A whole Swift."""
    if not (ENVIRONMENT / "installed").exists():
        raise ServerMissing(
            "Swift is not installed (.venv-swift, from the package swift): python -m scripts.install_test_servers"
        )
    with daemons("swift") as running:
        access, secret = secrets.token_hex(10), secrets.token_hex(20)
        ports = {part: free_port() for part in (*PARTS, "proxy")}
        (running.directory / "disks" / "disk").mkdir(parents=True)
        (running.directory / "swift.conf").write_text(COMMON.format(salt=secrets.token_hex(8)))
        rings = [text for part in PARTS for text in (part, str(ports[part]))]
        running.run(ENVIRONMENT / "bin" / "python", "-c", RINGS, *rings)
        for part, port in ports.items():
            settings = {
                "directory": running.directory,
                "user": pwd.getpwuid(os.getuid()).pw_name,
                "port": port,
                "part": part,
                "access": access,
                "secret": secret,
            }
            configuration = running.directory / f"{part}-server.conf"
            configuration.write_text((PROXY if part == "proxy" else STORAGE).format_map(settings))
            running.start(part, ENVIRONMENT / "bin" / f"swift-{part}-server", configuration, "--verbose")
        for part, port in ports.items():
            running.until(f"answer from Swift's {part} server", partial(accepts, port))
        # tempauth calls a user "account:user": that is the access key.
        server = S3Server("swift", f"http://127.0.0.1:{ports['proxy']}", f"test:{access}", secret, "")
        yield server.with_new_bucket()
