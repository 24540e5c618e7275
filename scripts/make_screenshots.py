"""The pictures of the web page in docs/images, taken in Chromium from a small memory of made-up conversations.

`python -m scripts.make_screenshots [FOLDER]` needs Chromium and the development requirements. It starts a relay of its own,
two devices, and the gateway. The conversations lie in the last weeks, so that the pictures differ from day to day.
"""

import json
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, expect

from tests.support.chromium import chromium, tab
from tests.support.gateway import Gateway, running_gateway
from tests.support.machine import Machine, Vault, turn
from tests.support.relay_process import running_relay

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
WIDE, NARROW = (1440, 900), (360, 740)
BYTES_MAX = 150 * 1024
SHOWN = {
    "page-home-wide-light.png",
    "page-conversation-wide-dark.png",
    "page-search-wide-light.png",
    "page-home-narrow-dark.png",
    "page-conversation-narrow-light.png",
}
"""The pictures in the documentation's pages; another folder gets all of them."""

_ANSWER = """Yes: the **budget is spent by the pauses**, not by the attempts. Each retry waits twice as long:

| attempt | pause | sum |
|---:|---:|---:|
| 1 | 2 s | 2 s |
| 4 | 16 s | 30 s |
| 8 | 256 s | 510 s |

So cap the pause, and let the *deadline* end it:

```python
def pause(attempt: int) -> float:
    \"\"\"Seconds to wait; at most a minute.\"\"\"
    return min(2.0**attempt, 60.0)
```

1. `importer/retry.py` has the loop.
2. The test `test_a_slow_store_is_given_up` has to expect 11 attempts.

See [the notes on retries](https://example.org/notes/retries) for the measurements."""

_SAID: tuple[tuple[int, str, str, tuple[str, ...]], ...] = (
    (
        0,
        "core",
        "importer",
        ("Why does the importer give up after eight attempts and not after eleven?", _ANSWER),
    ),
    (
        0,
        "node",
        "harbour-web",
        ("Make the tide table readable on a phone.", "Done: the columns stack below 480 px."),
    ),
    (
        0,
        "core",
        "notes",
        ("Summarise what we decided about backups this week", "Three decisions: daily, off-site, tested."),
    ),
    (1, "core", "importer", ("Write a test for the retry deadline.", "It is in `test_retry.py`.")),
    (1, "node", "harbour-web", ("Which fonts does the site load?", "None: it uses the system's.")),
    (
        2,
        "core",
        "importer",
        ("Profile the nightly import, please. It takes an hour.", "Parsing takes 80 % of it."),
    ),
    (
        4,
        "node",
        "sensors",
        ("How long do we keep the raw readings of the sensors?", "Ninety days, then hourly means."),
    ),
    (
        5,
        "core",
        "sensors",
        ("Plot the drift of gauge 7 against the temperature", "The drift follows it by two hours."),
    ),
    (8, "core", "importer", ("Rename the module `feed` to `source` everywhere", "Renamed in 41 files.")),
    (9, "node", "garden", ("When were the beans sown last year?", "On 12 May, after the frost.")),
    (12, "core", "notes", ("Draft the invitation for the harbour day", "Here is a draft.")),
    (15, "node", "sensors", ("The crane's counter jumps at midnight. Why?", "It resets by local time.")),
    (19, "core", "garden", ("Which apples keep until March?", "Boskoop and Ontario.")),
    (26, "core", "importer", ("Compare SQLite and DuckDB for the import cache", "SQLite, for its writers.")),
)
_THOUGHT = "The loop doubles the pause each time. Eight pauses add up to 510 seconds: the ninth would pass the deadline."
_REMEMBERED = (
    ("The importer's deadline is ten minutes; the pause between attempts at most one.", "fact"),
    ("Tests are named after the promise that they keep.", "preference"),
    ("Backups were restored and compared on the last Friday of the month.", "event"),
)


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    with tempfile.TemporaryDirectory() as name, running_relay(Path(name) / "relay") as relay:
        vault = Vault(relay, Path(name))
        node = vault.add()
        for number, (days, where, project, said) in enumerate(_SAID):
            _tell(vault.core if where == "core" else node, number, days, project, said)
        for machine in vault.machines:
            machine.call("capture")
        for text, category in _REMEMBERED:
            vault.core.call("remember", text, "--category", category, "--scope", "everywhere")
        vault.settle()
        named = next(
            each["name"] for each in vault.core.call("status", "--json").json["devices"] if each["this"]
        )
        vault.core.call("devices", "rename", named, "studio")
        vault.core.call("devices", "rename", "node-1", "laptop")
        vault.settle()
        with running_gateway(vault.core) as gateway, chromium() as browser:
            for size, dark in ((WIDE, False), (WIDE, True), (NARROW, False), (NARROW, True)):
                with tab(browser, width=size[0], height=size[1], dark=dark) as opened:
                    _take(
                        opened.page,
                        gateway,
                        folder,
                        f"{'wide' if size == WIDE else 'narrow'}-{'dark' if dark else 'light'}",
                    )
    return 0


