"""Texts from anybody in the page: they are shown, letter by letter, and do nothing."""

import socket
from collections.abc import Generator
from contextlib import closing

import pytest
from playwright.sync_api import Browser, expect

from tests.support.chromium import tab
from tests.support.gateway import Gateway, running_gateway
from tests.support.machine import Machine, Vault, turn
from tests.support.relay_process import RelayProcess

HOSTILE = (
    "<script>window.hit = 1; alert(1)</script> wolfram",
    '<img src=x onerror="window.hit = 1; alert(1)"> wolfram',
    '"><svg onload="window.hit = 1"><style>body{display:none}</style> wolfram',
    "</p></li></ul><iframe srcdoc='<script>parent.hit = 1</script>'></iframe> wolfram",
    "javascript:window.hit=1 [wolfram](javascript:window.hit=1) <a href='javascript:window.hit=1'>wolfram</a>",
    "<form action='http://evil.example/'><input name=q autofocus onfocus='window.hit=1'></form> wolfram",
    "<link rel=stylesheet href=http://evil.example/a.css><meta http-equiv=refresh content='0;url=http://evil.example'> wolfram",
    "{{constructor.constructor('window.hit=1')()}} ${window.hit=1} `window.hit=1` wolfram",
    "\u202e wolfram \u0000\ufeff <b>\ud83d\ude80</b> wolfram \u2028 \u0007",
)
NAME = '<img src=x onerror="window.hit=1">'


@pytest.fixture(scope="module")
def gateway(relay: RelayProcess, tmp_path_factory: pytest.TempPathFactory) -> Generator[Gateway]:
    """Whose texts, names and memories all would like to be markup."""
    machine: Machine = Vault(relay, tmp_path_factory.mktemp("hostile")).core
    folder = machine.projects / "-home-someone-work"
    folder.mkdir(parents=True)
    with (folder / "bad.jsonl").open("w", encoding="utf-8") as file:
        for text in HOSTILE:
            file.write(turn(text, session=NAME, cwd=f"/home/{NAME}", version=NAME))
    machine.call("capture")
    for text in HOSTILE[:4]:
        machine.call("remember", f"{text} remembered")
    machine.call("sync")
    machine.call("devices", "rename", NAME, check=False)
    with running_gateway(machine) as running:
        yield running


def test_hostile_texts_are_shown_and_do_nothing(browser: Browser, gateway: Gateway) -> None:
    with tab(browser) as opened:
        page = opened.page
        page.goto(gateway.link())
        expect(page.locator(".entry").first).to_be_visible()
        expect(page.locator(".choice").first).to_be_visible()
        page.locator("#query").fill(f"wolfram {NAME}")
        page.keyboard.press("Enter")
        page.locator(".filters summary").click()
        page.locator(".filters .choice[data-value=yes]").click()
        expect(page.locator(".scores").first).to_be_visible()
        hits = page.locator(".hit")
        expect(hits.first).to_be_visible()
        for number in range(hits.count()):
            hits.nth(number).click()
            expect(page.locator(".reader .asked")).to_be_visible()
        shown = "\n".join(page.locator(".hit .snippet").all_text_contents())
        assert "<img src=x onerror=" in shown
        assert "<script>" in shown
        page.locator(".reader .danger").click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        for view in ("Projects", "Memories", "Settings", "Jobs", "Home"):
            page.get_by_role("link", name=view, exact=True).click()
            page.wait_for_load_state("networkidle")
        page.get_by_role("link", name="Memories", exact=True).click()
        page.get_by_role("button", name="History").first.click()
        expect(page.locator("dialog")).to_contain_text("wolfram")
        assert page.evaluate("window.hit") is None
        foreign = "main :is(script, iframe, form[action], link, style, meta, object, embed, a[href^=javascript]), main img"
        assert page.locator(foreign).count() == 0
        assert opened.faults == []
        assert opened.strangers(gateway.url) == []


def test_markup_that_got_into_the_page_could_run_nothing(browser: Browser, gateway: Gateway) -> None:
    """The policy behind the care: even what is put into the page as markup runs nothing and fetches nothing."""
    with tab(browser) as opened, closing(socket.create_server(("127.0.0.1", 0))) as stranger:
        stranger.setblocking(False)
        address = f"http://127.0.0.1:{stranger.getsockname()[1]}/"
        page = opened.page
        page.goto(gateway.url)
        refused = page.evaluate(
            "() => { try { document.body.innerHTML = '<b>x</b>'; return '' } catch (e) { return e.name } }"
        )
        assert refused == "TypeError"
        page.evaluate(
            """async (address) => {
                const attempt = (work) => { try { work() } catch { } };
                const script = document.createElement('script');
                attempt(() => { script.textContent = 'window.hit = 1'; document.body.append(script); });
                const image = document.createElement('img');
                attempt(() => image.setAttribute('onerror', 'window.hit = 1'));
                const over = new Promise((done) => { image.onload = image.onerror = done; });
                image.src = address;
                document.body.append(image);
                await over;
            }""",
            address,
        )
        sent = page.evaluate("(address) => fetch(address).then(() => 'sent', () => 'refused')", address)
        assert sent == "refused"
        assert page.evaluate("window.hit") is None
        with pytest.raises(BlockingIOError):
            stranger.accept()
