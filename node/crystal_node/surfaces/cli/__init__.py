"""The ``crystal`` command: parse the arguments, run one command, and turn an error into a sentence, a hint and an exit code.

Hooks start this program often, so that imports in this module stand in functions: ``--version``, ``nudge``, ``recall
--hook``, ``mcp``, ``agent run`` and a plain ``search``, ``status`` or ``remember`` load no argument parser. With ``--json`` a
result is one JSON document on standard output, and an error is one on standard error, with ``error``, ``hint`` and
``exit_code``. The process dumps no core.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

_PROGRAM = "crystal"
_ABSENT = cast("ModuleType", None)
"""In the place of a module: importing it fails, which httpx expects of this one."""
_STARTING_TOOLS = frozenset({"resume", "handoff"})
"""Commands that become another program, which keeps the person's own environment."""
_SERVICE_SECONDS_MAX = 0.24
"""Until the background service has answered a hook."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code (``crystal_node.base.errors.ExitCode``)."""
    _forbid_core_dumps()
    sys.modules.setdefault(
        "httpx._main", _ABSENT
    )  # its own command line: 70 ms and 6 MB wherever Rich is installed
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments:
        arguments = ["--help"]
    if arguments == ["--version"]:
        return _version()
    if arguments[0] == "nudge" and not {"-h", "--help"} & set(arguments):
        return _nudge(arguments[1:], whole_process=argv is None)
    if arguments[:2] == ["recall", "--hook"]:
        return _recall(arguments[2:], whole_process=argv is None)
    from crystal_node.surfaces.cli.console.output import ReaderGone

    try:
        if arguments in (["mcp"], ["mcp", "--read-only"]):
            _served(read_only=len(arguments) > 1)
        code = 0 if _answered(arguments) else _run(arguments)
        sys.stdout.flush()
    except (ReaderGone, BrokenPipeError, SystemExit):
        # The argument parser exits when nobody reads its help. Flushing at exit must not complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except BaseException as error:  # noqa: BLE001  where every error becomes an exit code
        _decided(whole_process=argv is None)
        return _failed(error, arguments)
    _decided(whole_process=argv is None)
    return code


