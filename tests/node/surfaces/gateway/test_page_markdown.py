"""Markdown from anybody: laid out on the page, and nothing in it runs, calls out, or breaks the page."""

import json
from collections.abc import Generator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.chromium import Tab, page_of
from tests.support.gateway import Gateway, running_gateway
from tests.support.machine import Vault, turn
from tests.support.relay_process import RelayProcess

pytestmark = pytest.mark.timeout(400)

GOOD = """# A heading

Some **bold** and *slanted* words, `code` in a line, and [a link](https://example.org/notes?a=1).

| a | b |
|---|---|
| 1 | 2 |

1. one
   - deeper

```python
print("<b>not markup</b>")
```
"""
HOSTILE = {
    "script": "<script>window.hit = 1</script>\n\n<img src=x onerror='window.hit = 1'>\n\nThe end of script.",
    "html blocks": (
        "<div onclick='window.hit=1' style='position:fixed;inset:0'>\n<iframe srcdoc='<script>parent.hit=1</script>'>"
        "</iframe>\n</div>\n\nThe end of blocks."
    ),
    "links": (
        "[one](javascript:window.hit=1) [two](JaVaScRiPt&colon;window.hit=1) [three](data:text/html,<script>1</script>)"
        " [four](vbscript:x) [five](file:///etc/passwd) [six](&#x6A;avascript:window.hit=1) [seven](//evil.example/x)"
        " [eight](/api/status) [nine](#link=abc) <javascript:window.hit=1> [https://bank.example](https://evil.example/login)"
        " <https://plain.example/>\n\n[ref]: javascript:window.hit=1\n\n[ref] The end of links."
    ),
    "pictures": (
        "![a](http://evil.example/pixel.png) ![b](//evil.example/b) ![c](/api/session) ![d](data:image/svg+xml,x) ![e][r]"
        "\n\n[r]: https://evil.example/r.png\n\nThe end of pictures."
    ),
    "attributes": (
        '```python onload=window.hit=1 "><script>\nx\n```\n\n# Heading {onclick=window.hit=1}\n\n'
        "[t](https://a.example \"'onmouseover='window.hit=1\")\n\nThe end of attributes."
    ),
    "table": "|"
    + "a|" * 300
    + "\n|"
    + "-|" * 300
    + "\n"
    + ("|" + "x|" * 300 + "\n") * 60
    + "\nThe end of table.",
    "wide": "| a | b |\n|---|---|\n| " + "w" * 5000 + " | 2 |\n\n`" + "c" * 5000 + "`\n\nThe end of wide.",
    "nested lists": "\n".join(f"{'  ' * depth}- level {depth}" for depth in range(400))
    + "\n\nThe end of lists.",
    "nested quotes": ">" * 3000 + " deep\n\nThe end of quotes.",
    "brackets": "[" * 8000 + "\n\n" + "![](" * 3000 + "\n\nThe end of brackets.",
    "emphasis": "*a **b " * 3000 + "\n\n" + "`" * 5001 + "\n\nThe end of emphasis.",
    "prototype": "[__proto__](https://a.example/__proto__) [constructor]: x\n\n[constructor]\n\n[toString] End of prototype.",
    "odd letters": "\u202e reversed \u0000\ufeff \ud83d\ude80 \u2028 The end of letters.",
}


def _line(name: str, role: str, text: str, number: int) -> str:
    record = json.loads(turn("", session=name, role=role, moment=f"2026-01-05T09:{number:02}:00.000Z"))
    record["message"] = {"role": role, "content": [{"type": "text", "text": text}]}
    return json.dumps(record) + "\n"


@pytest.fixture(scope="module")
def gateway(relay: RelayProcess, tmp_path_factory: pytest.TempPathFactory) -> Generator[Gateway]:
    machine = Vault(relay, tmp_path_factory.mktemp("markdown")).core
    folder = machine.projects / "-home-someone-work"
    folder.mkdir(parents=True)
    good = _line("good", "user", "Show me what there is?", 1) + _line("good", "assistant", GOOD, 2)
    (folder / "good.jsonl").write_text(good, encoding="utf-8")
    lines = [_line("hostile", "user", "Can you show the hostile ones?", 0)]
    lines += [_line("hostile", "assistant", text, number + 1) for number, text in enumerate(HOSTILE.values())]
    (folder / "hostile.jsonl").write_text("".join(lines), encoding="utf-8")
    machine.call("capture")
    machine.call("sync")
    with running_gateway(machine) as running:
        yield running


