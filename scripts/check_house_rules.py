"""The house rules that no linter knows, checked on every Python file of the project.

    length       no module over MODULE_LINES_MAX lines
    docstring    every module says what it is for
    name         no module called utils, helpers, misc or common: files are named after what they hold
    environment  only the composition roots read the process's environment
    import-time  nothing asks for the home, the working directory, the host's name or the clock at import
    decoding     who catches msgspec's errors of decoding catches all that it lets through: `UNDECODABLE`
    unfinished   no marks of unfinished work

`python -m scripts.check_house_rules [DIRECTORY]` prints `path:line: rule: what` for each breach; exit
code 1 if there is any.
"""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MODULE_LINES_MAX = 600

SOURCE_FOLDERS = ("crypto", "mirror", "core", "relay", "node", "tests", "bench", "scripts")
PRODUCT_FOLDERS = ("crypto", "mirror", "core", "relay", "node")

# A module of these names (or inside a package of these names) may read the environment.
# OpenSSL reads its own variables; `certificates` reads them again, to name a file that is missing.
COMPOSITION_ROOTS = (
    "crystal_node.surfaces.cli",
    "crystal_node.base.settings",
    "crystal_relay.cli",
    "crystal_relay.certificates",
)

_ENVIRONMENT = frozenset({"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"})
_RESOLVERS = frozenset(
    {
        "Path.cwd",
        "Path.home",
        "datetime.now",
        "os.getcwd",
        "os.path.expanduser",
        "socket.gethostname",
        "tempfile.gettempdir",
        "tempfile.mkdtemp",
        "time.monotonic",
        "time.time",
    }
)
_UNFINISHED = re.compile(r"#.*\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")


@dataclass(frozen=True, slots=True)
class Breach:
    """One broken rule. `line` counts from 1."""

    path: Path
    line: int
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.message}"


def check_tree(root: Path) -> list[Breach]:
    """All breaches in the project at `root`, in the order of paths and lines."""
    breaches: list[Breach] = []
    for folder in SOURCE_FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            breaches.extend(check_module(path.relative_to(root), path.read_text(encoding="utf-8")))
    return breaches


def check_module(path: Path, source: str) -> list[Breach]:
    """The breaches in one module; `path` is relative to the project's root."""
    return sorted(_breaches(path, source), key=lambda breach: breach.line)


def _breaches(path: Path, source: str) -> Iterator[Breach]:
    lines = source.splitlines()
    tree = ast.parse(source, filename=str(path))
    if len(lines) > MODULE_LINES_MAX:
        yield Breach(path, len(lines), "length", f"{len(lines)} lines, at most {MODULE_LINES_MAX}")
    if ast.get_docstring(tree) is None:
        yield Breach(path, 1, "docstring", "the module does not say what it is for")
    if path.stem in {"utils", "util", "helpers", "misc", "common"}:
        yield Breach(path, 1, "name", f"{path.name} says nothing of what it holds")
    for number, line in enumerate(lines, start=1):
        if _UNFINISHED.search(line):
            yield Breach(path, number, "unfinished", line.strip())
    if path.parts[0] in PRODUCT_FOLDERS:
        if not _is_composition_root(path):
            yield from _environment(path, tree)
        yield from _import_time(path, tree)
        yield from _decoding(path, tree)


def _is_composition_root(path: Path) -> bool:
    module = ".".join(path.with_suffix("").parts[1:])
    return any(module == root or module.startswith((f"{root}.", f"{root}_")) for root in COMPOSITION_ROOTS)


def _environment(path: Path, tree: ast.Module) -> Iterator[Breach]:
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="os"), attr=name) if name in _ENVIRONMENT:
                yield Breach(path, node.lineno, "environment", f"os.{name} outside the composition roots")
            case ast.ImportFrom(module="os", names=names):
                for alias in names:
                    if alias.name in _ENVIRONMENT:
                        yield Breach(path, node.lineno, "environment", f"from os import {alias.name}")
            case _:
                pass


def _import_time(path: Path, tree: ast.Module) -> Iterator[Breach]:
    """Calls that run at import: everything outside function bodies, default values included."""
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop()
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                pending.extend(node.decorator_list)
                pending.extend(node.args.defaults)
                pending.extend(default for default in node.args.kw_defaults if default is not None)
                continue
            case ast.Lambda():
                continue
            case ast.Call(func=function) if ast.unparse(function) in _RESOLVERS:
                yield Breach(path, node.lineno, "import-time", f"{ast.unparse(function)}() runs at import")
            case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
                continue
            case _:
                pass
        pending.extend(ast.iter_child_nodes(node))


def _decoding(path: Path, tree: ast.Module) -> Iterator[Breach]:
    """Handlers that name msgspec's own errors and not the two of Python's that it lets through as well."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and node.type is not None:
            names = {each.rpartition(".")[2] for each in re.findall(r"[\w.]+", ast.unparse(node.type))}
            through = {"RecursionError"} | (set[str]() if "ValueError" in names else {"UnicodeDecodeError"})
            if names & {"MsgspecError", "DecodeError"} and "EncodeError" not in names and through - names:
                yield Breach(
                    path, node.lineno, "decoding", f"{sorted(through - names)} would pass: use UNDECODABLE"
                )


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    breaches = check_tree(root)
    for breach in breaches:
        print(breach)
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
