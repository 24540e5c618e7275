"""The gateway over 100,000 chunks: a search over HTTP, and the web page in a real browser, from its link to its results.

A real `crystal serve` answers, on a home that holds the memory of `memories`. The browser's rows are left out where there is
no Chromium.
"""

import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx

from bench.harness import Row, percentile, value_at_most
from bench.memories import embedded, filled, passages, sentences
from crystal_core.embed.builtin import BuiltinEmbedder
from crystal_node.base.settings import child_environment

SUBJECTS = 3000
SEARCH_MILLISECONDS_MAX = 200
LOAD_MILLISECONDS_MAX = 1000
_CHROMIUM = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
_CHROMIUM_QUIET = ("--disable-sync", "--no-first-run")


@contextmanager
def serving(home: Path) -> Generator[tuple[str, str, str]]:
    """Its address, a link, and the token."""
    home.joinpath("config.json").write_text(json.dumps({"version": 1, "vault": "ab" * 16}))
    for path in (home, home / "memory"):
        path.chmod(0o700)
    home.joinpath("config.json").chmod(0o600)
    process = subprocess.Popen(
        [sys.executable, "-m", "crystal_node", "serve", "--port", "0", "--json"],
        env=child_environment({"CRYSTAL_HOME": str(home)}),
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    try:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        yield told["url"], told["link"], (home / "state" / "gateway" / "token").read_text().strip()
    finally:
        process.terminate()
        process.wait(30)


def _searches(url: str, token: str, questions: list[str]) -> list[float]:
    """Milliseconds of each search, as a program asks for it. The first one, which opens the memory, comes before."""
    samples: list[float] = []
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=120) as client:
        for number, question in enumerate(questions):
            start = time.perf_counter()
            answer = client.post("/api/search", json={"query": question, "limit": 20})
            if number:
                samples.append(1000 * (time.perf_counter() - start))
            if not answer.raise_for_status().json()["results"]:
                raise RuntimeError("a search found nothing")
    return samples


def _page(url: str, link: str, questions: list[str]) -> tuple[float, list[float], int] | None:
    """Milliseconds until the page can be used, and from Enter to the results of each search; requests to anybody else."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        return None
    from playwright.sync_api import sync_playwright

    strangers: list[str] = []
    samples: list[float] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*_CHROMIUM, *_CHROMIUM_QUIET])
        page = browser.new_page()
        page.on(
            "request", lambda request: None if request.url.startswith(url) else strangers.append(request.url)
        )
        page.goto("about:blank")
        start = time.perf_counter()
        page.goto(link)
        page.wait_for_selector("#query:focus")
        loaded = 1000 * (time.perf_counter() - start)
        page.evaluate(
            """() => {
                window.shown = (query) => new Promise((done) => {
                    const began = performance.now();
                    let begun = false;  // before, the results are those of the last search, or there is no place for any
                    new MutationObserver((_, seen) => {
                        const busy = document.querySelector('.results[aria-busy]') !== null;
                        begun ||= busy;
                        if (busy || !begun || !document.querySelector('.results .hit')) return;
                        seen.disconnect();
                        requestAnimationFrame(() => done(performance.now() - began));
                    }).observe(document.body, { attributeFilter: ['aria-busy'], childList: true, subtree: true });
                    document.querySelector('#query').value = query;
                    document.querySelector('#searching').requestSubmit();
                });
            }"""
        )
        samples = [float(page.evaluate("(query) => window.shown(query)", question)) for question in questions]
        browser.close()
    return loaded, samples, len(strangers)


def run(quick: bool) -> list[Row]:
    size, subjects, asked = (5_000, 300, 20) if quick else (100_000, SUBJECTS, 100)
    texts = sentences()
    with tempfile.TemporaryDirectory() as name, BuiltinEmbedder() as embedder:
        vectors = embedded(embedder, texts[:subjects])
        memory = passages(size, texts[:subjects], vectors)
        home = Path(name)
        (home / "memory").mkdir()
        filled(home / "memory" / "crystal.db", memory, embedder.identity).close()
        embedder.release()
        random.Random(3).shuffle(questions := texts[subjects : subjects + asked])
        with serving(home) as (url, link, token):
            searches = _searches(url, token, questions)
            shown = _page(url, link, questions)
    rows = [
        Row(
            name="search over HTTP, p95",
            value=percentile(searches, 95),
            unit="ms",
            target=value_at_most(SEARCH_MILLISECONDS_MAX),
            note=f"{size:,} chunks, 20 results; p50 {percentile(searches, 50):.1f} ms",
        )
    ]
    if shown is not None:
        loaded, samples, strangers = shown
        rows += [
            Row(
                name="page: link to usable",
                value=loaded,
                unit="ms",
                target=value_at_most(LOAD_MILLISECONDS_MAX),
                note="Chromium with an empty cache; the session is opened within it",
            ),
            Row(
                name="page: Enter to results on the screen, p95",
                value=percentile(samples, 95),
                unit="ms",
                target=value_at_most(SEARCH_MILLISECONDS_MAX),
                note=f"p50 {percentile(samples, 50):.1f} ms",
            ),
            Row(
                name="page: requests to anybody else",
                value=strangers,
                unit="",
                target=value_at_most(0),
            ),
        ]
    return rows
