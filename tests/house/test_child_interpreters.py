"""No Python that Crystal starts imports from the working directory: the source is read for all starts, and programs are run."""

import ast
import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from crystal_core.cutting import PassageKind
from crystal_node.agent.hooks.program import program
from crystal_node.agent.service.program import program_of
from crystal_node.base.settings import resolve
from crystal_node.derive.sources.extraction import Extractor
from crystal_node.derive.sources.filetypes import Skipped
from crystal_node.derive.weaving.request import WeaveMode
from crystal_node.surfaces.demo.machines import command_of
from crystal_node.surfaces.gateway.documents import ProcessAction
from crystal_node.surfaces.gateway.processes import Processes

PROJECT = Path(__file__).resolve().parents[2]
PACKAGES = ("crypto", "mirror", "core", "relay", "node")
STARTS = ("-m", "-c")
SAFE = re.compile(r"-(?=[A-Za-z]*[PI])[A-Za-z]+")
INTERPRETERS_OF_THEIR_OWN = {"multiprocessing", "concurrent.futures.process", "runpy", "code", "pty"}


def words_of(node: ast.AST) -> list[str]:
    """The words of a list, a tuple or the arguments of a call, with those of the tuples in it; "?" for what is computed."""
    elements: list[ast.expr] = []
    if isinstance(node, ast.List | ast.Tuple):
        elements = node.elts
    elif isinstance(node, ast.Call):
        elements = node.args
    found: list[str] = []
    for element in elements:
        inner = element.value if isinstance(element, ast.Starred) else element
        if isinstance(inner, ast.Constant):
            found.append(str(inner.value))
        elif isinstance(inner, ast.List | ast.Tuple):
            found += words_of(inner)
        else:
            found.append("?")
    return found


def unsafe_starts(source: str) -> Iterator[str]:
    """Lists of words that start a module or a program text in an interpreter which may import from the working directory."""
    for node in ast.walk(ast.parse(source)):
        words = words_of(node)
        if words[:1] == ["git"]:  # its `-c` is a setting
            continue
        for at, word in enumerate(words):
            if word in STARTS and at and not any(SAFE.fullmatch(before) for before in words[:at]):
                yield " ".join(words)


def sources() -> Iterator[Path]:
    for package in PACKAGES:
        yield from (PROJECT / package).rglob("*.py")


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('run([sys.executable, "-m", "crystal_node"])', True),
        ('run(sys.executable, "-c", "pass")', True),
        ('command = (*prefix, python, "-E", "-m", "crystal_node")', True),
        ('run([*(sys.executable, "-m"), "crystal_node"])', True),
        ('run([sys.executable, "-P", "-m", "crystal_node"])', False),
        ('run([sys.executable, "-I", "-m", "crystal_node"])', False),
        ('run([sys.executable, "-IS", "-c", "pass"])', False),
        ('run(["crystal", "agent", "run"])', False),
        ('run(["git", "-c", "core.fsmonitor=false"])', False),
    ],
)
def test_the_reading_finds_a_start_that_may_import_from_the_working_directory(
    source: str, found: bool
) -> None:
    assert any(unsafe_starts(source)) is found


def test_every_interpreter_that_the_product_starts_leaves_out_the_working_directory() -> None:
    starts, found = 0, list[str]()
    for path in sources():
        source = path.read_text(encoding="utf-8")
        starts += sum('"-m"' in line or '"-c"' in line for line in source.splitlines())
        found += [f"{path.relative_to(PROJECT)}: {words}" for words in unsafe_starts(source)]
    assert found == []
    assert starts >= 6, "the starts that are known were read"


def test_the_product_starts_no_interpreter_in_a_way_that_the_reading_does_not_see() -> None:
    found: list[str] = []
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = (
                [each.name for each in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            )
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            taken = {module, *names, *(f"{module}.{name}" for name in names)}
            if taken & INTERPRETERS_OF_THEIR_OWN or "ProcessPoolExecutor" in names:
                found.append(f"{path.relative_to(PROJECT)}: {sorted(taken)}")
            if isinstance(node, ast.Constant) and re.search(r"python[\d.]* +-m", str(node.value)):
                text = re.sub(
                    r"`[^`]*`", "", str(node.value)
                )  # a command that a docstring quotes is read below
                if re.search(r"python[\d.]* +-m", text):
                    found.append(f"{path.relative_to(PROJECT)}: {node.value!r}")
    assert found == []


UNSAFE_TEXT = re.compile(
    r"python[\d.]*[\"']?,? +(?:[\"']?-[A-HJ-OQ-Za-z]+[\"']?,? +)*[\"']?-(?![A-Za-z]*[PI])[A-Za-z]*[mc]\b.*"
)
OF_THIS_REPOSITORY = re.compile(r"-m (?:scripts|bench|tests)\b")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("python3 -m venv /opt/crystal", True),
        ("RUN /opt/bin/python -m compileall", True),
        ("entrypoint: [/opt/bin/python, -c]", True),
        ('CMD ["/opt/bin/python", "-Sc", "pass"]', True),
        ("python -E -m crystal_node", True),
        ("python -P -m crystal_node", False),
        ('CMD ["/opt/bin/python", "-ISc", "pass"]', False),
        ("python -m scripts.check_links", False),
        ("python and -m", False),
    ],
)
def test_the_reading_of_texts_finds_an_unsafe_start(text: str, found: bool) -> None:
    assert bool(list(unsafe_texts(text))) is found


