"""``crystal agent run``: apart from the other verbs, so that a service keeps no argument parser in memory."""

from crystal_node.agent.daemon import logs
from crystal_node.agent.daemon.process import run_agent
from crystal_node.agent.watcher import reporter
from crystal_node.base.settings import resolve
from crystal_node.surfaces.gateway.local import LocalApi


def run(*, quiet: bool, as_json: bool) -> None:
    """Run the background service until it is stopped. Raises as ``run_agent``."""
    run_agent(resolve, logs.quiet if quiet else reporter(as_json), LocalApi)
