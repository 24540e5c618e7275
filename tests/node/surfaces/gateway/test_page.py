"""The web page in a real browser: what a person does with it, by mouse, keyboard and phone."""

import re
from collections.abc import Generator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.chromium import Tab, page_of, tab
from tests.support.gateway import Gateway

LONG = "A long word: " + "x" * 300


@pytest.fixture
def shown(browser: Browser, gateway: Gateway) -> Generator[Tab]:
    with page_of(browser, gateway) as opened:
        expect(opened.page.locator("#query")).to_be_focused()
        yield opened


def _search(page: Page, query: str) -> None:
    page.locator("#query").fill(query)
    page.keyboard.press("Enter")
    expect(page.locator(".results")).not_to_have_attribute("aria-busy", "true")


def test_a_link_opens_the_page_once_and_leaves_no_trace_in_the_address(
    browser: Browser, gateway: Gateway
) -> None:
    link = gateway.machine.run("serve", "--link", "--json").json["link"]
    with tab(browser) as first:
        first.page.goto(link)
        expect(first.page.locator("#query")).to_be_visible()
        assert "link=" not in first.page.url
        assert gateway.token not in str(
            first.page.evaluate("JSON.stringify([sessionStorage, localStorage, document.cookie])")
        )
        assert not any("link=" in url or gateway.token in url for url in first.requests)
        first.page.reload()  # this tab stays open
        expect(first.page.locator("#query")).to_be_visible()
    with tab(browser) as second:
        second.page.goto(link)
        expect(second.page.locator("#view-locked")).to_contain_text("opened before")
        expect(second.page.locator("#query")).to_be_hidden()


def test_without_a_link_the_page_shows_nothing_and_says_how_to_open_it(
    browser: Browser, gateway: Gateway
) -> None:
    with tab(browser) as opened:
        page = opened.page
        page.goto(gateway.url)
        expect(page.locator("#view-locked")).to_contain_text("crystal serve --link")
        page.get_by_label("Or paste the gateway's token").fill("a-wrong-token-of-some-length")
        page.get_by_role("button", name="Open").click()
        expect(page.locator("#view-locked")).to_contain_text("not the gateway's token")
        expect(page.locator("#query")).to_be_hidden()
        page.get_by_label("Or paste the gateway's token").fill(gateway.token)
        page.get_by_role("button", name="Open").click()
        _search(page, "importer")
        expect(page.locator(".hit").first).to_be_visible()
        assert gateway.token not in str(page.evaluate("JSON.stringify([sessionStorage, localStorage])"))


def test_a_search_finds_marks_and_narrows(shown: Tab) -> None:
    page = shown.page
    _search(page, "retry budget of the importer")
    first = page.locator(".hit").first
    expect(first).to_contain_text("eleven attempts")
    expect(first.locator("mark").first).to_have_text(re.compile("retry|budget|importer", re.IGNORECASE))
    page.locator(".filters summary").click()
    page.locator(".filters .choice[data-value=memory]").click()
    expect(page.locator(".hit")).to_have_count(0)
    expect(page.locator(".empty")).to_contain_text("Nothing found")
    expect(page.locator(".badge")).to_have_text("1")
    page.get_by_role("button", name="Clear filters").click()
    expect(first).to_contain_text("eleven attempts")
    page.locator(".filters .choice[data-value=yes]").click()
    expect(page.locator(".scores").first).to_contain_text("by words (100% of the best match")
    assert "_" not in page.locator(".scores").first.inner_text()


def test_the_keyboard_alone_is_enough(shown: Tab) -> None:
    page = shown.page
    keys = page.keyboard
    _search(page, "importer readings crane")
    hits = page.locator(".hit")
    expect(hits).to_have_count(3)
    keys.press("ArrowDown")
    expect(hits.nth(0)).to_be_focused()
    keys.press("j")
    expect(hits.nth(1)).to_have_attribute("aria-selected", "true")
    keys.press("k")
    keys.press("Enter")
    expect(page.locator(".reader .asked")).to_be_visible()
    expect(page.locator(".reader")).to_be_focused()
    keys.press("Escape")
    expect(page.locator(".reader")).to_be_hidden()
    expect(hits.nth(0)).to_be_focused()
    keys.press("/")
    expect(page.locator("#query")).to_be_focused()
    keys.press("Escape")
    keys.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Keys")
    keys.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    for number, view in enumerate(("home", "projects", "memories", "devices"), start=1):
        keys.press(str(number))
        expect(page.locator(f"#view-{view}")).to_be_visible()
    keys.press("Tab")
    focused = "el => getComputedStyle(el).outlineStyle"
    assert page.evaluate(f"({focused})(document.activeElement)") != "none"


def test_a_text_is_read_with_what_stands_around_it(shown: Tab) -> None:
    page = shown.page
    _search(page, "raw readings of the sensors")
    page.locator(".hit").first.click()
    pieces = page.locator(".reader .piece")
    expect(pieces).to_have_count(3)
    expect(page.locator(".reader .asked")).to_contain_text("ninety days")
    page.locator(".reader .chip", has_text="claude-code").click()
    expect(page.locator("#view-search .chips [data-filter=agent]")).to_contain_text("claude-code")


def test_further_results_come_by_a_button(shown: Tab, gateway: Gateway) -> None:
    made = [
        gateway.post(
            "/api/memories", {"text": f"Locker {n} of the depot holds tool {n * 7}.", "keep_both": True}
        )["id"]
        for n in range(24)
    ]
    page = shown.page
    _search(page, "locker of the depot")
    shown_first = page.locator(".hit").count()
    if page.locator(".results > button").is_visible():  # what is almost the same stands behind one
        page.locator(".results > button").click()
        expect(page.locator(".hit").nth(shown_first)).to_be_focused()
    assert page.locator(".hit").count() >= min(shown_first, 24)
    gateway.post("/api/forget", {"ids": made})


