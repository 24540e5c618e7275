"""For all folders: the order of the files, and S3 servers that the workers of a run share, each started by the first test that
asks for it. A test works in a bucket of its own: `rgw_server.with_new_bucket()`.
"""

import os
import signal
import sys
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest

from tests.support.s3_servers import S3Server
from tests.support.s3_servers.kept import shared

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # Who starts the tests in the background has them ignore Ctrl-C, and every process that they start, for they inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Where Python is told to keep no compiled sources each of the many processes that tests start compiles all of them anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


# How long an example takes is no property of ours: other tests run beside it.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")

_WITH_PROCESSES = {"contract", "deploy", "node", "relay", "system"}
"""Folders whose tests wait for real processes, servers and browsers, on whatever machine this is."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first and short files last: no worker is left alone with minutes of work at the end.

    What fails with real processes is tried once more, and named as such at the end. Everything else fails at once.
    """
    for item in items:
        if item.path.relative_to(Path(__file__).parent).parts[0] in _WITH_PROCESSES:
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=1))
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    tests = Counter(item.path for item in items)
    items.sort(key=lambda item: (item.path not in slow, -tests[item.path]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a test logs may be no text (a file name's bytes); workers hand their reports on as UTF-8."""
    report = yield
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections
    ]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the simulator did, over all workers."""
    totals: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, done in getattr(report, "user_properties", ()):
                if name == "simulator" and getattr(report, "when", "") == "teardown":
                    totals.update(done)
    if totals:
        from tests.sim.measure import lines

        terminalreporter.section("simulated worlds")
        for line in lines(totals):
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def rgw_server(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> S3Server:
    return _shared("rgw", tmp_path_factory, worker_id)


@pytest.fixture(scope="session")
def swift_server(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> S3Server:
    return _shared("swift", tmp_path_factory, worker_id)


@pytest.fixture(scope="session")
def rclone_server(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> S3Server:
    return _shared("rclone", tmp_path_factory, worker_id)


@pytest.fixture(scope="session")
def moto_server(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> S3Server:
    """Without `auth`: see `running_moto`."""
    return _shared("moto", tmp_path_factory, worker_id)


def _shared(name: str, tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> S3Server:
    """Workers are children of the process that runs the session; their directories lie side by side in its own."""
    base = tmp_path_factory.getbasetemp()
    directory, session = (base, os.getpid()) if worker_id == "master" else (base.parent, os.getppid())
    folder = Path(directory) / "s3-servers"
    folder.mkdir(exist_ok=True)
    return shared(name, folder, until_exit_of=session)
