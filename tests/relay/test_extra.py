"""A relay without the packages of its extra says which extra it needs."""

import sys

import pytest
from typer.testing import CliRunner

from crystal_relay.cli.app import app
from crystal_relay.errors import Unusable
from crystal_relay.server.metrics import Exposition, Metrics


def test_a_bucket_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    ended = CliRunner().invoke(app, ["check", "--store", "s3://bucket/prefix"])
    assert ended.exit_code == 8
    assert "a bucket needs the package boto3" in ended.output
    assert "memory-crystal[relay]" in ended.output


def test_metrics_without_their_package_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(Unusable, match="metrics needs the package prometheus_client") as raised:
        Exposition(Metrics())
    assert "memory-crystal[relay]" in raised.value.hint
