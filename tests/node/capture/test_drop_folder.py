"""The drop folder: conversations that anybody puts there, as lines or as Markdown."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal_crypto.kit import encode_kit
from crystal_node.capture.drop import DropFolder
from crystal_node.capture.line_reader import FileState, unchanged
from tests.mirror.support import new_root
from tests.node.capture.tools import HOME, QUIET_NS, fixture, pieces, read_all, rewound
from tests.node.capture.transcripts import said


@pytest.fixture
def note(tmp_path: Path) -> Path:
    path = tmp_path / "lighthouse" / "note.md"
    path.parent.mkdir()
    return path


@pytest.fixture
def adapter(tmp_path: Path) -> DropFolder:
    return DropFolder(tmp_path, HOME, "cc-mini")


def texts(
    adapter: DropFolder, path: Path, state: FileState | None = None, quiet_ns: int = -1
) -> tuple[list[tuple[str, str]], FileState]:
    operations, _, state = read_all(adapter, path, state, quiet_ns=quiet_ns)
    return said(operations), state


def test_lines_need_a_role_and_a_text_and_may_say_more(tmp_path: Path) -> None:
    root = fixture("drop", tmp_path)
    adapter = DropFolder(root, HOME, "cc-mini")
    path = root / "lighthouse" / "log.jsonl"
    operations, counts, _ = read_all(adapter, path)
    assert said(operations) == [
        ("user", "Is the lamp on?"),
        ("assistant", "It is, since dusk."),
        ("user", "Good."),
        ("user", "Another night"),
    ]
    assert [(one.agent, one.session) for one in operations] == [
        ("lighthouse", "log"),
        ("lighthouse", "second"),
    ]
    assert [piece.created_at for _, piece in pieces(operations)] == [1793556000000, 1793556002000, 0, 0]
    assert pieces(operations)[-1][1].message == "m-1"
    assert len(counts.spots) == 3


def test_markdown_is_one_conversation_under_its_headings(tmp_path: Path) -> None:
    root = fixture("drop", tmp_path)
    operations, _, _ = read_all(DropFolder(root, HOME, "cc-mini"), root / "lighthouse" / "evening.md")
    assert said(operations) == [
        ("user", "# The evening\n\nA calm one."),
        ("user", "How do I change the wick?\n\n```\n## user\nthis is code\n```"),
        ("assistant", "Trim it first."),
        ("assistant", "Then screw it in."),
    ]
    assert {one.session for one in operations} == {"evening"}


def test_a_text_without_headings_is_one_message(adapter: DropFolder, note: Path) -> None:
    note.write_bytes(b"\xef\xbb\xbfJust a note.\r\n\r\nWith two parts.\r\n")
    assert texts(adapter, note)[0] == [("user", "Just a note.\n\nWith two parts.")]


def test_what_is_added_to_a_document_is_recorded_and_what_was_is_not_again(
    adapter: DropFolder, note: Path
) -> None:
    note.write_text("## user\n\nagain\n\n## assistant\n\nyes\n")
    _, state = texts(adapter, note)
    note.write_text("## user\n\nfirst\n\n## user\n\nagain\n\n## assistant\n\nyes\n\n## user\n\nagain\n")
    found, state = texts(adapter, note, state)
    assert found == [("user", "first"), ("user", "again")]
    assert texts(adapter, note, state)[0] == []


def test_the_last_message_of_a_document_that_is_being_written_waits(adapter: DropFolder, note: Path) -> None:
    note.write_text("## user\n\nasked\n\n## assistant\n\nhalf an ans")
    found, state = texts(adapter, note)
    assert found == [("user", "asked")]
    assert not unchanged(note, state, QUIET_NS)
    assert texts(adapter, note, state, QUIET_NS)[0] == [("assistant", "half an ans")]
    note.write_text("## user\n\nasked\n\n## assistant\n\nhalf an answer, and the rest\n")
    assert texts(adapter, note, state)[0] == [("assistant", "half an answer, and the rest")]


def test_a_private_document_never_comes_up_however_it_is_edited(adapter: DropFolder, note: Path) -> None:
    note.write_text("## user\n\nprivate one\n\n## user\n\nprivate two\n")
    state = adapter.skip(note)
    note.write_text(
        "## user\n\nprivate ONE\n\n## user\n\nprivate two\n\nand public behind it\n\n## user\n\npublic\n"
    )
    found, after = texts(adapter, note, state)
    assert found == [("user", "and public behind it"), ("user", "public")]
    note.write_text("## user\n\nprivate ONE!\n\n## user\n\nprivate TWO\n")
    assert texts(adapter, note, after)[0] == []
    assert texts(adapter, note, rewound(after))[0] == []


def test_a_document_that_was_written_in_private_time_is_hidden(adapter: DropFolder, note: Path) -> None:
    note.write_text("a private note\n")
    os.utime(note, (1_800_000_000, 1_800_000_000))
    operations, counts, state = read_all(adapter, note, hides=lambda moment: moment == 1_800_000_000_000)
    assert operations == []
    assert counts.skipped["private"] == 1
    os.utime(note, (1_800_000_500, 1_800_000_500))
    assert texts(adapter, note, state)[0] == [], "touching it does not bring it up"


def test_a_reader_that_is_not_sure_takes_nothing_without_a_time(adapter: DropFolder, note: Path) -> None:
    note.write_text("a note, and nobody says when\n")
    assert read_all(adapter, note, hides=lambda moment: moment == 0)[0] == []


def test_only_one_level_of_folders_is_looked_at_and_the_folder_itself_is_the_machines_own(
    adapter: DropFolder, tmp_path: Path
) -> None:
    for name in ("own.md", "agent/one.jsonl", "agent/deep/two.jsonl", "agent/.hidden.md", "agent/three.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}\n")
    found = {str(one.path.relative_to(tmp_path)): adapter.agent_of(one.path) for one in adapter.discover()}
    assert found == {"own.md": "cc-mini", "agent/one.jsonl": "agent"}
    assert all(adapter.concerns(str(tmp_path / name)) for name in found)
    assert not adapter.concerns(str(tmp_path / "agent/deep/two.jsonl"))


def test_a_document_with_too_many_messages_is_refused(adapter: DropFolder, note: Path) -> None:
    note.write_text("".join(f"## user\n\n{number}\n" for number in range(9000)))
    with pytest.raises(OSError, match="messages in one document"):
        texts(adapter, note)


@given(st.lists(st.tuples(st.integers(0, 12), st.booleans(), st.booleans()), max_size=8))
def test_any_way_of_growing_gives_the_messages_of_a_document_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, bool, bool]]
) -> None:
    """Each step: how many messages are there, whether the file has been quiet, and whether the reader dies."""
    folder = tmp_path_factory.mktemp("grow")
    adapter, path = DropFolder(folder, HOME, "cc-mini"), folder / "note.md"
    messages = [f"## {'user' if number % 2 else 'assistant'}\n\n{number // 4}" for number in range(12)]
    path.write_text("\n\n".join(messages) + "\n")
    at_once = {(piece.message, piece.role, piece.text) for _, piece in pieces(read_all(adapter, path)[0])}
    state: FileState | None = None
    got: list[tuple[str, str, str]] = []
    for count, quiet, dies in [*sorted(steps), (12, False, False)]:
        path.write_text("\n\n".join(messages[:count]) + ("\n" if count == 12 else ""))
        operations, _, after = read_all(adapter, path, state, quiet_ns=QUIET_NS if quiet else -1)
        if not dies:
            state = after
            got += [(piece.message, piece.role, piece.text) for _, piece in pieces(operations)]
    assert len(got) == len(set(got)), "each once"
    assert set(got) == at_once


def test_a_secret_that_lies_in_the_folder_is_named_and_not_read(tmp_path: Path) -> None:
    for name in ("passwords.md", "cc/recovery-codes.md", ".ssh/notes.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("## user\n\nthe green door\n")
    (tmp_path / "cc" / "talk.md").write_text("## user\n\nhello\n")
    adapter = DropFolder(tmp_path, HOME, "cc-mini")
    found = {each.path.relative_to(tmp_path).as_posix(): each.problem for each in adapter.discover()}
    assert found.pop("cc/talk.md") is None
    assert sorted(found) == [".ssh/notes.md", "cc/recovery-codes.md", "passwords.md"]
    assert all(problem and "never read" in problem for problem in found.values())
    assert [adapter.concerns(str(tmp_path / name)) for name in (*found, "cc/talk.md")] == [False] * 3 + [True]


def test_a_folder_that_cannot_be_read_is_named_as_such_also_under_the_name_of_a_secret(
    tmp_path: Path,
) -> None:
    """Its files may be no secrets. The drop folder itself made every capture fail."""
    for folder in (tmp_path / "drop", tmp_path / "passwords.md"):
        folder.symlink_to(folder)  # nobody can read it, not even root
        (found,) = DropFolder(folder, tmp_path, "mini").discover()
        assert found.path == folder
        assert found.is_unread_folder


def test_a_document_that_is_a_secret_by_what_it_holds_is_counted_and_not_recorded(
    adapter: DropFolder, note: Path
) -> None:
    note.write_text("\n".join(encode_kit(new_root(), new_root().vault)) + "\n")
    operations, counts, _ = read_all(adapter, note)
    assert operations == []
    assert dict(counts.skipped) == {"a recovery kit of Crystal: never recorded": 1}
