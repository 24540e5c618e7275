"""Cuts the repository's own pages into passages and keeps them: `python -m bench.quality.freeze`.

The set is a copy of a day, so that a page that is rewritten moves no figure. Whoever freezes anew sees to it that the questions
of `sets/documents.jsonl` still fit, and records a new baseline.
"""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FROZEN = Path(__file__).resolve().parent / "sets" / "documents.passages.jsonl"
PAGES = ("agent", "architecture", "files", "protocol", "recovery", "relay-api", "relay-costs", "retention")
PASSAGE_CHARS_MAX = 900


def passages(name: str, page: str) -> list[dict[str, str]]:
    """Paragraphs under their headings, as long as they fit together."""
    found: list[dict[str, str]] = []
    title, heading, held = "", "", ""

    def close() -> None:
        nonlocal held
        if held.strip():
            text = f"{title}: {heading}\n{held.strip()}" if heading else f"{title}\n{held.strip()}"
            found.append({"id": f"{name}/{len(found)}", "text": text})
        held = ""

    for block in re.split(r"\n\s*\n", page):
        line = block.strip()
        if line.startswith("#"):
            close()
            first, _, rest = line.partition("\n")
            if first.startswith("# "):
                title, heading = first.lstrip("# "), ""
            else:
                heading = first.lstrip("# ")
            held = rest + "\n\n"
            continue
        if held and len(held) + len(block) > PASSAGE_CHARS_MAX:
            close()
        held += block + "\n\n"
    close()
    return found


def main() -> None:
    docs = ROOT / "docs"
    pages = [docs / f"{name}.md" for name in PAGES]
    pages += sorted(path for path in (docs / "decisions").glob("*.md") if path.stem[:4] <= "0037")
    with FROZEN.open("w", encoding="utf-8") as file:
        for path in pages:
            name = path.stem[:4] if path.parent.name == "decisions" else path.stem
            for passage in passages(name, path.read_text(encoding="utf-8")):
                file.write(json.dumps(passage, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
