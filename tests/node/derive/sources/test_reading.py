"""What is read of a file: text of any encoding that tells itself, without credentials; PDF and HTML in a child."""

import io
import os
import sys
import time
import zlib
from pathlib import Path

import pytest

from crystal_core.cutting import PassageKind
from crystal_node.derive.sources import extraction_child
from crystal_node.derive.sources.extraction import FAILED, LACKING, TEXT, Extractor
from crystal_node.derive.sources.filetypes import TEXT_BYTES_MAX, Skipped
from crystal_node.derive.sources.reader import Prepared, SourceContent, decoded, prepare, read_file
from crystal_node.derive.sources.scan import SourceScan


def nothing(_kind: PassageKind, _data: bytes) -> Skipped:
    return Skipped.NO_EXTRACTOR


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_text_is_read_in_every_encoding_that_tells_itself(encoding: str) -> None:
    assert decoded("Grüße, 世界 🌍".encode(encoding)) == "Grüße, 世界 🌍"


def test_other_encodings_and_binaries_are_counted_and_not_guessed() -> None:
    assert decoded("Grüße".encode("latin-1")) is Skipped.ENCODING
    assert decoded(b"\x7fELF\0\0\0") is Skipped.BINARY
    assert decoded(b"\xff\xfe\x00\xd8\x00") is Skipped.ENCODING


def test_credentials_never_come_into_a_passage() -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
    prepared = prepare("deploy.md", f"# Deploy\n\nUse {secret} for it.\n".encode(), nothing)
    assert isinstance(prepared, Prepared)
    assert prepared.redacted == 1
    assert all(secret not in passage.text for passage in prepared.passages)


def test_files_that_hold_secrets_are_never_opened_and_what_is_no_text_of_a_person_neither(
    tmp_path: Path,
) -> None:
    secrets = (
        *(
            ".env",
            ".env.production",
            ".env-staging",
            ".env_local",
            "server.key",
            "id_rsa",
            "cert.pem",
            ".secrets",
        ),
        *("credentials.json", "application_default_credentials.json", "credentials.tfrc.json", "rclone.conf"),
        *("passwords.csv", "cookies.txt"),
    )
    for name in (*secrets, "package-lock.json", "a.png", "b.min.js", "c.pyc"):
        (tmp_path / name).write_text("something")
    for folder in (".ssh", ".Aws", "Keychains", "node_modules", ".venv", ".git", "pkg.egg-info"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "inside.md").write_text("something")
    (tmp_path / ".env.example").write_text("NAME=value")
    (tmp_path / "about-credentials.md").write_text("How to renew them.")
    (tmp_path / "large.txt").write_bytes(b"x" * (TEXT_BYTES_MAX + 1))
    (tmp_path / "empty.txt").touch()
    os.mkfifo(tmp_path / "pipe")
    scan = SourceScan(tmp_path)
    assert [path for path, _ in scan.files()] == [".env.example", "about-credentials.md"]
    assert scan.skips.counts[Skipped.SECRET] == len(secrets) + 3
    assert scan.skips.named == {"large.txt": Skipped.TOO_LARGE}
    assert scan.skips.counts[Skipped.SPECIAL] == 1


def test_links_are_never_followed_not_even_one_that_is_swapped_in_after_the_look(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "private.txt").write_text("private")
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (root / "folder" / "private.txt").write_text("harmless")
    (root / "link.txt").symlink_to(outside / "private.txt")
    (root / "links").symlink_to(outside)
    assert [path for path, _ in SourceScan(root).files()] == ["folder/private.txt"]
    (root / "folder").rename(root / "was")
    (root / "folder").symlink_to(outside)
    assert read_file(root, "folder/private.txt") is Skipped.UNREADABLE
    assert read_file(root, "link.txt") is Skipped.UNREADABLE


