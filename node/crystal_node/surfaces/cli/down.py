"""``crystal down``: undo what ``crystal up`` installed, and keep everything else."""

from crystal_node.base.settings import resolve
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit, say
from crystal_node.surfaces.setup.down import down_plan
from crystal_node.surfaces.setup.steps import StepOutcome, carry_out, exit_code


def run(as_json: Json = False) -> int:
    """Stop recording and syncing; keep everything recorded.

    The background service ends, and it and the hooks are removed. `crystal up` brings them back as they were, and records
    what was said meanwhile. It can be run again at any time.

    Example:

        crystal down
    """
    settings = resolve()
    outcomes: list[StepOutcome] = []
    for outcome in carry_out(down_plan(settings)):
        outcomes.append(outcome)
        if not as_json:
            for line in outcome.lines():
                say(line)
    code = exit_code(outcomes)
    if as_json:
        steps = [outcome.document() for outcome in outcomes]
        emit({"home": str(settings.home.root), "steps": steps, "exit_code": int(code)})
    elif not code:
        home = settings.home.root
        if settings.capture.native_memory and home.exists():
            say("Memory files of AI tools stay as they are, and are kept in step no more until `crystal up`.")
        say(
            f"Nothing is recorded or synced any more. Everything stays in {home}; `crystal up` goes on."
            if home.exists()
            else f"Nothing is recorded or synced here. There is no home {home}: `crystal up` makes one."
        )
    return code
