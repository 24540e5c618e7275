"""Write docs/man/crystal.1 and crystal-relay.1 from the command trees of the two programs.

`python -m scripts.make_man_pages [--check]`: with `--check` nothing is written, and the exit code is 1 when a page is not
current. The wheel installs them below share/man, where pipx, Homebrew and systems look. The macros are those of man(7).
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import typer
from typer.core import TyperGroup

from crystal_node.surfaces.cli.console.command_tree import CommandNode, tree

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "man"
_DATE = "2026-11-23"
"""Of the pages' form, so that the same commands give the same bytes."""
_SEE_ALSO = {"crystal": "crystal-relay", "crystal-relay": "crystal"}


def pages() -> dict[str, str]:
    """The text of each page, by its file's name."""
    from crystal_node.surfaces.cli.app import COMMANDS, build
    from crystal_relay.cli.app import app as relay

    server = typer.main.get_command(relay)
    assert isinstance(server, TyperGroup), "the relay's program has several commands"
    trees = (tree("crystal", build((), [each.name for each in COMMANDS])), tree("crystal-relay", server))
    return {f"{each.path[0]}.1": page(each) for each in trees}


def page(root: CommandNode) -> str:
    """One page: the program, then each command as a part of its own."""
    program = root.path[0]
    lines = [
        f'.\\" Written by `make docs` from the program {program} itself.',
        f'.TH {_escaped(program.upper())} 1 "{_DATE}" "memory-crystal" "Crystal"',
        ".SH NAME",
        f"{_escaped(program)} \\- {_inline(root.summary.rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {_escaped(program)}",
        ".I command",
        "[\\fIoption\\fR ...]",
        ".SH DESCRIPTION",
        *_text(root.text),
        *_options(root),
        ".SH COMMANDS",
    ]
    for node in root.walk():
        if node is not root and not node.commands:
            lines += _command(node)
    lines += [".SH SEE ALSO", f".BR {_escaped(_SEE_ALSO[program])} (1)"]
    return "\n".join(lines) + "\n"


def main() -> int:
    current = pages()
    if sys.argv[1:] == ["--check"]:
        stale = [name for name, text in current.items() if not _is(FOLDER / name, text)]
        if stale:
            print(
                f"docs/man is not what the programs say ({', '.join(stale)}): run `make docs`",
                file=sys.stderr,
            )
        return 1 if stale else 0
    FOLDER.mkdir(exist_ok=True)
    for name, text in current.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        print(f"Written: docs/man/{name}")
    return 0


def _is(file: Path, text: str) -> bool:
    return file.exists() and file.read_text(encoding="utf-8") == text


def _command(node: CommandNode) -> Iterator[str]:
    usage = [*node.path, *(argument.name for argument in node.arguments)]
    yield f'.SS "{_escaped(" ".join(usage))}"'
    yield from _text(node.text)
    for argument in node.arguments:
        if argument.summary:
            yield from (".TP", f".I {_escaped(argument.name)}", _inline(argument.summary))
    yield from _options(node)


def _options(node: CommandNode) -> Iterator[str]:
    for option in node.options:
        names = ", ".join(f"\\fB{_escaped(name)}\\fR" for name in option.names)
        yield ".TP"
        yield f"{names} \\fI{_escaped(option.value)}\\fR" if option.value else names
        yield _inline(option.summary) if option.summary else "No more is said about it."


def _text(text: str) -> Iterator[str]:
    """Paragraphs; those that are indented stay as they are, such as examples."""
    first = True
    for part in text.replace("\b", "").strip("\n").split("\n\n"):
        if not part.strip():
            continue
        if part.startswith(" "):
            yield from (
                ".PP",
                ".RS 4",
                ".nf",
                *(_inline(line.strip()) for line in part.splitlines()),
                ".fi",
                ".RE",
            )
        else:
            if not first:
                yield ".PP"
            yield _inline(" ".join(part.split()))
        first = False


def _inline(text: str) -> str:
    """A line of text; what stands in backquotes is bold."""
    return re.sub(r"`([^`]+)`", r"\\fB\1\\fR", _escaped(text))


def _escaped(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


if __name__ == "__main__":
    sys.exit(main())
