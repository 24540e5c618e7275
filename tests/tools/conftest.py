"""A workplace for each program: its folder is there before Crystal is set up, as on a person's machine."""

from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from tests.node.agent.daemon.running import agent
from tests.support.machine import Machine
from tests.support.scripted_model import scripted_model
from tests.tools.programs import PROGRAMS, Program
from tests.tools.workplace import Workplace

Bare = Callable[[type[Program]], Program]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Programs and homes of many processes take their time."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Generator[Bare]:
    """Makes homes that have a program with its settings, and no Crystal."""
    made: list[Program] = []
    with scripted_model() as model:

        def make(kind: type[Program]) -> Program:
            home = tmp_path_factory.mktemp(kind.name)
            program = kind(Workplace(Machine(home), model))
            program.prepare()
            made.append(program)
            return program

        yield make
        for program in made:
            program.end()


@pytest.fixture(scope="module", params=PROGRAMS, ids=lambda kind: kind.name)
def program(request: pytest.FixtureRequest, bare: Bare) -> Generator[Program]:
    """Each program, with Crystal and its background service."""
    made = bare(request.param)
    machine = made.workplace.machine
    machine.run("up", "--role", "core", "--yes", "--no-service")
    with agent(machine):
        yield made
