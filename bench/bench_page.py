"""The web page over ten thousand conversations: its first screen, and scrolling through all of them, in a real browser.

A real `crystal serve` answers. The browser's rows are left out where there is no Chromium.
"""

import random
import shutil
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx

from bench.bench_gateway import serving
from bench.harness import Row, percentile, value_at_most
from bench.memories import DEVICE, INCARNATION, NOW, SECRET
from crystal_core.replica import Replica
from crystal_mirror.operations import Capture, Piece
from crystal_mirror.types import Origin

CONVERSATIONS, MESSAGES = 10_000, 20
PROJECTS = 40
HOUR = 3_600_000
FIRST_MILLISECONDS_MAX = 2500
LIST_MILLISECONDS_MAX = 200
FRAME_MILLISECONDS_MAX = 50
ROWS_MAX = 60
FRAMES = 240
_SCREENS_PER_FRAME = 0.25

_SCROLL = """([frames, part]) => new Promise((done) => {
    const samples = [];
    let rows = 0;
    let last = performance.now();
    scrollTo(0, 0);
    const step = (now) => {
        samples.push(now - last);
        last = now;
        rows = Math.max(rows, document.querySelectorAll('.timeline > li').length);
        if (samples.length > frames) return done([samples.slice(1), rows]);
        scrollBy(0, innerHeight * part);
        requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
})"""


def _fill(path: Path, conversations: int) -> None:
    """So many conversations of `MESSAGES` messages, the newest an hour ago, one an hour or so."""
    shuffled = random.Random(5)
    with closing(Replica.open(path, SECRET)) as replica:
        for start in range(0, conversations, 100):
            with replica.transaction() as transaction:
                for number in range(start, min(start + 100, conversations)):
                    began = NOW - number * HOUR - shuffled.randrange(HOUR)
                    pieces = tuple(
                        Piece(
                            f"What does gauge {number} of step {step} read? It should read {number * step}.",
                            ("user", "assistant")[step % 2],
                            began + step * 30_000,
                            f"{number:020}{step:016}",
                            0,
                        )
                        for step in range(MESSAGES)
                    )
                    project = f"src/project-{number % PROJECTS}"
                    capture = Capture("agent", f"{number:036}", project, "", "claude-code", pieces)
                    origin = Origin(DEVICE, INCARNATION, number + 1)
                    transaction.apply(origin, capture, lambda _: [])
                    transaction.mark_done(origin)


def _asked(url: str, token: str, conversations: int) -> tuple[float, list[float]]:
    """Milliseconds of the first list, for which all are counted, and of each further page of a hundred."""
    with httpx.Client(
        base_url=url, headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=120
    ) as client:
        samples: list[float] = []
        for offset in range(0, conversations, max(conversations // 50, 100)):
            start = time.perf_counter()
            answer = client.get("/api/conversations", params={"limit": 100, "offset": offset})
            samples.append(1000 * (time.perf_counter() - start))
            if answer.raise_for_status().json()["total"] != conversations:
                raise RuntimeError("conversations are missing")
    return samples[0], samples[1:]


def _page(url: str, link: str) -> tuple[float, list[float], int, float] | None:
    """Milliseconds to the first screen; of each frame while it scrolls; most rows in the document; and, from a jump to the
    end of the list, milliseconds until it is there."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        start = time.perf_counter()
        page.goto(link)
        page.wait_for_selector(".entry")
        shown = 1000 * (time.perf_counter() - start)
        page.wait_for_selector(".choice")
        found: Any = page.evaluate(_SCROLL, [FRAMES, _SCREENS_PER_FRAME])
        start = time.perf_counter()
        page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
        page.wait_for_function(
            "() => { const last = document.querySelector('.timeline > li:last-child');"
            " return last && last.getAttribute('aria-posinset') === last.getAttribute('aria-setsize')"
            " && last.querySelector('.entry'); }"
        )
        jumped = 1000 * (time.perf_counter() - start)
        browser.close()
    return shown, [float(each) for each in found[0]], int(found[1]), jumped


def run(quick: bool) -> list[Row]:
    conversations = 600 if quick else CONVERSATIONS
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        (home / "memory").mkdir()
        _fill(home / "memory" / "crystal.db", conversations)
        with serving(home) as (url, link, token):
            first, others = _asked(url, token, conversations)
            shown = _page(url, link)
    rows = [
        Row(
            name="first list of conversations",
            value=first,
            unit="ms",
            target=value_at_most(FIRST_MILLISECONDS_MAX),
            note=f"{conversations:,} conversations of {MESSAGES} messages; the memory is opened and all are counted",
        ),
        Row(
            name="a hundred further ones, p95",
            value=percentile(others, 95),
            unit="ms",
            target=value_at_most(LIST_MILLISECONDS_MAX),
            note=f"p50 {percentile(others, 50):.1f} ms",
        ),
    ]
    if shown is not None:
        loaded, frames, most, jumped = shown
        rows += [
            Row(
                name="page: link to the first screen",
                value=loaded,
                unit="ms",
                target=value_at_most(FIRST_MILLISECONDS_MAX),
            ),
            Row(
                name="page: a frame while it scrolls, p95",
                value=percentile(frames, 95),
                unit="ms",
                target=value_at_most(FRAME_MILLISECONDS_MAX),
                note=f"{_SCREENS_PER_FRAME} screens a frame, {FRAMES} frames; p50 {percentile(frames, 50):.1f} ms",
            ),
            Row(name="page: most rows in the document", value=most, unit="", target=value_at_most(ROWS_MAX)),
            Row(
                name="page: from a jump to the end to its rows",
                value=jumped,
                unit="ms",
                target=value_at_most(FIRST_MILLISECONDS_MAX),
            ),
        ]
    return rows