def test_a_file_by_itself_can_be_a_source(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("# Notes\n\nSomething.")
    root = tmp_path / "notes.md"
    assert [path for path, _ in SourceScan(root).files()] == ["notes.md"]
    assert isinstance(read_file(root, "notes.md"), SourceContent)


def test_include_and_exclude_are_patterns_of_the_same_language(tmp_path: Path) -> None:
    for name in ("docs/a.md", "docs/deep/b.md", "src/c.py", "src/d.md", "docs/draft.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    scan = SourceScan(tmp_path, include=("docs/", "*.py"), exclude=("draft*",))
    assert {path for path, _ in scan.files()} == {"docs/a.md", "docs/deep/b.md", "src/c.py"}


def test_a_minified_file_is_left_out() -> None:
    assert prepare("app.js", b"var a=1;" * 10_000, nothing) is Skipped.MINIFIED
    assert isinstance(prepare("long.md", b"One sentence follows another. " * 2000, nothing), Prepared)


def pdf(*pages: str | bytes) -> bytes:
    """A PDF with these texts, or streams that are compressed twice, by hand: so it can be one that nobody writes."""
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    kids: list[int] = []
    for page in pages:
        twice = isinstance(page, bytes)
        stream = page if isinstance(page, bytes) else f"BT /F1 12 Tf 72 720 Td ({page}) Tj ET".encode()
        more = b" /Filter [/FlateDecode /FlateDecode]" if twice else b""
        objects.append(b"<< /Length %d%s >>\nstream\n%s\nendstream" % (len(stream), more, stream))
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R"
            b" /Resources << /Font << /F1 3 0 R >> >> >>" % len(objects)
        )
        kids.append(len(objects))
    objects[1] = b"<< /Type /Pages /Count %d /Kids [%s] >>" % (
        len(kids),
        b" ".join(b"%d 0 R" % kid for kid in kids),
    )
    out = io.BytesIO(b"%PDF-1.4\n")
    out.seek(0, 2)
    places: list[int] = []
    for number, content in enumerate(objects, 1):
        places.append(out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, content))
    table = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    out.write(b"".join(b"%010d 00000 n \n" % place for place in places))
    out.write(b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, table))
    return out.getvalue()


def test_pdf_and_html_become_text_and_a_broken_one_harms_no_other() -> None:
    with Extractor() as child:
        prepared = prepare("paper.pdf", pdf("The reactor was stable.", "Results follow."), child.extract)
        assert isinstance(prepared, Prepared)
        assert "The reactor was stable." in prepared.passages[0].text
        head = b"<html><head><title>Guide</title><script>evil()</script></head>"
        page = head + b"<body><h1>Install</h1><p>Run it.</p></body></html>"
        prepared = prepare("guide.html", page, child.extract)
        assert isinstance(prepared, Prepared)
        text = "\n".join(passage.text for passage in prepared.passages)
        assert "# Install" in text
        assert "evil" not in text
        assert prepare("no.pdf", b"%PDF-1.4 rubbish", child.extract) is Skipped.FAILED
        assert isinstance(prepare("paper.pdf", pdf("Again."), child.extract), Prepared)


def test_the_child_gets_of_the_environment_only_what_a_process_needs_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python"
    # Not by exec: the child's output, which its parent reads, ends only after the file was written.
    program.write_text(f"#!/bin/sh\n/usr/bin/env > '{tmp_path}/environment'\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setenv("SYSTEMROOT", "C:/Windows")
    monkeypatch.setenv("CRYSTAL_SERVE_TOKEN", "a secret")
    with Extractor() as child:
        assert child.extract(PassageKind.HTML, b"<p>a page</p>") is Skipped.FAILED
    found = (tmp_path / "environment").read_text()
    assert "SYSTEMROOT=C:/Windows" in found
    assert "secret" not in found


def test_without_the_packages_their_files_are_told_apart_from_broken_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)
    assert extraction_child.made(extraction_child.pdf_text, pdf("Something.")) == (LACKING, b"")
    monkeypatch.undo()
    assert extraction_child.made(extraction_child.pdf_text, b"rubbish") == (FAILED, b"")
    assert extraction_child.made(extraction_child.pdf_text, pdf("Something."))[0] == TEXT


def test_a_hostile_page_is_given_up_in_a_bounded_time_and_the_next_document_is_read() -> None:
    with Extractor(seconds=3.0) as child:
        started = time.monotonic()
        hostile = b"<div>" * 1_000_000
        assert prepare("deep.html", hostile, child.extract) is Skipped.FAILED
        assert time.monotonic() - started < 120, "a minute or two at most, on a busy machine"
        child.seconds = 60.0
        assert isinstance(prepare("fine.html", b"<p>Something.</p>", child.extract), Prepared)


def test_a_pdf_that_grows_without_end_meets_the_limit_of_memory() -> None:
    packer = zlib.compressobj(6)
    once = b"".join(packer.compress(bytes(10_000_000)) for _ in range(40)) + packer.flush()
    bomb = pdf(zlib.compress(once, 9))
    assert len(bomb) < 50_000, "and 400 megabytes when it is unpacked"
    with Extractor(seconds=20.0) as child:
        answer = child.extract(PassageKind.PDF, bomb)
        assert isinstance(answer, Skipped) or not answer
        assert child.extract(PassageKind.PDF, pdf("Still here.")) != Skipped.FAILED
