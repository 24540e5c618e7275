"""Recall hooks and cold searches over 100,000 chunks, as processes: by the running agent's service, and without one."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from bench.harness import Row, percentile, value_at_most
from bench.memories import embedded, filled, passages, sentences
from crystal_core.embed.builtin import BuiltinEmbedder
from crystal_node.base.settings import child_environment

SUBJECTS = 3000
PROMPTS = 40

_SERVICE = """
import sys
from crystal_node.base.settings import resolve
from crystal_node.surfaces.gateway.local import LocalApi
from tests.support.local_api import NoJobs
settings = resolve()
service = LocalApi(lambda: settings, NoJobs())
print(service.start() or "ready", flush=True)
sys.stdin.read()
service.stop()
"""


def run(quick: bool) -> list[Row]:
    """A home as far as searches need one: settings that name a vault, and a filled database."""
    subjects = sentences()[: SUBJECTS + PROMPTS]
    prompts, subjects = subjects[:PROMPTS], subjects[PROMPTS:]
    repeat = 8 if quick else PROMPTS
    with tempfile.TemporaryDirectory(prefix="crystal-bench-") as folder:
        home = vault_home(Path(folder), 5_000 if quick else 100_000, subjects)
        environment = child_environment({"CRYSTAL_HOME": str(home), "HOME": folder})
        cold = [
            _hook(environment, prompt, session=f"cold-{number}")
            for number, prompt in enumerate(prompts[:repeat])
        ]
        search_cold = [_search(environment, prompt) for prompt in prompts[:repeat]]
        with _service(environment):
            _hook(environment, prompts[0], session="first")  # has the model loaded
            time.sleep(2.0)
            warm = [
                _hook(environment, prompt, session=f"warm-{number}")
                for number, prompt in enumerate(prompts[:repeat])
            ]
            search_warm = [_search(environment, prompt) for prompt in prompts[:repeat]]
        start = [
            _timed(lambda: _run([sys.executable, "-c", "pass"], environment, b"")) for _ in range(repeat)
        ]
    return [
        _row("recall hook without an agent, by words, p95", cold, start, 300.0),
        _row("recall hook through the agent, p95", warm, start, 80.0),
        _row("crystal search, cold, p95", search_cold, start, 400.0),
        _row("crystal search through the agent, p95", search_warm, start, 100.0),
    ]


def _row(name: str, samples: list[float], start: list[float], most: float) -> Row:
    return Row(
        name=name,
        value=percentile(samples, 95),
        unit="ms",
        baseline="a Python that does nothing",
        baseline_value=percentile(start, 95),
        target=value_at_most(most),
    )


def vault_home(folder: Path, count: int, subjects: list[str]) -> Path:
    """A home that names a vault, with so many chunks about those subjects."""
    home = folder / ".ldm"
    for name in ("memory", "state/agent", "state/nudge"):
        (home / name).mkdir(parents=True, mode=0o700)
    (home / "config.json").write_text(json.dumps({"version": 1, "vault": "00" * 16}))
    with BuiltinEmbedder() as embedder:
        made = passages(count, subjects, embedded(embedder, subjects))
        filled(home / "memory" / "crystal.db", made, embedder.identity).close()
    for path in home.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    home.chmod(0o700)
    return home


@contextmanager
def _service(environment: dict[str, str]) -> Generator[None]:
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVICE], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        if (said := process.stdout.readline()) != b"ready\n":
            raise RuntimeError(said.decode())
        yield
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()


def _hook(environment: dict[str, str], prompt: str, *, session: str) -> float:
    told = {"hook_event_name": "UserPromptSubmit", "session_id": session, "cwd": "/", "prompt": prompt}
    home = environment["CRYSTAL_HOME"]
    words = [sys.executable, "-m", "crystal_node", "recall", "--hook", "--home", home]
    return _timed(lambda: _run(words, environment, json.dumps(told).encode()))


def _search(environment: dict[str, str], prompt: str) -> float:
    words = [sys.executable, "-m", "crystal_node", "search", "--fast", "--json", "--", prompt]
    return _timed(lambda: _run(words, environment, b""))


def _run(words: list[str], environment: dict[str, str], told: bytes) -> None:
    subprocess.run(words, env=environment, input=told, capture_output=True, check=True)


def _timed(work: Callable[[], object]) -> float:
    """Milliseconds."""
    began = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - began)


__all__ = ["run"]

if __name__ == "__main__":
    print(run(quick=bool(os.environ.get("QUICK"))))