def test_a_memory_is_edited_put_aside_and_forgotten(shown: Tab, gateway: Gateway) -> None:
    page = shown.page
    page.get_by_role("link", name="Memories", exact=True).click()
    page.get_by_role("button", name="Remember…").click()
    page.get_by_role("dialog").get_by_label("Text").fill("The green lamp stands in the shed.")
    page.get_by_role("dialog").get_by_role("button", name="Remember").click()
    card = page.locator(".card.memory", has_text="green lamp")
    expect(card).to_contain_text("The green lamp stands in the shed.")

    card.get_by_role("button", name="Edit").click()
    page.get_by_role("dialog").get_by_label("Text").fill("The green lamp stands in the barn.")
    page.get_by_role("dialog").get_by_label("Category").select_option("preference")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(card).to_contain_text("barn")
    expect(card.locator(".kind")).to_have_text("preference")
    expect(card.locator(".project")).to_have_count(0)
    card.get_by_role("button", name="Edit").click()
    name = gateway.get("/api/projects")["projects"][0]["name"]
    page.get_by_role("dialog").get_by_label("For").select_option(name)
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(card.locator(".project")).to_have_text(f"for {name}")
    card.get_by_role("button", name="Edit").click()
    page.get_by_role("dialog").get_by_label("For").select_option("Everywhere")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(card.locator(".project")).to_have_count(0)
    card.get_by_role("button", name="History").click()
    expect(page.locator(".history")).to_contain_text("shed")
    page.keyboard.press("Escape")

    card.get_by_role("button", name="Put aside").click()
    expect(card).to_have_count(0)
    page.get_by_label("State").select_option("retired")
    card.get_by_role("button", name="Use again").click()
    page.get_by_label("State").select_option("active")
    card.get_by_role("button", name="Forget…").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(card).to_have_count(1)
    card.get_by_role("button", name="Forget…").click()
    page.get_by_role("dialog").get_by_role("button", name="Forget it").click()
    expect(card).to_have_count(0)
    assert not [
        hit
        for hit in gateway.post("/api/search", {"query": "green lamp"})["results"]
        if "barn" in hit["text"]
    ]


def test_devices_and_their_lag_are_on_a_picture_and_in_a_table(shown: Tab) -> None:
    page = shown.page
    page.get_by_role("link", name="Settings").click()
    expect(page.locator("svg.flow")).to_contain_text("Relay")
    expect(page.locator("svg.flow .core")).to_contain_text("Core")
    expect(page.locator("#view-devices table tbody tr")).to_have_count(1)
    expect(page.locator(".channels")).to_contain_text("Conversations")


def test_jobs_without_an_agent_say_what_starts_one(shown: Tab) -> None:
    page = shown.page
    page.get_by_role("link", name="Settings").click()
    page.get_by_role("link", name="Jobs").click()
    expect(page.locator("#view-jobs")).to_contain_text("crystal agent start")


def test_colours_follow_the_system_and_the_person(browser: Browser, gateway: Gateway) -> None:
    with tab(browser, dark=True) as opened:
        page = opened.page
        page.goto(gateway.link())
        expect(page.locator("#query")).to_be_visible()
        background = "() => getComputedStyle(document.body).backgroundColor"
        dark = page.evaluate(background)
        button = page.get_by_role("button", name="Colours")
        button.click()
        light = page.evaluate(background)
        assert light != dark
        page.reload()
        assert page.evaluate(background) == light
        button.click()
        assert page.evaluate(background) == dark


def test_a_phone_shows_every_view_without_scrolling_sideways(browser: Browser, gateway: Gateway) -> None:
    made = gateway.post("/api/memories", {"text": LONG})
    with tab(browser, width=360, height=740) as opened:
        page = opened.page
        page.goto(gateway.link())
        # What is wider than the screen, or the page's width if that is all that tells of it.
        width = """() => document.documentElement.scrollWidth === innerWidth ? innerWidth
            : [...document.querySelectorAll("body *")].filter((node) => node.checkVisibility()
                && node.getBoundingClientRect().right > innerWidth).map((node) => node.outerHTML.slice(0, 200))"""
        _search(page, "long word importer readings crane")
        expect(page.locator(".hit").first).to_be_visible()
        page.locator(".filters summary").click()
        assert page.evaluate(width) == 360
        page.locator(".filters summary").click()
        page.locator(".hit").first.click()
        expect(page.locator(".reader .asked")).to_be_in_viewport()
        expect(page.locator(".results")).to_be_hidden()
        assert page.evaluate(width) == 360
        page.get_by_role("button", name="Close").click()
        expect(page.locator(".hit").first).to_be_visible()
        views = (("Memories", ".card.memory"), ("Settings", "svg.flow"), ("Jobs", "#view-jobs h1"))
        for view, there in (*views, ("Projects", ".card.project"), ("Home", ".entry")):
            page.get_by_role("link", name=view, exact=True).click()
            expect(page.locator(there).first).to_be_visible()
            assert page.evaluate(width) == 360, view
        assert opened.faults == []
    gateway.post("/api/forget", {"ids": [made["id"]]})


def test_a_gateway_that_has_gone_is_told_and_the_page_goes_on(shown: Tab) -> None:
    page = shown.page
    page.route("**/api/search", lambda route: route.abort())
    _search(page, "importer")
    expect(page.locator(".failed")).to_contain_text("does not answer")
    page.unroute("**/api/search")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".hit").first).to_be_visible()
