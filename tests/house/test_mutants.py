"""The mutation runner: which mutations it makes, that it exchanges code in place, and that what is planted or judged still fits
the code."""

import ast
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from scripts.mutants.__main__ import judged
from scripts.mutants.mutations import mutations
from scripts.mutants.planted import PLANTED, planted_mutants
from scripts.mutants.session import exchange, functions, mutants_of
from scripts.mutants.targets import PROJECT, TARGETS

SOURCE = '''
LIMIT = 3

def first(a: int, b: int = 2) -> int:
    """Says what."""
    assert a > 0, "positive"
    if a < b and not b == 7:
        raise ValueError(f"{a + 1} is too small")
    return min(a, b + 1)

class Holder:
    def hold(self, what: list[int]) -> None:
        for each in what:
            if each in (LIMIT,):
                continue
            self.seen = True
            self.tell(each)
'''


def test_the_mutations_of_a_module() -> None:
    tree = ast.parse(SOURCE)
    before = ast.dump(tree)
    found = [(one.function, one.name) for one in mutations(tree)]
    assert found == [
        ("first", "a < b and (not b == 7) -> True"),
        ("first", "a < b and (not b == 7) -> False"),
        ("first", "a < b and (not b == 7) -> not b == 7"),
        ("first", "a < b and (not b == 7) -> a < b"),
        ("first", "a < b -> a <= b"),
        ("first", "not b == 7 -> b == 7"),
        ("first", "b == 7 -> b != 7"),
        ("first", "7 -> 8"),
        ("first", "raise ValueError(f'{a + 1} is too small') -> pass"),
        ("first", "return min(a, b + 1) -> return None"),
        ("first", "min -> max"),
        ("first", "b + 1 -> b - 1"),
        ("first", "1 -> 2"),
        ("Holder.hold", "each in (LIMIT,) -> True"),
        ("Holder.hold", "each in (LIMIT,) -> False"),
        ("Holder.hold", "each in (LIMIT,) -> each not in (LIMIT,)"),
        ("Holder.hold", "continue -> pass"),
        ("Holder.hold", "self.seen = True -> pass"),
        ("Holder.hold", "True -> False"),
        ("Holder.hold", "self.tell(each) -> pass"),
    ]
    assert ast.dump(tree) == before, "a list of mutations changes nothing"


def test_each_mutation_changes_the_module_and_compiles_and_can_be_undone() -> None:
    tree = ast.parse(SOURCE)
    before = ast.dump(tree)
    for one in mutations(tree):
        one.make()
        assert ast.dump(tree) != before, one.name
        compile(tree, "module", "exec")
        one.undo()
        assert ast.dump(tree) == before, one.name


def test_code_is_exchanged_in_the_functions_that_are_there(tmp_path: Path) -> None:
    module = _loaded(tmp_path / "mutated_here.py")
    imported_elsewhere, holder = module.first, module.Holder()
    tree = ast.parse(SOURCE)
    boundary = next(one for one in mutations(tree) if one.name == "a < b -> a <= b")
    assert imported_elsewhere(2, 2) == 2
    boundary.make()
    path = str(tmp_path / "mutated_here.py")
    exchange(path, tree, functions()[path])
    with pytest.raises(ValueError, match="too small"):
        imported_elsewhere(2, 2)
    assert holder.hold([3]) is None


def _loaded(path: Path) -> ModuleType:
    path.write_text(SOURCE, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_planted_mutations_fit_the_code_and_stand_in_the_page() -> None:
    planted = [mutant for name in TARGETS for mutant in planted_mutants(name)]
    assert len(planted) == len(PLANTED)
    page = (PROJECT / "docs/mutations.md").read_text(encoding="utf-8")
    assert [one.what for one in PLANTED if f"| {one.what} |" not in page] == []


def test_the_page_names_tests_that_there_are() -> None:
    page = (PROJECT / "docs/mutations.md").read_text(encoding="utf-8")
    row = re.compile(r"\| `([\w/]+\.py)` `(test_\w+)` \|")
    assert len(row.findall(page.partition("## Measured")[0])) == len(PLANTED)
    for file, test in row.findall(page):
        assert f"def {test}(" in (PROJECT / "tests" / file).read_text(encoding="utf-8"), f"{file}: {test}"


def test_survivors_that_are_judged_are_mutants_of_today() -> None:
    """A reason that is kept for code that is gone would excuse something else one day."""
    names = {
        f"{mutant.module}::{mutant.function}: {mutant.name}"
        for module in {name.partition("::")[0] for name in judged()}
        for mutant in mutants_of(PROJECT / module)
    }
    assert sorted(judged().keys() - names) == []


def test_targets_have_code_and_tests() -> None:
    for target in TARGETS.values():
        assert target.modules() and target.test_files()
        assert all(path.is_file() for path in (*target.modules(), *target.test_files()))