def unsafe_texts(text: str) -> Iterator[str]:
    """Starts in a page or a file of the deployment. Tools of this repository are run in it, and are meant to be found there."""
    yield from (match[0] for match in UNSAFE_TEXT.finditer(text) if not OF_THIS_REPOSITORY.search(match[0]))


def test_no_page_and_no_file_of_the_deployment_tells_a_person_to_start_an_unsafe_one() -> None:
    pages = [*(PROJECT / "docs").rglob("*.md"), *PROJECT.glob("*.md"), *(PROJECT / "deploy").rglob("*")]
    for package in PACKAGES:
        pages += [path for path in (PROJECT / package).rglob("*") if path.suffix in (".md", ".py")]
    found = [
        f"{path.relative_to(PROJECT)}: {text}"
        for path in pages
        if path.is_file()
        for text in unsafe_texts(path.read_text(encoding="utf-8", errors="replace"))
    ]
    assert found == []


SHADOWED = (
    "json",
    "os",
    "asyncio",
    "typing",
    "msgspec",
    "apsw",
    "typer",
    "pathlib",
    "re",
    "sitecustomize",
    "runpy",
    "pypdf",
)
OURS = ("crystal_node", "crystal_core", "crystal_mirror", "crystal_crypto", "crystal_relay")


class Poisoned:
    """A working directory whose every module leaves a mark when it is imported."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.mark = folder / "here", folder / "imported"
        self.folder.mkdir()
        text = f"open({str(self.mark)!r}, 'a').write(__name__ + '\\n')\n"
        for name in SHADOWED:
            (self.folder / f"{name}.py").write_text(text)
        for name in OURS:
            package = self.folder / name
            package.mkdir()
            for module in ("__init__", "__main__"):
                (package / f"{module}.py").write_text(text)

    @property
    def imported(self) -> list[str]:
        return self.mark.read_text().split() if self.mark.exists() else []

    def run(self, *words: str, home: Path) -> "subprocess.CompletedProcess[str]":
        variables = os.environ | {"HOME": str(home), "CRYSTAL_HOME": str(home / ".ldm")}
        for name in ("PYTHONSAFEPATH", "PYTHONPATH"):
            variables.pop(name, None)
        return subprocess.run(
            words, cwd=self.folder, env=variables, capture_output=True, text=True, timeout=60, check=False
        )


@pytest.fixture
def poisoned(tmp_path: Path) -> Poisoned:
    return Poisoned(tmp_path)


def test_an_unsafe_start_in_such_a_directory_is_noticed(poisoned: Poisoned, tmp_path: Path) -> None:
    poisoned.run(sys.executable, "-m", "crystal_node", "--version", home=tmp_path)
    assert "crystal_node" in poisoned.imported


@pytest.mark.parametrize("arguments", [("--version",), ("search", "x")])
def test_no_start_of_ours_imports_from_the_working_directory(
    arguments: tuple[str, ...], poisoned: Poisoned, tmp_path: Path
) -> None:
    settings = resolve(environment={"HOME": str(tmp_path)})
    service = program_of(settings).command
    starts = {
        program(),
        (*service[: service.index("crystal_node") + 1],),
        (*command_of()[: command_of().index("crystal_node") + 1],),
        (str(Path(sys.executable).with_name("crystal")),),
    }
    for start in starts:
        done = poisoned.run(*start, *arguments, home=tmp_path)
        assert "Traceback" not in done.stderr
        assert done.stdout or done.stderr
    assert poisoned.imported == []


def test_the_relays_programs_do_not_either(poisoned: Poisoned, tmp_path: Path) -> None:
    relay = str(Path(sys.executable).with_name("crystal-relay"))
    for start in ((relay,), (sys.executable, "-P", "-m", "crystal_relay")):
        assert poisoned.run(*start, "--help", home=tmp_path).returncode == 0
    assert poisoned.imported == []


def test_what_the_gateway_and_the_sources_start_does_not_either(
    poisoned: Poisoned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(poisoned.folder)
    variables = {"HOME": str(tmp_path), "CRYSTAL_HOME": str(tmp_path / ".ldm"), "PATH": os.environ["PATH"]}

    async def gateway() -> str:
        processes = Processes(variables)
        await processes.start(ProcessAction.DREAM_WEAVE, "cc", WeaveMode.FULL)
        for _ in range(600):
            (status,) = processes.statuses()
            if status.ended is not None:
                return status.text
            await asyncio.sleep(0.1)
        raise AssertionError("it did not end")

    assert asyncio.run(gateway()), "it ended with words of its own: this home is in no vault"
    assert poisoned.imported == []
    with Extractor() as extractor:
        assert extractor.extract(PassageKind.HTML, b"<p>a page</p>") in ("a page", Skipped.NO_EXTRACTOR)
    assert poisoned.imported == []
