"""The chart and the manifests for Kubernetes: rendered, valid, closed, and what they tell a relay is told to a real one."""

import copy
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import yaml

from crystal_relay.cli.extensions import served
from crystal_relay.cli.options import ENROLL_VARIABLE, METRICS_VARIABLE
from crystal_relay.memory import MemoryStore
from crystal_relay.server import RelaySettings, create_app
from crystal_relay.server.settings import SHUTDOWN_SECONDS_MAX
from scripts.install_test_servers import CLUSTER, CLUSTER_DONE
from scripts.make_manifests import CHART, FILES, MANIFESTS, helm, manifest, rendered
from tests.support.caddy import free_ports
from tests.support.container_file import ContainerFile
from tests.support.s3_servers import S3Server

DEPLOY = CHART.parents[1]
IMAGE = ContainerFile(DEPLOY / "Containerfile")
VERSIONS = ("1.27", "1.37")
"""Of Kubernetes: the oldest that the chart accepts, and the newest whose schemas are here."""
START_SECONDS_MAX = 120.0
OF_OTHERS = {"PodMonitor"}
"""Kinds that Kubernetes itself does not have: there is no schema of them here."""
SECRETS = {ENROLL_VARIABLE, METRICS_VARIABLE, "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
BUCKET = ("--set", "store.bucket.url=s3://bucket/prefix")

needs_helm = pytest.mark.skipif(
    helm() is None, reason="no helm here (python -m scripts.install_test_servers)"
)
needs_schemas = pytest.mark.skipif(
    not CLUSTER_DONE.exists(), reason="no schemas of Kubernetes here (python -m scripts.install_test_servers)"
)

Document = dict[str, Any]


def documents(name: str) -> list[Document]:
    return [each for each in yaml.safe_load_all((MANIFESTS / name).read_text(encoding="utf-8")) if each]


def one(name: str, *kinds: str) -> Document:
    (found,) = [each for each in documents(name) if each["kind"] in kinds]
    return found


def pod(name: str) -> Document:
    template: Document = one(name, "Deployment", "StatefulSet")["spec"]["template"]
    return template


def container(name: str) -> Document:
    (only,) = pod(name)["spec"]["containers"]
    return cast(Document, only)


def environment(name: str) -> dict[str, str]:
    """As the cluster gives it to the process."""
    found: dict[str, str] = {}
    for each in container(name)["env"]:
        value = each.get("value", "127.0.0.1")
        found[each["name"]] = re.sub(r"\$\((\w+)\)", lambda match: found[match[1]], value)
    return found


WITH_PODS = ["bucket.yaml", "directory.yaml"]


# --- helm ---


def test_the_manifests_are_those_of_which_these_tests_know() -> None:
    assert {path.name for path in MANIFESTS.iterdir()} == set(FILES)


@needs_helm
@pytest.mark.parametrize("name", FILES)
def test_the_manifests_are_what_the_chart_renders(name: str) -> None:
    program = helm()
    assert program is not None
    assert (MANIFESTS / name).read_text(encoding="utf-8") == manifest(program, name)


@needs_helm
@pytest.mark.parametrize("options", [BUCKET, ("--set", "store.kind=directory")], ids=["bucket", "directory"])
def test_helm_finds_nothing(options: tuple[str, ...]) -> None:
    done = subprocess.run(
        [str(helm()), "lint", "--strict", "--quiet", str(CHART), *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@needs_helm
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "store.bucket.url is missing"),
        (("--set", "store.bucket.url=/var/lib"), "store/bucket/url"),
        ((*BUCKET, "--set", "replica=3"), "replica"),
        ((*BUCKET, "--set", "drainSeconds=600"), "drainSeconds"),
        ((*BUCKET, "--set", "environment.CRYSTAL_RELAY_ENROLL_TOKEN=x"), "CRYSTAL_RELAY_ENROLL_TOKEN"),
        (("--set", "store.kind=directory,autoscaling.enabled=true"), "autoscaling needs a bucket"),
    ],
)
def test_the_chart_refuses_what_a_relay_could_not_be(options: tuple[str, ...], said: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        rendered(str(helm()), *options)
    assert said in str(refused.value.stderr)


def _leaves(values: Document, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from _leaves(cast(Document, value), (*path, name))
        else:
            yield (*path, name), value


VALUES: Document = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
ALL_ON = {
    "store": {"bucket": {"url": "s3://bucket/prefix"}},
    "autoscaling": {"enabled": True},
    "metrics": {"podMonitor": True},
    "ingress": {"enabled": True},
}
OTHERS: dict[str, Any] = {
    "image.digest": "sha256:" + "0" * 64,
    "image.pullPolicy": "Always",
    "store.kind": "bucket",
    "store.bucket.url": "s3://other/prefix",
    "store.bucket.endpoint": "https://s3.example.org",
    "store.directory.size": "7Gi",
    "environment": {"CRYSTAL_RELAY_QUOTA_BYTES": "5000"},
    "tmpSize": "7Mi",
    "tolerations": [{"key": "other", "operator": "Exists"}],
}


def _other(path: str, value: Any) -> Any:
    """A value that is not the default, of the same kind."""
    if path in OTHERS:
        return OTHERS[path]
    match value:
        case bool():
            return not value
        case int():
            return value + 7
        case list():
            return ["other"]
        case dict():
            return {"other.example/name": "other"}
        case _:
            return "other"


@needs_helm
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_every_value_changes_something(tmp_path: Path) -> None:
    known: dict[str, str] = {}

    def texts(values: Document) -> str:
        file = tmp_path / "values.yaml"
        file.write_text(yaml.safe_dump(values), encoding="utf-8")
        text = file.read_text(encoding="utf-8")
        if text not in known:
            known[text] = rendered(str(helm()), "--values", str(file))
        return known[text]

    unused: list[str] = []
    for path, value in _leaves(VALUES):
        base: Document = copy.deepcopy(ALL_ON) if path[:2] != ("store", "directory") else {}
        if not base or path == ("store", "kind"):
            base = {"store": {"kind": "directory", "bucket": {"url": "s3://bucket/prefix"}}}
        if path == ("replicas",):
            base["autoscaling"] = {"enabled": False}
        changed = copy.deepcopy(base)
        at = changed
        for name in path[:-1]:
            at = at.setdefault(name, {})
        dotted = ".".join(path)
        at[path[-1]] = _other(dotted, base.get(path[0], {}).get(path[-1], value) if len(path) == 2 else value)
        if texts(base) == texts(changed):
            unused.append(dotted)
    assert unused == []


def test_every_value_is_described_and_in_the_schema() -> None:
    lines = (CHART / "values.yaml").read_text(encoding="utf-8").splitlines()
    tops = [at for at, line in enumerate(lines) if re.match(r"\w", line)]
    bare = {"resources", "podAnnotations", "nodeSelector", "tolerations", "service"}  # Kubernetes' own words
    silent: list[str] = []
    for at, end in zip(tops, [*tops[1:], len(lines)], strict=True):
        name = lines[at].partition(":")[0]
        if name not in bare and "#" not in lines[at - 1] + "".join(lines[at : end - 1]):
            silent.append(name)
    assert silent == []
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    for path, _ in _leaves(VALUES):
        inside = schema
        for name in path:
            inside = inside.get("properties", {}).get(name) or inside["additionalProperties"]


# --- valid ---


def _validated(file: Path, version: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(CLUSTER / "bin" / "kubernetes-validate"), "-k", version, "--strict", str(file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@needs_schemas
@pytest.mark.parametrize("version", VERSIONS)
def test_the_manifests_are_what_kubernetes_takes(version: str, tmp_path: Path) -> None:
    known = [each for name in FILES for each in documents(name) if each["kind"] not in OF_OTHERS]
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all(known), encoding="utf-8")
    done = _validated(file, version)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" passed ") + done.stderr.count(" passed ") == len(known)


@needs_schemas
def test_a_fault_in_a_manifest_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "faulty.yaml"
    file.write_text(
        (MANIFESTS / "bucket.yaml").read_text(encoding="utf-8").replace("periodSeconds", "period")
    )
    assert _validated(file, VERSIONS[-1]).returncode != 0


# --- closed: the profile "restricted" of Kubernetes' Pod Security Standards, and more ---


@pytest.mark.parametrize("name", WITH_PODS)
def test_a_pod_has_no_rights_that_it_does_not_need(name: str) -> None:
    spec, inner = pod(name)["spec"], container(name)
    outer = spec["securityContext"]
    user, group = map(int, IMAGE.last("USER").value.split(":"))
    assert (outer["runAsNonRoot"], outer["runAsUser"], outer["runAsGroup"], outer["fsGroup"]) == (
        True,
        user,
        group,
        group,
    )
    assert outer["seccompProfile"] == {"type": "RuntimeDefault"}
    assert inner["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(spec)
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False, "a service crystal-relay sets CRYSTAL_RELAY_PORT otherwise"
    assert inner["resources"]["limits"]["memory"]
    assert [next(iter(set(volume) - {"name"})) for volume in spec["volumes"]] == ["emptyDir"]


@pytest.mark.parametrize("name", WITH_PODS)
def test_a_pod_writes_where_the_image_does(name: str) -> None:
    mounts = {each["mountPath"] for each in container(name)["volumeMounts"]}
    volume = IMAGE.last("VOLUME").value
    assert mounts == ({"/tmp", volume} if name == "directory.yaml" else {"/tmp"})
    store = environment(name)["CRYSTAL_RELAY_STORE"]
    assert store.startswith((f"file://{volume}/", "s3://BUCKET/"))


@pytest.mark.parametrize("name", FILES)
def test_the_manifests_hold_no_secret(name: str) -> None:
    assert "Secret" not in {each["kind"] for each in documents(name)}
    if name in WITH_PODS:
        assert container(name)["envFrom"] == [{"secretRef": {"name": "crystal-relay"}}]
        assert not SECRETS & set(environment(name))


def test_one_process_stops_at_a_time_and_no_sooner_than_it_has_drained() -> None:
    deployment = one("bucket.yaml", "Deployment")["spec"]
    assert deployment["replicas"] >= 2
    assert deployment["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert one("bucket.yaml", "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    for name in WITH_PODS:
        drain = float(environment(name)["CRYSTAL_RELAY_DRAIN_SECONDS"])
        assert pod(name)["spec"]["terminationGracePeriodSeconds"] > drain + SHUTDOWN_SECONDS_MAX
    readiness = container("bucket.yaml")["readinessProbe"]
    assert (
        readiness["periodSeconds"] * readiness["failureThreshold"]
        < deployment["template"]["spec"]["terminationGracePeriodSeconds"]
    )
    directory = one("directory.yaml", "StatefulSet")["spec"]
    assert directory["replicas"] == 1, "a directory belongs to one process"


def test_everything_points_at_the_pods() -> None:
    for name in WITH_PODS:
        labels = pod(name)["metadata"]["labels"].items()
        selectors = [
            one(name, "Service")["spec"]["selector"],
            one(name, "Deployment", "StatefulSet")["spec"]["selector"]["matchLabels"],
            *(
                each["spec"]["selector"]["matchLabels"]
                for other in FILES
                for each in documents(other)
                if each["kind"] in ("PodDisruptionBudget", "PodMonitor")
            ),
        ]
        assert all(selector.items() <= labels for selector in selectors)
        (port,) = container(name)["ports"]
        assert (
            str(port["containerPort"])
            == IMAGE.last("EXPOSE").value
            == environment(name)["CRYSTAL_RELAY_PORT"]
        )
        assert one(name, "Service")["spec"]["ports"][0]["targetPort"] == port["name"]
        assert pod(name)["spec"]["serviceAccountName"] == one(name, "ServiceAccount")["metadata"]["name"]
    scaled = one("autoscaling.yaml", "HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]
    assert scaled["name"] == one("bucket.yaml", "Deployment")["metadata"]["name"]


# --- what a relay makes of it ---


def test_the_ingress_passes_what_devices_ask_for_and_nothing_else() -> None:
    (rule,) = one("ingress.yaml", "Ingress")["spec"]["rules"]
    prefixes = [each["path"] for each in rule["http"]["paths"]]
    template = (CHART / "templates" / "ingress.yaml").read_text(encoding="utf-8")
    of_the_prototype = re.findall(r'"(/\w+)"', template.partition("concat")[2])

    def passed(path: str, among: list[str]) -> bool:
        return any(path == prefix or path.startswith(f"{prefix}/") for prefix in among)

    settings = RelaySettings(enroll_token="e" * 20, metrics_token="m" * 20)
    for v1, among in ((False, prefixes), (True, prefixes + of_the_prototype)):
        application = create_app(MemoryStore(), settings, extensions=served(v1=v1))
        paths = [cast(Any, route).path for route in application.routes]
        assert "/metrics" in paths
        assert [path for path in paths if not passed(path, among)] == ["/metrics"]
    assert passed("/v2/vaults/00/objects/blob/00", prefixes)
    assert not passed("/v2/peers/news", prefixes)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", WITH_PODS)
def test_a_relay_with_these_settings_answers_its_probes_and_counts_its_waits(
    name: str, moto_server: S3Server, tmp_path: Path
) -> None:
    (port,) = free_ports("127.0.0.1", 1)
    given = environment(name)
    told = given | {
        "CRYSTAL_RELAY_HOST": "127.0.0.1",
        "CRYSTAL_RELAY_PORT": str(port),
        "CRYSTAL_RELAY_DRAIN_SECONDS": "0",
        ENROLL_VARIABLE: "e" * 20,
        METRICS_VARIABLE: "m" * 20,
        "HOME": str(tmp_path),
        "PATH": os.environ["PATH"],
    }
    if name == "bucket.yaml":
        mine = moto_server.with_new_bucket()
        told |= mine.environment | {
            "CRYSTAL_RELAY_STORE": given["CRYSTAL_RELAY_STORE"].replace("BUCKET", mine.bucket),
            "CRYSTAL_RELAY_S3_ENDPOINT": mine.endpoint,
        }
        told["CRYSTAL_RELAY_PEER_URL"] = told["CRYSTAL_RELAY_PEER_URL"].replace("18791", str(port))
    else:
        told["CRYSTAL_RELAY_STORE"] = (tmp_path / "store").as_uri()
    inner = container(name)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "crystal_relay", *inner["args"]], env=told, stdout=subprocess.DEVNULL
    )
    try:
        address = f"http://127.0.0.1:{port}"
        _until_answered(process, address + inner["startupProbe"]["httpGet"]["path"])
        _until_answered(process, address + inner["livenessProbe"]["httpGet"]["path"])
        _until_answered(process, address + inner["readinessProbe"]["httpGet"]["path"])
        (endpoint,) = one("autoscaling.yaml", "PodMonitor")["spec"]["podMetricsEndpoints"]
        assert endpoint["authorization"]["credentials"]["key"] == METRICS_VARIABLE
        read = httpx.get(
            address + endpoint["path"], headers={"Authorization": "Bearer " + "m" * 20}, timeout=60
        )
        (metric,) = one("autoscaling.yaml", "HorizontalPodAutoscaler")["spec"]["metrics"]
        assert re.search(rf"^{metric['pods']['metric']['name']} 0", read.text, re.MULTILINE)
        process.terminate()
        assert process.wait(timeout=120) == 0
    finally:
        process.kill()
        process.wait()


def _until_answered(process: "subprocess.Popen[bytes]", url: str) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        assert process.poll() is None, "it ended"
        try:
            if httpx.get(url, timeout=30).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"{url} did not answer 200")
