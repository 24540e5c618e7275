"""The page for everybody: names for what is pressed, letters that can be read, no motion where none is wanted."""

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.chromium import tab
from tests.support.gateway import Gateway

VIEWS = ("home", "search", "projects", "memories", "devices", "jobs", "page")
CONTRAST_MIN = 4.5

_CONTRASTS = """() => {
    const numbers = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
    const channels = (text) => // a mixed colour is told in parts of one
        text.startsWith("color(srgb") ? numbers(text).map((c, i) => (i < 3 ? c * 255 : c)) : numbers(text);
    const over = (top, under) => top.slice(0, 3).map((c, i) => c * (top[3] ?? 1) + under[i] * (1 - (top[3] ?? 1)));
    const light = (rgb) => {
        const [r, g, b] = rgb.map((c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (node) => {
        if (!node) return [255, 255, 255];
        const own = channels(getComputedStyle(node).backgroundColor);
        return (own[3] ?? 1) === 1 ? own.slice(0, 3) : over(own, behind(node.parentElement));
    };
    const found = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const node = walker.currentNode.parentElement;
        if (!walker.currentNode.data.trim() || !node.checkVisibility({ visibilityProperty: true })) continue;
        if (node.closest(".unseen, .skip, option, svg, :disabled")) continue;
        const style = getComputedStyle(node);
        const back = behind(node);
        const [a, b] = [light(over(channels(style.color), back)), light(back)].sort((x, y) => y - x);
        found.push([(a + 0.05) / (b + 0.05), walker.currentNode.data.trim().slice(0, 40), node.className]);
    }
    return found;
}"""

_NAMELESS = """() => [...document.querySelectorAll("button, a, input, select, textarea, [role=option], [role=img]")]
    .filter((node) => node.checkVisibility())
    .filter((node) => !(node.getAttribute("aria-label") || node.textContent.trim() || node.labels?.length))
    .map((node) => node.outerHTML)"""


def _go(page: Page, view: str) -> None:
    if view in ("devices", "jobs", "page"):
        page.locator("#nav a[data-view=settings]").click()
        page.locator(f"#subnav a[data-view={view}]").click()
    elif view != "search":  # one goes there by searching
        page.locator(f"#nav a[data-view={view}]").click()


def _visit(page: Page, view: str) -> None:
    _go(page, view)
    if view == "search":
        page.locator("#query").fill("retry budget of the importer")
        page.keyboard.press("Enter")
        page.locator(".hit").first.click()
        expect(page.locator(".reader .asked")).to_be_visible()
    ready = {
        "home": ".entry",
        "search": ".hit",
        "projects": ".card.project",
        "page": "#view-page .keys",
        "memories": ".card.memory",
        "devices": "svg.flow",
        "jobs": "#view-jobs .notice",
    }
    expect(page.locator(ready[view]).first).to_be_visible()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_all_letters_can_be_read_and_all_buttons_have_names(
    browser: Browser, gateway: Gateway, dark: bool
) -> None:
    made = gateway.post(
        "/api/memories", {"text": f"The yellow lamp is {'dark' if dark else 'light'}.", "confidence": 60}
    )
    with tab(browser, dark=dark) as opened:
        page = opened.page
        page.goto(gateway.link())
        for view in VIEWS:
            _visit(page, view)
            contrasts = page.evaluate(_CONTRASTS)
            assert len(contrasts) > 8
            assert [each for each in contrasts if each[0] < CONTRAST_MIN] == []
            assert page.evaluate(_NAMELESS) == []
    gateway.post("/api/forget", {"ids": [made["id"]]})


def test_the_page_has_its_landmarks_and_says_where_it_is(browser: Browser, gateway: Gateway) -> None:
    with tab(browser) as opened:
        page = opened.page
        page.goto(gateway.link())
        expect(page.locator("#query")).to_be_focused()
        assert page.locator("html").get_attribute("lang") == "en"
        for landmark in ("header", "nav[aria-label]", "main", "[role=search]", "[aria-live]"):
            expect(page.locator(landmark).first).to_be_attached()
        expect(page.locator("[aria-current=page]")).to_have_text("Home")
        page.locator("#query").fill("importer")
        page.keyboard.press("Enter")
        expect(page.get_by_role("listbox", name="Results").get_by_role("option").first).to_be_visible()
        expect(page.locator("#live")).to_contain_text("result")
        page.get_by_role("link", name="Settings").click()
        page.get_by_role("link", name="Jobs").click()
        expect(page).to_have_title("Jobs · Crystal")


def test_nothing_moves_where_no_motion_is_wanted(browser: Browser, gateway: Gateway) -> None:
    moving = "() => document.getAnimations().filter((each) => each.playState === 'running').length"
    with tab(browser, still=True) as opened:
        opened.page.goto(gateway.link())
        for view in VIEWS[1:]:
            _go(opened.page, view)
            assert opened.page.evaluate(moving) == 0
