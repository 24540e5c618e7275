"""A real `crystal serve` of a machine, and ways to ask it: as a program with the token, as a browser with a link."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from crystal_node.base.clock import now_ms
from crystal_node.base.home import Home
from crystal_node.surfaces.gateway.access import new_link
from tests.support.machine import Machine

END_SECONDS_MAX = 30
ANSWER_SECONDS_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Gateway:
    """One that runs. ``url`` ends with a slash; ``first_link`` is the one that it printed."""

    machine: Machine
    url: str
    first_link: str
    pid: int
    token: str

    @property
    def port(self) -> int:
        return int(self.url.rstrip("/").rpartition(":")[2])

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str | None = "",
        headers: dict[str, str] | None = None,
    ) -> httpx.Response:
        """One request. ``token``: the gateway's own if "", none if None."""
        sent = dict(headers or {})
        if token is not None:
            sent["Authorization"] = f"Bearer {token or self.token}"
        with httpx.Client(base_url=self.url, timeout=ANSWER_SECONDS_MAX, trust_env=False) as client:
            return client.request(method, path, json=body, headers=sent)

    def ask_raw(self, path: str, body: bytes) -> httpx.Response:
        """A POST of these bytes, said to be JSON."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        with httpx.Client(base_url=self.url, timeout=ANSWER_SECONDS_MAX, trust_env=False) as client:
            return client.request("POST", path, content=body, headers=headers)

    def get(self, path: str) -> Any:
        """What a GET that goes well answers."""
        return _good(self.ask("GET", path))

    def post(self, path: str, body: object) -> Any:
        """What a POST that goes well answers."""
        return _good(self.ask("POST", path, body))

    def patch(self, path: str, body: object) -> Any:
        """What a PATCH that goes well answers."""
        return _good(self.ask("PATCH", path, body))

    def link(self) -> str:
        """Another link to the page, good once; what `crystal serve --link` prints."""
        return f"{self.url}#link={new_link(Home(self.machine.home), now_ms())}"


@contextmanager
def running_gateway(machine: Machine, **variables: str) -> Generator[Gateway]:
    """On a free port, ended by SIGTERM, after which it must have ended well and said nothing wrong."""
    process = machine.start("serve", "--port", "0", "--json", **variables)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        told = json.loads(line)
        given = variables.get("CRYSTAL_SERVE_TOKEN", "")
        token = given or (machine.home / "state" / "gateway" / "token").read_text().strip()
        yield Gateway(machine, told["url"], told["link"], told["pid"], token)
        process.terminate()
        _, err = process.communicate(timeout=END_SECONDS_MAX)
        assert (process.returncode, err) == (0, ""), (process.returncode, err)
    finally:
        process.kill()
        process.communicate()


def _good(response: httpx.Response) -> Any:
    assert response.is_success, (response.status_code, response.text)
    return response.json()
