"""The container files and the composition: linted, and held to the rules that make a break-in worth little."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.container_file import ContainerFile

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
CONTAINER_FILES = [DEPLOY / "Containerfile", DEPLOY / "caddy" / "Containerfile"]
HADOLINT = Path(sys.executable).with_name("hadolint")
COMPOSE = DEPLOY / "compose.yaml"
_EXACT_TAG = re.compile(r"[\w./-]+:v?\d+\.\d+(\.\d+)?(-[\w.-]+)?\Z")


def _services() -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]
    return services


SERVICES = ["relay", "bucket", "s3", "caddy"]


# --- images ---


@pytest.mark.parametrize("path", CONTAINER_FILES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_hadolint_finds_nothing(path: Path) -> None:
    done = subprocess.run([str(HADOLINT), str(path)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_hadolint_would_find_something(tmp_path: Path) -> None:
    bad = tmp_path / "Containerfile"
    bad.write_text("FROM python:latest\nRUN cd /tmp && sudo pip install x\n")
    done = subprocess.run([str(HADOLINT), str(bad)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0


@pytest.mark.parametrize("path", CONTAINER_FILES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_every_image_is_of_an_exact_version(path: Path) -> None:
    images = [one.value.split()[0] for one in ContainerFile(path).all("FROM")]
    assert images
    assert [image for image in images if not _EXACT_TAG.match(image)] == []


@pytest.mark.parametrize("path", CONTAINER_FILES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_an_image_runs_as_nobody_in_particular(path: Path) -> None:
    assert ContainerFile(path).last("USER").value == "65532:65532"


@pytest.mark.parametrize("path", CONTAINER_FILES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_an_image_says_how_to_see_whether_it_lives(path: Path) -> None:
    assert ContainerFile(path).last("HEALTHCHECK").words()


def test_the_relay_needs_no_shell_to_start_or_to_be_checked() -> None:
    image = ContainerFile(CONTAINER_FILES[0])
    for name in ("ENTRYPOINT", "CMD", "HEALTHCHECK"):
        assert image.last(name).words()
    assert "/health/live" in image.last("HEALTHCHECK").value


def test_nothing_but_the_sources_reaches_the_image() -> None:
    ignored = (DEPLOY / "Containerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    assert next(line for line in ignored if not line.startswith("#")) == "*"
    allowed = {line[1:] for line in ignored if line.startswith("!")}
    copied = {
        source.rstrip("/")
        for one in ContainerFile(CONTAINER_FILES[0]).all("COPY")
        if not one.value.startswith("--from")
        for source in one.value.split()[:-1]
    }
    assert copied == allowed
    assert all((DEPLOY.parent / source).exists() for source in copied)


# --- the composition ---


def test_the_composition_is_what_these_tests_look_at() -> None:
    assert list(_services()) == SERVICES


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_no_rights_that_it_does_not_need(name: str) -> None:
    service = _services()[name]
    user = str(service["user"])
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user), "not root"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "cap_add" not in service
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "pid", "ipc", "network_mode", "devices", "userns_mode"} & set(service)
    assert not [
        volume for volume in service.get("volumes", []) if "docker.sock" in volume or volume[0] in "/~"
    ]


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_of_an_exact_version(name: str) -> None:
    assert _EXACT_TAG.match(_services()[name]["image"])


def test_what_runs_on_is_checked_limited_and_started_again() -> None:
    for name, service in _services().items():
        if service["restart"] == "no":
            assert name == "bucket"
            continue
        assert service["restart"] == "unless-stopped"
        assert service["healthcheck"]["test"][0] == "CMD", "no shell"
        assert service["mem_limit"]
        assert service["pids_limit"]


def test_the_composition_checks_the_relay_as_its_image_does() -> None:
    image = ContainerFile(CONTAINER_FILES[0])
    assert _services()["relay"]["healthcheck"]["test"][1:] == image.last("HEALTHCHECK").words()


def test_only_caddy_is_reachable_from_outside() -> None:
    ports = {name: service.get("ports", []) for name, service in _services().items()}
    assert ports.pop("caddy") == ["80:80", "443:443"]
    assert all(port.startswith("127.0.0.1:") for open_ports in ports.values() for port in open_ports)


def test_the_bucket_is_reachable_for_the_relay_alone() -> None:
    whole = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))
    assert whole["networks"]["storage"] == {"internal": True}
    assert [name for name, service in _services().items() if "storage" in service["networks"]] == [
        "relay",
        "bucket",
        "s3",
    ]


def test_the_relay_believes_caddy_and_nobody_else_about_addresses() -> None:
    services = _services()
    caddy = services["caddy"]["networks"]["edge"]["ipv4_address"]
    assert services["relay"]["environment"]["CRYSTAL_RELAY_TRUSTED_PROXY"] == caddy


def test_the_composition_holds_no_secret() -> None:
    lines = COMPOSE.read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    secret = re.compile(r"(?i)(token|secret|password|access_?key)(_\w+)?\"?:\s*(\S.*)")
    found = [match[3] for match in secret.finditer(text)]
    assert len(found) > 6
    assert [value for value in found if not re.match(r'"?\$\{\w+:\?set it in \.env', value)] == []
    asked = set(re.findall(r"\$\{(\w+)", text))
    example = (DEPLOY / "compose.env.example").read_text(encoding="utf-8")
    assert asked == set(re.findall(r"^(\w+)=$", example, re.MULTILINE))


def test_the_s3_servers_users_may_do_what_they_do_and_no_more() -> None:
    whole = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))
    users = json.loads(re.sub(r"\$\{[^}]*\}", "x", whole["configs"]["s3-users"]["content"]))["identities"]
    assert {user["name"]: user["actions"] for user in users}["relay"] == [
        "Read:crystal",
        "Write:crystal",
        "List:crystal",
    ]
