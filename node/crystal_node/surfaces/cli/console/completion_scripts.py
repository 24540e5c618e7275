"""Completion scripts for bash, zsh and fish: static, so that completing starts no Python.

Each contains the whole command tree: it follows the words typed so far, then offers the commands, options or values that may
come next. bash 3.2, which macOS has, is enough.
"""

from collections.abc import Callable, Iterator, Sequence

from crystal_node.surfaces.cli.console.command_tree import CommandNode, Option

MARK = "written by `crystal completion install`"
"""Stands in the first lines of each script; only files with it are replaced or removed."""


def bash(root: CommandNode) -> str:
    """For bash's ``complete -F``."""
    program = root.path[0]
    function = _function(program)
    cases = "\n".join(
        f"    {_quoted(_place(node))})"
        f" commands={_quoted(_names(node))}; options={_quoted(' '.join(_option_names(node)))} ;;"
        for node in root.walk()
    )
    return f"""# Completion of {program} for bash, {MARK}.
{function}() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} place={program} commands= options= i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$place ${{COMP_WORDS[i]}}" in
      {_places(root)}) place="$place ${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$place $previous" in
{_values(root, lambda choices: f'COMPREPLY=($(compgen -W {_quoted(choices)} -- "$current")); return', "return")}
  esac
  case "$place" in
{cases}
  esac
  case "$current" in
    -*) commands=$options ;;
  esac
  COMPREPLY=($(compgen -W "$commands" -- "$current"))
}}
complete -o default -F {function} {program}
"""


def zsh(root: CommandNode) -> str:
    """For a file ``_PROGRAM`` in zsh's ``fpath``."""
    program = root.path[0]
    function = _function(program)
    cases: list[str] = []
    for node in root.walk():
        commands = [f"{each.path[-1]}:{each.summary}" for each in node.commands]
        commands += [choice for argument in node.arguments for choice in argument.choices]
        options = [f"{name}:{option.summary}" for option in node.options for name in option.names]
        cases.append(
            f"    ({_quoted(_place(node))}) commands=({_described(commands)}); options=({_described(options)}) ;;"
        )
    lines = "\n".join(cases)
    return f"""#compdef {program}
# Completion of {program} for zsh, {MARK}.
{function}() {{
  local place={program} i
  local -a commands options
  for ((i = 2; i < CURRENT; i++)); do
    case "$place ${{words[i]}}" in
      ({_places(root)}) place="$place ${{words[i]}}" ;;
    esac
  done
  case "$place ${{words[CURRENT-1]}}" in
{_values(root, lambda choices: f"compadd -- {choices}; return", "_files; return", opened="(")}
  esac
  case "$place" in
{lines}
  esac
  if [[ ${{words[CURRENT]}} == -* ]]; then
    _describe -o option options
  elif (( $#commands )); then
    _describe command commands
  else
    _files
  fi
}}
if [[ $funcstack[1] == {function} ]]; then
  {function} "$@"
else
  compdef {function} {program}
fi
"""


def fish(root: CommandNode) -> str:
    """For fish's folder ``completions``."""
    program = root.path[0]
    function = f"_{_function(program)}_at"
    return f"""# Completion of {program} for fish, {MARK}.
function {function}
    set -l place {program}
    set -l words (commandline -opc)
    for word in $words[2..-1]
        switch "$place $word"
            case {_places(root, " ")}
                set place "$place $word"
        end
    end
    test "$place" = "$argv[1]"
end
complete -c {program} -f
""" + "".join(_fish_lines(root, program, function))


SCRIPTS: dict[str, Callable[[CommandNode], str]] = {"bash": bash, "zsh": zsh, "fish": fish}


def _fish_lines(root: CommandNode, program: str, function: str) -> Iterator[str]:
    for node in root.walk():
        at = f"complete -c {program} -n {_fish_quoted(f'{function} {_fish_quoted(_place(node))}')}"
        for each in node.commands:
            yield f"{at} -a {each.path[-1]} -d {_fish_quoted(each.summary)}\n"
        for argument in node.arguments:
            if argument.choices:
                yield f"{at} -a {_fish_quoted(' '.join(argument.choices))}\n"
        if node.arguments and not any(argument.choices for argument in node.arguments):
            yield f"{at} -F\n"
        for option in node.options:
            names = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names]
            value = f" -x -a {_fish_quoted(' '.join(option.choices))}" if option.choices else " -r -F"
            yield f"{at} {' '.join(names)}{value if option.value else ''} -d {_fish_quoted(option.summary)}\n"


def _function(program: str) -> str:
    return "_" + program.replace("-", "_")


def _place(node: CommandNode) -> str:
    return " ".join(node.path)


def _places(root: CommandNode, separator: str = "|") -> str:
    """All places below the program itself."""
    return separator.join(_quoted(_place(node)) for node in root.walk() if node is not root) or "''"


def _names(node: CommandNode) -> str:
    """What may stand there beside options."""
    choices = [choice for argument in node.arguments for choice in argument.choices]
    return " ".join([*(each.path[-1] for each in node.commands), *choices])


def _option_names(node: CommandNode) -> list[str]:
    return [name for option in node.options for name in option.names]


def _values(root: CommandNode, offering: Callable[[str], str], otherwise: str, *, opened: str = "") -> str:
    """A case for each option that takes a value: its choices, or what the shell does by itself."""
    free = [
        _after(node, option)
        for node in root.walk()
        for option in node.options
        if option.value and not option.choices
    ]
    lines = [f"    {opened}{'|'.join(free)}) {otherwise} ;;"] if free else []
    for node in root.walk():
        lines += [
            f"    {opened}{_after(node, option)}) {offering(' '.join(option.choices))} ;;"
            for option in node.options
            if option.value and option.choices
        ]
    return "\n".join(lines)


def _after(node: CommandNode, option: Option) -> str:
    return "|".join(_quoted(f"{_place(node)} {name}") for name in option.names)


def _described(entries: Sequence[str]) -> str:
    return " ".join(_quoted(entry) for entry in entries)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
