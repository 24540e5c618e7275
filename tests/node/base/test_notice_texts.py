"""Each notice of the protocol has a sentence for the person."""

from crystal_mirror.notices import Notice
from crystal_node.base.notice_texts import notice_text


def test_every_notice_has_a_sentence_of_its_own() -> None:
    texts = {notice.value: notice_text(notice.value) for notice in Notice}
    assert [name for name, text in texts.items() if text == name or not text.endswith(".")] == []
    assert len(set(texts.values())) == len(texts)


def test_a_notice_of_a_later_version_is_shown_by_its_name() -> None:
    assert notice_text("of-the-future") == "of-the-future"
