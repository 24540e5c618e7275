"""For all folders: where homes lie, the order of the files, what a run says at its end, and S3 servers that the workers of a
run share, each started by the first test that asks for it. A test works in a bucket of its own: `rgw_server.with_new_bucket()`.
"""

import os
import signal
import sys
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.support import durations, quick, temporary
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


def pytest_configure(config: pytest.Config) -> None:
    """Workers get their directory from the process that starts them."""
    if not hasattr(config, "workerinput"):
        temporary.use_memory()


def pytest_xdist_auto_num_workers() -> int | None:
    """One worker more than there are processors: tests wait for processes and servers much of the time."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ or not hasattr(os, "sched_getaffinity"):
        return None
    return len(os.sched_getaffinity(0)) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """A worker is about to start."""
    durations.hand_on(node.config, node.workerinput)


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files that took long come first and short ones last: no worker is left alone with minutes of work at the end."""
    quick.mark(items)
    seconds = durations.of_last_run(config)
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    tests = Counter(item.path for item in items)

    def place(item: pytest.Item) -> tuple[float, bool, int]:
        return -seconds.get(item.nodeid.partition("::")[0], 0.0), item.path not in slow, -tests[item.path]

    items.sort(key=place)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a test logs may be no text (a file name's bytes); workers hand their reports on as UTF-8."""
    report = yield
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections
    ]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """What the simulator did and how long the folders took, over all workers."""
    reports = [report for found in terminalreporter.stats.values() for report in found]
    totals: Counter[str] = Counter()
    for report in reports:
        for name, done in getattr(report, "user_properties", ()):
            if name == "simulator" and getattr(report, "when", "") == "teardown":
                totals.update(done)
    if totals:
        from tests.sim.measure import lines

        terminalreporter.section("simulated worlds")
        for line in lines(totals):
            terminalreporter.write_line(line)
    seconds = durations.by_file(reports)
    durations.keep(config, seconds)
    if len(seconds) > 1:
        terminalreporter.section("time")
        for line in durations.lines(reports, seconds):
            terminalreporter.write_line(line)


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Path]:
    """In memory, where there is enough; on the disk for what is marked `disk`."""
    if request.node.get_closest_marker("disk") is None:
        yield tmp_path
        return
    with temporary.on_disk(request.node.name) as folder:
        yield folder


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
