"""Whatever an agent or a session is called, its files are in the home, under a name that every system takes."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal_mirror.file_paths import fault_of, folded
from crystal_node.base.agent_names import agent_folder, agent_id, folder_name, session_name
from crystal_node.base.home import Home

HOSTILE = [
    *("", " ", ".", "..", "...", "-", "_", "../../etc/passwd", "/etc/passwd", "C:\\Windows", "a/b", "a\\b"),
    *("con", "CON", "con.txt", "nul", "com1", "COM¹", "aux.", "name.", "name ", ".hidden", "-rf", "--help"),
    *(
        "$(touch x)",
        "`id`",
        "a;b",
        "a\nb",
        "a\0b",
        "\ud800",
        "Müller",
        "日本語",
        "x" * 65,
        "x" * 5000,
        "\u202egnp",
    ),
]
any_text = st.text(st.characters(codec=None), max_size=100) | st.sampled_from(HOSTILE)


@pytest.mark.parametrize("name", ["cc-mini", "main", "a", "0", "a.b_c-d", "x" * 64, "codex", "gemini-cli"])
def test_a_plain_name_stands_for_itself(name: str) -> None:
    assert (agent_id(name, "other"), folder_name(name), session_name(name)) == (name, name, name)


def test_a_uuid_stands_for_itself() -> None:
    assert session_name("6f1d2c1e-54a7-4b7e-9d3a-0c2f8e7b4a61") == "6f1d2c1e-54a7-4b7e-9d3a-0c2f8e7b4a61"


@given(any_text)
def test_any_name_becomes_an_id_that_is_no_path_and_no_option(text: str) -> None:
    made = agent_id(text, "fallback")
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", made)
    assert fault_of(made) is None
    assert agent_id(made, "fallback") == made


@given(any_text)
def test_any_name_becomes_one_component_inside_the_home(text: str) -> None:
    folder = agent_folder(Home(Path("/home/mara/.ldm")), text)
    assert folder.parent == Path("/home/mara/.ldm/agents")
    for name in (folder.name, session_name(text)):
        assert re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", name)
        assert fault_of(f"agents/{name}/memory/transcripts/{name}.jsonl") is None


@given(st.lists(any_text, min_size=2, max_size=2, unique=True))
def test_two_agents_never_share_a_folder_even_where_case_does_not_count(texts: list[str]) -> None:
    one, other = (folded(folder_name(text)) for text in texts)
    assert one != other


def test_a_name_that_looks_like_anothers_folder_gets_one_of_its_own() -> None:
    """Else whoever names an agent could write into the files of one whose name had to be changed."""
    victim = folder_name("Mara's agent")
    assert folder_name(victim) != victim


@pytest.mark.parametrize("name", HOSTILE)
def test_no_hostile_name_is_kept(name: str) -> None:
    assert session_name(name) != name
    assert agent_id(name, "fallback") != name


def test_who_names_nobody_is_the_fallback() -> None:
    assert agent_id("", "codex") == "codex"
    assert agent_id("  ", "codex") == "codex"


def test_a_second_name_for_anothers_folder_cannot_be_searched_for(tmp_path: Path) -> None:
    marked = agent_folder(Home(tmp_path), "Harbour Bot").name
    assert re.fullmatch(r"harbour-bot-[0-9a-f]{16}", marked), "64 bits: 2^32 names would be tried in an hour"
