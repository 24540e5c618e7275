"""The page's files of others: unchanged, as published, with their licences; and the package holds all of the page's files."""

import re
from hashlib import sha256
from pathlib import Path

from crystal_node.surfaces.gateway import page

WEB = Path(page.__file__).parent / "web"
_ROW = re.compile(
    r"^\| `([\w.-]+)` \| npm `([\w.-]+)` ([\d.]+) \| .* \| `([0-9a-f]{64})` \| .*`LICENSES\.txt` \|$",
    re.MULTILINE,
)


def test_each_file_of_others_is_as_it_was_published() -> None:
    rows = _ROW.findall((WEB / "vendor" / "README.md").read_text(encoding="utf-8"))
    assert {name for name, *_ in rows} == {path.name for path in (WEB / "vendor").glob("*.js")}
    licences = (WEB / "vendor" / "LICENSES.txt").read_text(encoding="utf-8")
    for name, package, version, digest in rows:
        assert sha256((WEB / "vendor" / name).read_bytes()).hexdigest() == digest
        assert f"{package} {version}" in licences
    assert "Permission is hereby granted" in licences


def test_every_file_that_the_page_names_is_served() -> None:
    served = page.WebPage().paths
    assert "/vendor/markdown-it.js" in served
    assert not [path for path in served if path.endswith((".md", ".txt"))]
    named = set[str]()
    for path in (*WEB.glob("*.js"), WEB / "index.html"):
        named.update(
            re.findall(r'(?:from |href=|src=)"(/[\w./-]+\.(?:js|css|svg))"', path.read_text(encoding="utf-8"))
        )
    assert len(named) > 15
    assert named <= served
