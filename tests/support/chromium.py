"""The system's Chromium without a window, for tests of web pages: what it would fetch by itself is turned off."""

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Browser, BrowserContext, Dialog, Page, expect, sync_playwright

from tests.support.gateway import Gateway

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
WAIT_MILLISECONDS_MAX = 30_000


@contextmanager
def chromium() -> Generator[Browser]:
    """A browser. Skips the test where there is none."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no Chromium is installed here")
    expect.set_options(timeout=WAIT_MILLISECONDS_MAX)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*ARGUMENTS])
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Tab:
    """A page in a profile of its own, and what it did that nobody should: faults, dialogs, requests."""

    context: BrowserContext
    page: Page
    faults: list[str] = field(default_factory=list[str])
    requests: list[str] = field(default_factory=list[str])
    statuses: list[int] = field(default_factory=list[int])

    def strangers(self, own: str) -> list[str]:
        """Requests to anybody but the gateway at ``own``."""
        return [url for url in self.requests if not url.startswith(own)]


@contextmanager
def tab(
    browser: Browser, *, width: int = 1280, height: int = 860, dark: bool = False, still: bool = True
) -> Generator[Tab]:
    """An empty tab. ``still``: the person wants no motion."""
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce" if still else "no-preference",
        service_workers="block",
    )
    context.set_default_timeout(WAIT_MILLISECONDS_MAX)
    page = context.new_page()
    opened = Tab(context, page)
    page.on("pageerror", lambda error: opened.faults.append(f"error: {error}"))

    def dismiss(shown: Dialog) -> None:
        opened.faults.append(f"dialog: {shown.message}")
        shown.dismiss()

    page.on("dialog", dismiss)
    context.on("request", lambda request: opened.requests.append(request.url))
    context.on("response", lambda response: opened.statuses.append(response.status))
    context.on("page", lambda another: opened.faults.append(f"opened {another.url}"))
    try:
        yield opened
    finally:
        context.close()


@contextmanager
def page_of(browser: Browser, gateway: Gateway, *, width: int = 1280, height: int = 860) -> Generator[Tab]:
    """A gateway's page, opened by a link of its own. Nothing may go wrong in it, and nothing leave this machine."""
    with tab(browser, width=width, height=height) as opened:
        opened.page.goto(gateway.link())
        yield opened
        assert opened.faults == []
        assert opened.strangers(gateway.url) == []
