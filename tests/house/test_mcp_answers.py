"""docs/mcp-answers.md is what an agent is really told."""

from scripts.make_mcp_answers import PAGE, QUESTIONS, page


def test_the_page_is_current_and_every_answer_keeps_to_its_tokens() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(), "python -m scripts.make_mcp_answers"
    assert text.count("crystal_search {") == len(QUESTIONS) == 10
