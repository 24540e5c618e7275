"""No function has msgspec learn a type by itself: two threads that do so at once crash the process (decision 0091)."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
SEARCHED = ("crypto", "mirror", "core", "node", "relay/crystal_relay/client", "relay/crystal_relay/wire.py")
WITHOUT_FIELDS = {"dict", "list", "tuple", "str", "bytes", "int", "float", "bool", "object", "Any"}
THE_ONE_PLACE = PROJECT / "node/crystal_node/base/decoding.py"

_LEARNT_BY_TWO_AT_ONCE = """
import sys, threading
import msgspec
from crystal_node.base.decoding import from_fields, from_json, from_msgpack

sys.setswitchinterval(1e-6)
INNER = [(f"a{n}", "int | None", None) for n in range(20)]
for number in range(150):
    inner = msgspec.defstruct(f"Inner{number}", INNER)
    outer = msgspec.defstruct(f"Outer{number}", [(f"b{n}", inner, None) for n in range(20)])
    fields = {f"b{n}": {"a1": 1} for n in range(20)}
    packed, text = msgspec.msgpack.encode(fields), msgspec.json.encode(fields)
    ways = [
        lambda: from_fields(fields, outer), lambda: from_msgpack(packed, outer), lambda: from_json(text, outer),
    ]
    start = threading.Barrier(len(ways))
    threads = [threading.Thread(target=lambda way=way: (start.wait(), way())) for way in ways]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("alive")
"""


def test_types_are_learnt_in_one_place_or_at_import() -> None:
    files = [
        path
        for place in SEARCHED
        for path in ([PROJECT / place] if place.endswith(".py") else (PROJECT / place).rglob("*.py"))
        if path != THE_ONE_PLACE
    ]
    assert len(files) > 300
    found = [f"{path.relative_to(PROJECT)}:{line}" for path in files for line in _typed_decodes(path)]
    assert found == []


def test_threads_that_decode_a_new_type_at_once_do_not_crash() -> None:
    """Without the lock this dies of a segmentation fault in nine of ten runs, so the child tells what came of it."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", _LEARNT_BY_TWO_AT_ONCE], capture_output=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, b"alive"), done.stderr.decode()


def _typed_decodes(path: Path) -> Iterator[int]:
    """Lines inside of functions where msgspec is given a type whose fields it has to learn."""
    for function in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        for call in ast.walk(function):
            if isinstance(call, ast.Call) and not _names(_type_in(call)) <= WITHOUT_FIELDS:
                yield call.lineno


def _type_in(call: ast.Call) -> ast.expr | None:
    name = ast.unparse(call.func)
    if not name.startswith("msgspec."):
        return None
    if name.endswith((".json.decode", ".msgpack.decode")):
        return next((keyword.value for keyword in call.keywords if keyword.arg == "type"), None)
    if name.endswith(".Decoder"):
        return call.args[0] if call.args else None
    return call.args[1] if name == "msgspec.convert" else None


def _names(kind: ast.expr | None) -> set[str]:
    return set() if kind is None else {node.id for node in ast.walk(kind) if isinstance(node, ast.Name)}
