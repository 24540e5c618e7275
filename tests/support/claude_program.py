"""Makes a stand-in for the program `claude`: it takes the documented options of ``-p`` and refuses all others, as that does.

What it is told to do stands in a file beside it, so that nothing has to pass through the environment.
"""

import sys
from pathlib import Path

_SOURCE = """#!{python}
import json, os, pathlib, subprocess, sys, time
here = pathlib.Path(__file__).parent
plan = json.loads((here / "plan.json").read_text())
known = {{"-p": 0, "--output-format": 1, "--model": 1, "--tools": 1, "--strict-mcp-config": 0, "--setting-sources": 1,
         "--no-session-persistence": 0, "--system-prompt": 1}}
given, rest = {{}}, sys.argv[1:]
while rest:
    name = rest.pop(0)
    if name not in known or name in plan["unknown"]:
        sys.exit(f"error: unknown option '{{name}}'")
    given[name] = rest.pop(0) if known[name] else ""
data = sys.stdin.read()
(here / "seen.json").write_text(json.dumps({{
    "arguments": sys.argv[1:], "given": given, "data": data, "cwd": os.getcwd(), "listed": os.listdir("."),
    "environment": dict(os.environ), "pid": os.getpid()}}))
if plan["hangs"]:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    (here / "child").write_text(str(child.pid))
    time.sleep(600)
if plan["prints"] is not None:
    print(plan["prints"])
    sys.exit(plan["code"])
usage = {{"input_tokens": (len(given["--system-prompt"].encode()) + len(data.encode())) // 4, "output_tokens": 2}}
print(json.dumps({{"type": "result", "subtype": "success", "is_error": plan["is_error"], "result": plan["answer"],
                  "usage": usage, "total_cost_usd": 0.0}}))
"""


def make_claude(folder: Path) -> Path:
    """Writes it into ``folder`` and returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "claude"
    program.write_text(_SOURCE.format(python=sys.executable), encoding="utf-8")
    program.chmod(0o700)
    return program
