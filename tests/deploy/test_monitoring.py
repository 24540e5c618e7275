"""Alert rules and dashboard: each metric in them is one that a real relay shows, and Prometheus' own tool takes them."""

import json
import re
import secrets
import shutil
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.relay_process import running_relay
from tests.support.s3_servers import running_moto

pytestmark = pytest.mark.timeout(400)

FOLDER = Path(__file__).parents[2] / "deploy" / "prometheus"
DASHBOARD = FOLDER / "dashboard.json"
RULES = FOLDER / "alerts.yaml"
_METRIC = re.compile(r"\b(?:crystal_relay|process)_[a-z_]+\b")


@pytest.fixture(scope="module")
def expositions(tmp_path_factory: pytest.TempPathFactory) -> Generator[list[str]]:
    """What a relay over a directory shows, and one over a bucket."""
    token = secrets.token_hex(16)
    environment = {"CRYSTAL_RELAY_METRICS_TOKEN": token}
    folder = tmp_path_factory.mktemp("relays")
    with running_moto() as server:
        at_bucket = ("--store", f"s3://{server.bucket}/relay", "--s3-endpoint", server.endpoint)
        with (
            running_relay(folder / "directory", environment=environment) as one,
            running_relay(
                folder / "bucket", options=at_bucket, environment=environment | dict(server.environment)
            ) as two,
        ):
            shown: list[str] = []
            for relay in (one, two):
                assert httpx.get(f"{relay.url}/health/ready", timeout=120).status_code == 200
                headers = {"Authorization": f"Bearer {token}"}
                shown.append(httpx.get(f"{relay.url}/metrics", headers=headers, timeout=120).text)
            yield shown


def shown_names(expositions: list[str]) -> set[str]:
    """Families and samples: a histogram has three kinds of these, and none of a label that nobody used yet."""
    names: set[str] = set()
    for text in expositions:
        for family in text_string_to_metric_families(text):
            suffixes = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("_total",)}
            names |= {family.name + suffix for suffix in suffixes.get(family.type, ("",))}
    return names


def dashboard_expressions() -> list[str]:
    board: dict[str, Any] = json.loads(DASHBOARD.read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    return expressions + [
        each["query"]["query"] for each in board["templating"]["list"] if each["type"] == "query"
    ]


def test_each_metric_of_the_dashboard_and_the_rules_is_shown_by_a_real_relay(expositions: list[str]) -> None:
    shown = shown_names(expositions)
    rules = "\n".join(line for line in RULES.read_text().splitlines() if not line.lstrip().startswith("#"))
    for source in (*dashboard_expressions(), rules):
        assert _METRIC.search(source), source
        assert set(_METRIC.findall(source)) <= shown, source


def test_a_relays_metrics_follow_the_conventions_of_names(expositions: list[str]) -> None:
    """https://prometheus.io/docs/practices/naming/: a prefix, base units, `_total` on counters and on nothing else."""
    for text in expositions:
        for family in text_string_to_metric_families(text):
            if family.name.startswith("process_"):
                continue
            assert family.name.startswith("crystal_relay_")
            assert family.documentation
            assert not family.name.endswith(("_total", "_count", "_sum", "_bucket", "_ms", "_kb", "_percent"))
            if family.type == "histogram":
                assert family.name.endswith("_seconds")


def test_the_dashboard_has_each_panel_at_a_place_of_its_own() -> None:
    board = json.loads(DASHBOARD.read_text())
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (place["x"] + right, place["y"] + down)
            for right in range(place["w"])
            for down in range(place["h"])
        }
        assert place["x"] + place["w"] <= 24, "Grafana's grid has 24 columns"
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def promtool(*arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """Prometheus' own tool, of Debian's package `prometheus`."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("no promtool here: it is in Debian's package prometheus")
    return subprocess.run(
        [program, *arguments], input=text, capture_output=True, text=True, check=False, cwd=FOLDER
    )


def test_prometheus_takes_the_rules_and_they_fire_when_they_should() -> None:
    for command in (("check", "rules", "alerts.yaml"), ("test", "rules", "alerts.test.yaml")):
        done = promtool(*command)
        assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_takes_the_dashboards_expressions(tmp_path: Path) -> None:
    """As rules, since its tool checks those; Grafana fills its variables in."""
    expressions = [each for each in dashboard_expressions() if not each.startswith("label_values")]
    filled = [each.replace("$__rate_interval", "5m").replace("$instance", ".*") for each in expressions]
    rules = [{"record": f"panel_{number}", "expr": each} for number, each in enumerate(filled)]
    file = tmp_path / "panels.json"  # JSON is YAML
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    done = promtool("check", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_finds_no_fault_in_what_a_relay_shows(expositions: list[str]) -> None:
    for text in expositions:
        done = promtool("check", "metrics", text=text)
        assert done.returncode == 0, done.stdout + done.stderr