@pytest.fixture
def shown(browser: Browser, gateway: Gateway) -> Generator[Tab]:
    with page_of(browser, gateway, width=1000) as opened:
        yield opened
        assert opened.page.evaluate("window.hit") is None


def _open(page: Page, title: str) -> None:
    page.locator(".entry", has_text=title).click()
    expect(page.locator(".message").first).to_be_visible()


def test_markdown_and_code_are_laid_out(shown: Tab) -> None:
    page = shown.page
    _open(page, "Show me what")
    answer = page.locator(".message.agent")
    expect(answer.locator(".heading-1")).to_have_text("A heading")
    expect(answer.locator("strong", has_text="bold")).to_be_visible()
    expect(answer.locator("table td")).to_have_text(["1", "2"])
    expect(answer.locator("ol > li ul > li")).to_have_text("deeper")
    expect(answer.locator(".code figcaption")).to_contain_text("python")
    expect(answer.locator(".code pre")).to_have_text('print("<b>not markup</b>")')
    link = answer.locator("a", has_text="a link")
    expect(link).to_have_attribute("href", "https://example.org/notes?a=1")
    expect(link).to_have_attribute("rel", "noopener noreferrer nofollow")
    expect(link).to_contain_text("(example.org)")
    page.get_by_role("button", name="As written").click()
    expect(page.locator(".message.agent .plain-text")).to_contain_text("# A heading")


def test_hostile_markdown_is_shown_and_does_nothing(shown: Tab, gateway: Gateway) -> None:
    page = shown.page
    _open(page, "hostile ones")
    messages = page.locator(".message.agent")
    expect(messages).to_have_count(len(HOSTILE))
    for number, text in enumerate(HOSTILE.values()):
        expect(messages.nth(number)).to_contain_text(text[-12:].strip())
    foreign = (
        ".messages :is(script, iframe, img, form, link, style, meta, object, embed, svg, video, audio, base)"
    )
    assert page.locator(foreign).count() == 0
    handlers = """() => [...document.querySelectorAll('.messages *')].flatMap((node) => node.getAttributeNames())
        .filter((name) => name.startsWith('on') || name === 'style' || name === 'src')"""
    assert page.evaluate(handlers) == []
    addresses = page.evaluate("() => [...document.querySelectorAll('.messages a')].map((node) => node.href)")
    assert addresses
    assert [
        each for each in addresses if not each.startswith(("https://", "http://evil.example/pixel"))
    ] == []
    bank = messages.locator("a", has_text="bank.example")
    expect(bank).to_contain_text("(evil.example)")
    expect(messages.locator("a[href='https://plain.example/']")).to_have_text("https://plain.example/")
    expect(messages.nth(0)).to_contain_text("<script>window.hit = 1</script>")
    deepest = """() => { let most = 0;
        const walk = (node, depth) => {
            most = Math.max(most, depth);
            for (const child of node.children) walk(child, depth + 1);
        };
        walk(document.querySelector('.messages'), 0);
        return most; }"""
    assert page.evaluate(deepest) < 80
    assert page.evaluate("document.querySelectorAll('.messages *').length") < 60_000
    assert page.evaluate("document.documentElement.scrollWidth") == 1000


def test_what_stands_in_a_search_hit_is_laid_out_by_the_same_care(shown: Tab) -> None:
    page = shown.page
    page.locator("#query").fill("The end of script window.hit")
    page.keyboard.press("Enter")
    hit = page.locator(".hit", has_text="end of script").first
    expect(hit).to_be_visible()
    hit.click()
    expect(page.locator(".reader .asked")).to_contain_text("<script>")
    assert page.locator(".reader :is(script, img, iframe)").count() == 0
