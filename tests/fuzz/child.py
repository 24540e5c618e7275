"""Targets of one folder in a process of its own, one after the other: ``python -m tests.fuzz.child JSON``.

The argument is a list of pairs: a target's name, and the options and folders of libFuzzer for it. The product's modules are
instrumented as they are imported, so that inputs which reach new code are kept and changed further (atheris, which is libFuzzer
for Python). Each target runs in a fork; a line ``=== NAME CODE`` after it tells libFuzzer's exit code, which is 0 unless an
input was a fault.
"""

import json
import os
import sys

import atheris

PACKAGES = [
    "crystal_crypto",
    "crystal_mirror",
    "crystal_core",
    "crystal_relay",
    "crystal_prototype",
    "crystal_node",
]


def main() -> None:
    wanted: list[tuple[str, list[str]]] = json.loads(sys.argv[1])
    with atheris.instrument_imports(include=PACKAGES):  # pyright: ignore[reportAttributeAccessIssue]
        from tests.fuzz.target import target_named

        targets = [(target_named(name), options) for name, options in wanted]
    for target, options in targets:
        pid = os.fork()
        if pid == 0:
            atheris.Setup([target.name, *options], target.fuzz)
            atheris.Fuzz()
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        print(f"=== {target.name} {os.waitstatus_to_exitcode(status)}", flush=True)


if __name__ == "__main__":
    main()
