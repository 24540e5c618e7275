"""Takes the steps of deploy/Containerfile by hand, where no container can be built, and runs what comes out of them.

`unshare --mount --net --ipc python -m tests.support.image_rehearsal WHEEL STATE_DIRECTORY`, as root. Prints one JSON document.

The wheel is installed into a new environment at the image's own path; the packages that it needs come from the environment of
the tests, since no test may need the network. Then, as the image's user, without any capability, with nothing writable but the
volume and `/tmp`: start by ENTRYPOINT and CMD with the image's environment, ask HEALTHCHECK, write and read, stop.
"""

import json
import os
import re
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

from tests.support.container_file import ContainerFile
from tests.support.unit_sandbox import hide_homes, read_only_but, run

PROJECT = Path(__file__).resolve().parents[2]
PLACE = Path("/opt/crystal-relay")
VOLUME = Path("/var/lib/crystal-relay")
DEVICE = PLACE / "device"
"""What a device has and the image has not: `crypto/` of the sources."""
START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 20.0
EVERY_MODULE = """
import importlib, pathlib, pkgutil, crystal_relay
for module in pkgutil.walk_packages(crystal_relay.__path__, "crystal_relay."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print(pathlib.Path(crystal_relay.__file__).parent)
"""
WRITE_AND_READ = """
import asyncio, secrets
from crystal_crypto.hierarchy import Root  # a device's, from the sources
from crystal_relay.client.http import HttpStore
from crystal_relay.tokens import new_token, recovery_hash, token_hash
from crystal_relay.wire import RootProof
async def main():
    device, root = secrets.token_bytes(16), Root.generate()
    token, vault = new_token(device), root.vault.hex()
    store = HttpStore("http://127.0.0.1:18791", vault=vault, token=token)
    hashes = {"recovery_hash": recovery_hash(bytes(32)), "token_hash": token_hash(token)}
    named = {name: bytes.fromhex(text) for name, text in hashes.items()}
    signature = root.sign_founding(vault=root.vault, device=device, host=store.host, **named)
    proof = RootProof(root.admin.public.to_bytes().hex(), [], signature.hex())
    await store.create_vault(enroll_token="%s", device=device, proof=proof, **hashes)
    body = secrets.token_bytes(3_000_000)
    await store.put_new(f"v/{vault}/blob/a", body)
    print("same" if await (await store.get(f"v/{vault}/blob/a")).read() == body else "other")
    await store.aclose()
asyncio.run(main())
"""


def main() -> None:
    wheel, state = Path(sys.argv[1]), Path(sys.argv[2])
    image = ContainerFile(PROJECT / "deploy" / "Containerfile")
    user = image.last("USER").value.split(":")[0]
    _build(wheel, state, int(user))
    enroll_token = "enrolment-token-of-the-rehearsal"
    environment = image.environment() | {"CRYSTAL_RELAY_ENROLL_TOKEN": enroll_token}
    python = str(PLACE / "bin" / "python")
    said: dict[str, object] = {"package": _as(user, environment, python, "-c", EVERY_MODULE)}
    command = image.last("ENTRYPOINT").words() + image.last("CMD").words()
    relay = subprocess.Popen(_dropped(user, *command), env=environment, stdout=subprocess.PIPE, cwd="/")
    try:
        check = image.last("HEALTHCHECK").words()
        said["healthy"] = _until_healthy(_dropped(user, *check), environment)
        device = environment | {"PYTHONPATH": str(DEVICE)}
        said["round"] = _as(user, device, python, "-c", WRITE_AND_READ % enroll_token)
        status = Path(f"/proc/{relay.pid}/status").read_text()
        said["uid"] = re.findall(r"^Uid:\s+(\d+)", status, re.MULTILINE)[0]
        said["capabilities"] = re.findall(r"^CapBnd:\s+(\w+)", status, re.MULTILINE)[0]
        said["written"] = sorted(path.name for path in VOLUME.iterdir())
    finally:
        relay.terminate()
        try:
            said["exit"] = relay.wait(STOP_SECONDS_MAX)
        finally:
            relay.kill()
    said["healthy_when_stopped"] = subprocess.run(
        _dropped(user, *check), env=environment, capture_output=True, check=False
    ).returncode
    sys.stdout.write(json.dumps(said) + "\n")


def _build(wheel: Path, state: Path, user: int) -> None:
    """The build stage, and the file systems as a container would have them."""
    run("mount", "--make-rprivate", "/")
    run("ip", "link", "set", "lo", "up")
    run("mount", "-t", "tmpfs", "-o", "mode=0755,size=512m", "tmpfs", "/opt")
    run("mount", "-t", "tmpfs", "-o", "mode=0755,size=1m", "tmpfs", "/var/lib")
    run(sys.executable, "-m", "venv", "--without-pip", str(PLACE))
    pip = (
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--python",
        str(PLACE / "bin" / "python"),
    )
    run(*pip, "install", "--quiet", "--no-index", "--no-deps", str(wheel))
    packages = PLACE / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    # Wherever the tests' environment is: its place may be one of those that are hidden below.
    dependencies = PLACE / "dependencies"
    dependencies.mkdir()
    run("mount", "--bind", sysconfig.get_path("purelib"), str(dependencies))
    DEVICE.mkdir()
    run("mount", "--bind", str(PROJECT / "crypto"), str(DEVICE))
    # A line of a .pth file is not searched for further .pth files: the editable project in there stays out.
    (packages / "dependencies.pth").write_text(f"{dependencies}\n")
    VOLUME.mkdir()
    run("mount", "--bind", str(state), str(VOLUME))
    os.chown(VOLUME, user, user)
    hide_homes(state.parent / "hold")
    run("mount", "-t", "tmpfs", "-o", "mode=1777,size=64m", "tmpfs", "/tmp")
    read_only_but(VOLUME, Path("/tmp"))


def _dropped(user: str, *command: str) -> list[str]:
    identity = ("--reuid", user, "--regid", user, "--clear-groups")
    nothing = ("--bounding-set", "-all", "--inh-caps", "-all", "--no-new-privs")
    return ["setpriv", *identity, *nothing, "--", *command]


def _as(user: str, environment: dict[str, str], *command: str) -> str:
    done = subprocess.run(
        _dropped(user, *command), env=environment, stdout=subprocess.PIPE, text=True, check=True, cwd="/"
    )
    return done.stdout.strip()


def _until_healthy(check: list[str], environment: dict[str, str]) -> bool:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        if subprocess.run(check, env=environment, capture_output=True, check=False).returncode == 0:
            return True
        time.sleep(0.1)
    return False


if __name__ == "__main__":
    main()
