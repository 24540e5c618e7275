"""A relay behind Caddy, and devices at several addresses, in a network namespace of their own.

`unshare --net [--map-root-user] python -m tests.support.address_rehearsal DIRECTORY` prints one JSON document: which answers
each address got to requests with a token that nobody knows. The loopback addresses of an ordinary test would not do: the
relay does not count requests from its own machine.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import httpx

from crystal_relay.tokens import new_token
from tests.support.caddy import RunningCaddy, running_caddy
from tests.support.relay_process import running_relay

HASTY, CALM, FORGING = "203.0.113.7", "203.0.113.8", "203.0.113.9"
REQUESTS = 300
"""Three times what one address may fail with at once."""
VAULT, DEVICE = "a" * 32, "b" * 32


def main() -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for address in (HASTY, CALM, FORGING):
        subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
    directory = Path(sys.argv[1])
    # The setting as the files in deploy/ give it.
    os.environ["CRYSTAL_RELAY_TRUSTED_PROXY"] = "127.0.0.1"
    with running_relay(directory / "store") as relay, running_caddy(directory / "caddy", relay.url) as caddy:
        said = asyncio.run(_visit(caddy))
    sys.stdout.write(json.dumps(said) + "\n")


async def _visit(caddy: RunningCaddy) -> dict[str, dict[str, int]]:
    return {
        "hasty": await _ask(caddy, HASTY, REQUESTS),
        "calm": await _ask(caddy, CALM, 5),
        # As if each request came from somebody else, and through a proxy of the relay's own.
        "forging": await _ask(caddy, FORGING, REQUESTS, forge=True),
    }


async def _ask(caddy: RunningCaddy, address: str, count: int, *, forge: bool = False) -> dict[str, int]:
    transport = httpx.AsyncHTTPTransport(verify=caddy.tls(), local_address=address)
    async with httpx.AsyncClient(transport=transport, trust_env=False) as client:
        answers: Counter[str] = Counter()
        for number in range(count):
            headers = {"Authorization": f"Bearer {new_token(DEVICE)}"}
            if forge:
                headers["X-Forwarded-For"] = f"198.51.100.{number % 250}, 127.0.0.1"
                headers["Forwarded"] = f"for=198.51.100.{number % 250}"
            reply = await client.get(
                f"{caddy.url}/v2/vaults/{VAULT}/list", params={"prefix": "blob/"}, headers=headers
            )
            answers[str(reply.status_code)] += 1
    return dict(answers)


if __name__ == "__main__":
    main()