def _decided(*, whole_process: bool) -> None:
    """Ignore Ctrl-C from now on, so that it cannot replace the exit code while the interpreter shuts down.

    Only if the process is this command's own: a program that calls `main` goes on, and its children inherit ignored
    signals.
    """
    import signal

    if whole_process:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _forbid_core_dumps() -> None:
    """Set the hard limit of core files to 0, for this process and its children: a core would hold keys."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _provide_keys() -> None:
    """Say how the keys of encrypted databases are found. The key store is opened when one is needed."""
    from crystal_core import key_finder

    key_finder.use(_find_key)


def _find_key(folder: "Path", wanted: str) -> bytes:
    from crystal_node.device.keys.database_key import find_key

    return find_key(folder, wanted)


def _answered(arguments: list[str]) -> bool:
    """Do ``agent run``, or a plain ``search``, ``status``, ``remember`` or ``resume`` as far as can be; False: it takes the
    argument parser."""
    if arguments[:2] == ["agent", "run"]:
        return _ran_agent(arguments[2:])
    if arguments[0] == "search":
        return _searched(arguments[1:])
    if arguments == ["resume"]:
        return _resumed()
    if arguments[0] == "status":
        from crystal_node.surfaces.cli.status_plain import shown

        _provide_keys()
        return shown(arguments[1:], _home([]))
    if arguments[0] == "remember":
        from crystal_node.surfaces.cli.remember_plain import remembered

        if remembered(arguments[1:], _home([])):
            _remind(arguments)
            return True
    return False


def _load_msgspec() -> None:
    """Load msgspec without `typing_extensions`, which, with its own imports, takes a tenth of a search's time.

    msgspec prefers its `get_type_hints`, `Required` and `NotRequired`; from 3.11 on, those of Python are the same.
    """
    if "typing_extensions" in sys.modules:
        return
    sys.modules["typing_extensions"] = _ABSENT
    try:
        import_module("msgspec")
    finally:
        del sys.modules["typing_extensions"]


def _searched(arguments: list[str]) -> bool:
    """Do a plain ``search``; False if the argument parser is needed."""
    from crystal_node.surfaces.cli.search_plain import searched

    if "--json" not in arguments:
        _load_msgspec()
    _provide_keys()
    if not searched(arguments, _home([])):
        return False
    _remind(["search", *arguments])
    return True


def _ran_agent(options: list[str]) -> bool:
    """Run the background service; False if the argument parser is needed."""
    if not {*options} <= {"--quiet", "--json"}:
        return False
    _prepare_models()
    _leave_out_uvicorns_command_line()
    _provide_keys()
    from crystal_node.surfaces.cli.agent_run import run

    run(quiet="--quiet" in options, as_json="--json" in options)
    return True


def _prepare_models() -> None:
    """Set the variables that the libraries of models read when they are loaded."""
    from crystal_core.embed.session import PROCESS_ENVIRONMENT

    os.environ.update(PROCESS_ENVIRONMENT)


def _resumed() -> bool:
    """Do a plain ``resume``: its list is shown before the rest is loaded. False if there is none yet, or no terminal."""
    from crystal_node.surfaces.cli.resume_list import listed

    _provide_keys()
    row, done = listed(_home([]))
    if row is not None:
        from crystal_node.base.settings import resolve
        from crystal_node.derive.resume.sessions import Sessions
        from crystal_node.surfaces.cli.resume import resume

        resume(Sessions(resolve()), row)
    return done


def _served(*, read_only: bool) -> None:
    """Serve MCP over standard input and output, and end the process with its client. The first answers come before the load."""
    from crystal_node.surfaces.mcp.greeting import Greeter

    greeter = Greeter.of_process(read_only=read_only)
    greeter.start()
    _prepare_models()
    _provide_keys()
    from crystal_node.surfaces.cli.mcp import serve_stdio

    serve_stdio(greeter, read_only=read_only)


def _leave_out_uvicorns_command_line() -> None:
    """Have `import uvicorn` load no command line, reloader and process manager of its own: 2 MB of a service at rest."""
    from types import ModuleType

    class Main(ModuleType):
        main = run = None

        @property
        def Server(self) -> object:  # noqa: N802  uvicorn's name
            return import_module("uvicorn.server").Server

    sys.modules.setdefault("uvicorn.main", Main("uvicorn.main"))


def _run(arguments: list[str]) -> int:
    if arguments[0] not in _STARTING_TOOLS:
        _prepare_models()
    _leave_out_uvicorns_command_line()
    _provide_keys()
    from crystal_node.surfaces.cli.app import build

    result: object = build(arguments)(args=arguments, prog_name=_PROGRAM, standalone_mode=False)
    _remind(arguments)
    return result if isinstance(result, int) else 0


def _remind(arguments: list[str]) -> None:
    from crystal_node.surfaces.cli.console.reminders import is_reminded, tell

    if is_reminded(arguments):
        tell(_home([]))


def _failed(error: BaseException, arguments: list[str]) -> int:
    from crystal_node.surfaces.cli.console.failures import report

    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return report(error, as_json="--json" in options, debug="--debug" in options)


def _version() -> int:
    from importlib.metadata import version

    sys.stdout.write(f"{_PROGRAM} {version('memory-crystal')}\n")
    return 0


def _nudge(arguments: list[str], *, whole_process: bool) -> int:
    """Have a running background service read all transcripts. For hooks: never fails, waits, reads or prints.

    Unknown words are ignored, since a hook of a later version may pass some.
    """
    from crystal_node.search.recall.time_limit import TimeLimit

    if whole_process:
        TimeLimit().start()
    _wake(_home(arguments))
    return 0


def _home(arguments: list[str]) -> str:
    """The home given by ``--home``, else that of this process."""
    home = _given(arguments, "--home")
    return os.path.expanduser((os.environ.get("CRYSTAL_HOME") or "~/.ldm") if home is None else home)  # noqa: PTH111


def _given(arguments: list[str], option: str) -> str | None:
    """The value of an option; None if it is not there."""
    found = None
    for index, word in enumerate(arguments):
        if word.startswith(f"{option}="):
            found = word.removeprefix(f"{option}=")
        elif word == option:
            found = "".join(arguments[index + 1 : index + 2])
    return found


def _wake(home: str) -> None:
    """Touch the file that a background service watches. It is missing if there is no home, or none ever ran."""
    from contextlib import suppress

    with suppress(OSError, ValueError):
        os.utime(os.path.join(home, "state", "nudge", "look"))  # noqa: PTH118  pathlib costs 5 ms


def _recall(arguments: list[str], *, whole_process: bool) -> int:
    """Wake the background service, and have it answer the hook; without one, this process does. Never fails.

    A process of its own has ``time_limit.SECONDS_MAX``, whatever hangs: standard input, a disk, the service.
    """
    from crystal_node.search.recall.time_limit import TimeLimit

    limit = TimeLimit()
    if whole_process:
        limit.start()
    from crystal_node.base.local_api import REQUEST_BYTES_MAX, ask

    home, plugin = _home(arguments), _given(arguments, "--plugin") or ""
    tool = plugin or _given(arguments, "--tool") or ""
    _wake(home)
    data = sys.stdin.buffer.read(REQUEST_BYTES_MAX + 1)
    if len(data) > REQUEST_BYTES_MAX:
        return 0
    try:
        known = tool.isascii() and tool.replace("-", "").isalnum()
        query = f"?{'plugin' if plugin else 'tool'}={tool}" if known else ""
        answer = ask(home, "POST", f"/api/recall{query}", data, seconds=_SERVICE_SECONDS_MAX)
    except TimeoutError:
        return 0
    except (OSError, ValueError):
        pass
    else:
        if answer.good:
            limit.tell(answer.body)
            return 0
    from crystal_node.search.recall.fallback import answer_here

    environment = {**os.environ, "CRYSTAL_HOME": home}
    if plugin and _has_own_hooks(plugin, environment):
        return 0
    _provide_keys()
    return answer_here(data, environment, limit, tool)


def _has_own_hooks(tool: str, environment: dict[str, str]) -> bool:
    """Whether `crystal hooks install` has hooks in this tool: its plugin's say nothing then."""
    from crystal_crypto.errors import CrystalError
    from crystal_node.agent.hooks.every_tool import has_hooks
    from crystal_node.base.settings import resolve

    try:
        return has_hooks(resolve(environment=environment), tool)
    except CrystalError:
        return False  # `answer_here` says what is wrong