def _tell(machine: Machine, number: int, days: int, project: str, said: tuple[str, ...]) -> None:
    """A conversation held so many days ago."""
    name = f"{number:08}-0b5e-4d0e-9a52-0f3f9f0f0a00"
    path = machine.projects / f"-home-someone-{project}" / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    began = datetime.now(UTC).replace(minute=7, second=0, microsecond=0) - timedelta(
        days=days, hours=2 + number % 3
    )
    thought = [("thinking", _THOUGHT)] if number == 0 else []
    spoken = [("user", said[0]), *thought, *(("assistant", text) for text in said[1:])]
    lines: list[str] = []
    for place, (role, text) in enumerate(spoken):
        moment = (began + timedelta(minutes=3 * place)).isoformat().replace("+00:00", "Z")
        record = json.loads(
            turn("", session=name, role="user" if role == "user" else "assistant", moment=moment)
        )
        content = (
            {"thinking": text, "type": "thinking", "signature": "x"}
            if role == "thinking"
            else {"text": text, "type": "text"}
        )
        record |= {
            "cwd": str(machine.root / project),
            "message": {"role": record["type"], "content": [content]},
        }
        lines.append(json.dumps(record) + "\n")
    path.write_text("".join(lines), encoding="utf-8")


def _take(page: Page, gateway: Gateway, folder: Path, suffix: str) -> None:
    page.goto(gateway.link())
    expect(page.locator(".entry").first).to_be_visible()
    expect(page.locator(".choice").first).to_be_attached()
    _shoot(page, folder, f"page-home-{suffix}.png")
    page.locator(".entry", has_text="importer give up").click()
    expect(page.locator(".message .code")).to_be_visible()
    _shoot(page, folder, f"page-conversation-{suffix}.png")
    page.locator("#query").fill("how long are the raw readings kept")
    page.keyboard.press("Enter")
    expect(page.locator(".hit").first).to_be_visible()
    page.locator(".hit").first.click()
    expect(page.locator(".reader .asked")).to_be_visible()
    _shoot(page, folder, f"page-search-{suffix}.png")
    for address in ("projects", "memories", "settings/devices", "settings/jobs", "settings/page"):
        page.goto(f"{gateway.url}#/{address}")
        expect(page.locator("main > section:visible h1")).to_be_visible()
        _shoot(page, folder, f"page-{address.replace('/', '-')}-{suffix}.png")


def _shoot(page: Page, folder: Path, name: str) -> None:
    """The screen as a PNG of 256 colours; into the documentation only what its pages show."""
    if folder == IMAGES and name not in SHOWN:
        return
    page.mouse.move(0, 0)
    page.evaluate("document.activeElement?.blur()")
    page.wait_for_load_state("networkidle")
    picture = BytesIO()
    Image.open(BytesIO(page.screenshot())).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(
        picture, "PNG", optimize=True
    )
    size = picture.tell()
    if size > BYTES_MAX:
        raise SystemExit(f"{name} has {size // 1024} KiB, and may have {BYTES_MAX // 1024}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(picture.getvalue())
    print(f"{name}: {size // 1024} KiB")


if __name__ == "__main__":
    sys.exit(main())
