"""Where documents are cut: at headings and functions, and never through what is one thing and fits."""

from inspect import cleandoc

from crystal_core.cutting import SOLID_CHARS, PassageKind, cut

PROSE = "One sentence of several that explain something at length. " * 8


def test_sections_are_passages_under_the_path_of_their_headings() -> None:
    text = f"# Guide\n\n{PROSE}\n\n## Install\n\n{PROSE}\n\n### From source\n\n{PROSE}\n\n## Use\n\n{PROSE}\n"
    assert [passage.title for passage in cut(text, PassageKind.MARKDOWN)] == [
        "Guide",
        "Guide › Install",
        "Guide › Install › From source",
        "Guide › Use",
    ]


def test_underlined_headings_count_and_a_rule_after_a_paragraph_makes_one_too() -> None:
    text = f"Guide\n=====\n\n{PROSE}\n\nInstall\n-------\n\n{PROSE}\n"
    assert [passage.title for passage in cut(text, PassageKind.MARKDOWN)] == ["Guide", "Guide › Install"]


def test_a_hash_in_a_fence_is_no_heading() -> None:
    text = f"# Guide\n\n{PROSE}\n\n```sh\n# install\nmake\n```\n\n{PROSE}\n"
    assert {passage.title for passage in cut(text, PassageKind.MARKDOWN)} == {"Guide"}


def test_fences_and_tables_stay_whole_where_they_fit() -> None:
    fence = "```python\n" + "value = compute(1)\n\n" * 100 + "```"
    table = "| name | value |\n|---|---|\n" + "| a | something of some length |\n" * 70
    assert max(len(fence), len(table)) < SOLID_CHARS
    texts = [
        passage.text
        for passage in cut(
            f"# A\n\n{PROSE * 3}\n\n{fence}\n\n{PROSE * 3}\n\n{table}\n\n{PROSE}", PassageKind.MARKDOWN
        )
    ]
    assert any(fence in text for text in texts)
    assert any(table.strip() in text for text in texts)


def test_front_matter_is_one_block_and_no_heading() -> None:
    text = f"---\ntitle: A page\ntags:\n  - one\n---\n\n# Guide\n\n{PROSE}"
    passages = cut(text, PassageKind.MARKDOWN)
    assert passages[0].text.startswith("---\ntitle: A page")
    assert passages[-1].title == "Guide"


PYTHON = cleandoc(
    '''
    """What the module is for."""

    import os

    LIMIT = 3


    # Explains the first.
    @decorated
    def first(value):
        """Says what it does, in so many words that the function is long enough to stand alone among others.

        It goes on for a while about what the value may be, which takes a line or two, and about what is given back for
        it, which takes another one.
        """
        if value:
            return os.sep

        return value


    class Second:
        """A class with some methods, all of which stay together for as long as the class is not too long to be one."""

        def method(self):
            return LIMIT

        def other(self):
            return "something that takes a line of its own and is of some length, so that this is no small class"
    '''
)


def test_python_is_cut_into_functions_and_classes_with_what_stands_above_them() -> None:
    passages = cut(PYTHON, PassageKind.CODE, python=True)
    first = next(passage for passage in passages if passage.title == "first")
    assert "# Explains the first.\n@decorated\ndef first" in first.text
    second = next(passage for passage in passages if passage.title == "Second")
    assert second.text.startswith("class Second")
    assert second.text.endswith('small class"')


def test_a_long_class_is_cut_into_its_methods() -> None:
    methods = "\n\n".join(
        f"    def method_{number}(self):\n" + f"        value = {number}\n" * 30 for number in range(8)
    )
    titles = [passage.title for passage in cut(f"class Big:\n{methods}", PassageKind.CODE, python=True)]
    assert "Big.method_0" in titles
    assert "Big.method_6" in titles


GO = """package main

import "fmt"

// Greet says hello to somebody, and explains at some length why it does so, for the reader.
func Greet(name string) string {
\tif name == "" {
\t\treturn "nobody"
\t}

\treturn fmt.Sprintf("hello %s, and what else there is to say on such an occasion", name)
}

type Server struct {
\tname string // who this is, which takes a comment that makes the struct a little longer than it were
\tport int    // where it listens, which takes another comment of about the same length as the first one and a bit more
}

// Run listens until it is told to stop, and reports what went wrong meanwhile to whoever asked.
func (s *Server) Run() error {
\treturn fmt.Errorf("not on port %d, which is in use by another server of the same name: %s", s.port, s.name)
}
"""


def test_other_code_is_cut_between_functions_with_their_comments() -> None:
    passages = cut(GO, PassageKind.CODE)
    greet = next(passage for passage in passages if "func Greet" in passage.text)
    assert greet.text.startswith("// Greet says hello") or greet.text.startswith("package main")
    assert greet.text.endswith("}")
    run = next(passage for passage in passages if "func (s *Server) Run" in passage.text)
    assert run.title == "Run"
    assert run.text.startswith("// Run listens")


def test_a_heading_stays_with_the_text_that_it_introduces() -> None:
    paragraph = "word " * 310
    passages = cut(f"# Short\n\n{paragraph}", PassageKind.MARKDOWN)
    assert passages[0].text.startswith("# Short\n\nword")
