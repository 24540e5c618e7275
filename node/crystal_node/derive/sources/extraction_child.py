"""Child process of ``extraction``, which runs it as a module and never imports it.

It limits its memory, files, processes and processor time before it reads a byte: whatever a document does, only the child
fails.
"""

import io
import logging
import os
import re
import resource
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress

from crystal_core.cutting import PassageKind
from crystal_node.base.process_memory import keep_others_out
from crystal_node.derive.sources.extraction import (
    ANSWER_BYTES_MAX,
    FAILED,
    HEAD,
    KINDS,
    LACKING,
    MEMORY_BYTES_MAX,
    READY,
    TEXT,
)

PAGES_MAX = 5000
PAGE_CHARS_MAX = 200_000
TEXT_CHARS_MAX = 7 * 1024 * 1024
RECURSION_MAX = 3000
PROCESSOR_SECONDS_MAX = 3600
DOCUMENT_SECONDS_MAX = 30
"""Processor time for one document: the system kills the child if its parent cannot."""
_PACKAGES = ("pypdf", "bs4", "markdownify")
_STAGING = (
    "script",
    "style",
    "noscript",
    "template",
    "svg",
    "iframe",
    "object",
    "nav",
    "footer",
    "form",
    "button",
)


def main() -> None:
    keep_others_out()
    limited()
    logging.disable(logging.CRITICAL)  # the libraries' messages go nowhere
    answer(READY)
    while True:
        head = sys.stdin.buffer.read(HEAD.size)
        if len(head) < HEAD.size:
            return
        kind, length = HEAD.unpack(head)
        data = sys.stdin.buffer.read(length)
        if len(data) < length:
            return
        allow_seconds()
        answer(*made(_MAKERS[kind], data))


def limited() -> None:
    """Sets resource limits, as far as the system supports them."""
    for what, most in (
        (resource.RLIMIT_AS, MEMORY_BYTES_MAX),
        (resource.RLIMIT_CPU, PROCESSOR_SECONDS_MAX),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 64),
    ):
        with suppress(ValueError, OSError):
            resource.setrlimit(what, (most, most))
    sys.setrecursionlimit(RECURSION_MAX)
    warnings.simplefilter("ignore")


def allow_seconds() -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime) + DOCUMENT_SECONDS_MAX
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CPU, (min(soft, PROCESSOR_SECONDS_MAX), PROCESSOR_SECONDS_MAX))


def made(make: Callable[[bytes], str], data: bytes) -> tuple[bytes, bytes]:
    try:
        text = make(data)
    except ModuleNotFoundError as error:
        return (LACKING if error.name in _PACKAGES else FAILED), b""
    except (Exception, RecursionError, MemoryError):  # noqa: BLE001  whatever a hostile document makes of its reader
        return FAILED, b""
    found = text[:TEXT_CHARS_MAX].encode("utf-8", "replace")
    return (TEXT, found) if len(found) <= ANSWER_BYTES_MAX else (FAILED, b"")


def answer(letter: bytes, data: bytes = b"") -> None:
    sys.stdout.buffer.write(HEAD.pack(letter, len(data)) + data)
    sys.stdout.buffer.flush()


def pdf_text(data: bytes) -> str:
    """The pages' texts with an empty line between them. A locked PDF gives none."""
    from pypdf import PdfReader

    reader = PdfReader(io.BytesIO(data))
    pages: list[str] = []
    size = 0
    for page in reader.pages[:PAGES_MAX]:
        try:
            text = page.extract_text()[:PAGE_CHARS_MAX]
        except (RecursionError, ValueError, KeyError, TypeError, AttributeError):
            continue  # a damaged page: the others may be sound
        pages.append(_reflowed(text))
        size += len(text)
        if size > TEXT_CHARS_MAX:
            break
    return "\n\n".join(page for page in pages if page)


def html_text(data: bytes) -> str:
    """The page as Markdown, without scripts, styles and navigation."""
    from bs4 import BeautifulSoup
    from markdownify import MarkdownConverter

    soup = BeautifulSoup(data, "html.parser")
    title = soup.title.get_text() if soup.title is not None else ""
    for element in soup([*_STAGING, "title"]):
        element.decompose()
    text = str(MarkdownConverter(heading_style="ATX", strip=["img"]).convert_soup(soup))
    text = re.sub(r"\n{3,}", "\n\n", text).strip()
    return f"{title.strip()}\n\n{text}" if title.strip() else text


def _reflowed(text: str) -> str:
    """Joins words hyphenated at line ends, and strips trailing white space."""
    text = re.sub(r"[ \t]+\n", "\n", text)
    return re.sub(r"(?<=[a-zà-ÿ])-\n(?=[a-zà-ÿ])", "", text).strip()


_MAKERS = {KINDS[PassageKind.PDF]: pdf_text, KINDS[PassageKind.HTML]: html_text}


if __name__ == "__main__":
    with suppress(BrokenPipeError, KeyboardInterrupt):
        main()
    os._exit(0)
