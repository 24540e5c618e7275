"""Settings: which origin wins, what is refused, and that nothing a person wrote is lost."""

import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal_node.base.errors import BadConfig
from crystal_node.base.settings import (
    CONFIG_BYTES_MAX,
    Config,
    Flags,
    KeyStoreKind,
    SettingSource,
    config,
    enrolment_token,
    resolve,
    with_current_options,
)
from tests.support.machine import Vault


def _environment(home: Path, **more: str) -> dict[str, str]:
    return {"CRYSTAL_HOME": str(home), **more}


def test_a_flag_wins_over_the_environment_over_config_json_over_the_default(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"agent": "from-config"}')
    origins: list[tuple[str, SettingSource]] = []
    for flags, more in (
        (Flags(agent="from-flag"), {"CRYSTAL_AGENT_ID": "from-environment"}),
        (Flags(), {"CRYSTAL_AGENT_ID": "from-environment"}),
        (Flags(), {}),
    ):
        agent = resolve(flags, _environment(tmp_path, **more)).agent
        origins.append((agent.value, agent.source))
    (tmp_path / "config.json").unlink()
    agent = resolve(None, _environment(tmp_path)).agent
    origins.append((agent.value, agent.source))
    assert origins == [
        ("from-flag", SettingSource.FLAG),
        ("from-environment", SettingSource.ENVIRONMENT),
        ("from-config", SettingSource.CONFIG),
        ("claude-code", SettingSource.DEFAULT),
    ]


def test_the_default_home_is_in_the_users_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    settings = resolve(None, {})
    assert settings.home.root == tmp_path / ".ldm"
    assert settings.home.database == tmp_path / ".ldm" / "memory" / "crystal.db"
    assert settings.claude_folder == tmp_path / ".claude"


def test_every_shown_setting_says_where_it_comes_from(tmp_path: Path) -> None:
    settings = resolve(None, _environment(tmp_path, CRYSTAL_RELAY_URL="http://127.0.0.1:1/"))
    shown = {setting.name: (setting.value, setting.origin) for setting in settings.shown()}
    assert shown["relay_url"] == ("http://127.0.0.1:1", "environment (CRYSTAL_RELAY_URL)")
    assert shown["home"] == (str(tmp_path), "environment (CRYSTAL_HOME)")
    assert shown["key_store"] == ("auto", "default")


def test_the_enrolment_token_is_never_among_the_shown_settings(tmp_path: Path) -> None:
    environment = _environment(tmp_path, CRYSTAL_RELAY_ENROLL_TOKEN="very-secret")
    assert enrolment_token(environment) == "very-secret"
    assert "very-secret" not in repr(resolve(None, environment))


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"{", id="cut"),
        pytest.param(b"[]", id="not an object"),
        pytest.param(b'{"vault": "xyz"}', id="no vault id"),
        pytest.param(b'{"relay_url": 3}', id="wrong type"),
        pytest.param(b'{"version": 99}', id="later version"),
        pytest.param(b"\xff\xfe", id="not UTF-8"),
        pytest.param(b'{"agent": "' + b"a" * CONFIG_BYTES_MAX + b'"}', id="too large"),
    ],
)
def test_a_damaged_config_is_named_and_not_overwritten(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(BadConfig, match=r"config\.json") as caught:
        resolve(None, _environment(tmp_path))
    assert caught.value.exit_code == 3
    assert (tmp_path / "config.json").read_bytes() == content


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org",
        "example.org",
        "https://",
        "http://user:secret@example.org",
        "https://a.example/?q=1",
        "http://a:99999",
    ],
)
def test_an_address_that_is_none_or_holds_secrets_is_refused_by_its_origin(tmp_path: Path, url: str) -> None:
    with pytest.raises(BadConfig) as caught:
        resolve(Flags(relay_url=url), _environment(tmp_path))
    assert "flag" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("agent", ["", "-x", "a b", "a/b", "a" * 65, "é", "$(id)"])
def test_an_agent_id_is_plain(tmp_path: Path, agent: str) -> None:
    environment = _environment(tmp_path, CRYSTAL_AGENT_ID=agent)
    if not agent:
        assert resolve(None, environment).agent_id == "claude-code"
        return
    with pytest.raises(BadConfig, match="CRYSTAL_AGENT_ID"):
        resolve(None, environment)


def test_an_unknown_key_store_is_refused(tmp_path: Path) -> None:
    assert resolve(None, _environment(tmp_path, CRYSTAL_KEY_STORE="file")).key_store is KeyStoreKind.FILE
    with pytest.raises(BadConfig, match="'cloud'"):
        resolve(None, _environment(tmp_path, CRYSTAL_KEY_STORE="cloud"))


@pytest.mark.parametrize("text", ["0", "soon", "-1", "601", "nan"])
def test_a_timeout_is_a_number_of_seconds(tmp_path: Path, text: str) -> None:
    assert resolve(None, _environment(tmp_path, CRYSTAL_RELAY_TIMEOUT="2.5")).relay_timeout == 2.5
    with pytest.raises(BadConfig, match="CRYSTAL_RELAY_TIMEOUT"):
        resolve(None, _environment(tmp_path, CRYSTAL_RELAY_TIMEOUT=text))


def test_saving_keeps_what_this_version_does_not_know(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"agent": "a", "of_the_future": {"x": [1]}}')
    settings = resolve(None, _environment(tmp_path))
    settings.save(Config(agent="b", relay_url="https://r.example"))
    kept = json.loads((tmp_path / "config.json").read_text())
    assert kept["of_the_future"] == {"x": [1]}
    again = resolve(None, _environment(tmp_path))
    assert (again.agent_id, again.relay_url) == ("b", "https://r.example")


@given(st.text(max_size=200))
def test_any_device_name_becomes_one_printable_line(name: str) -> None:
    cleaned = resolve(Flags(name=name), {"CRYSTAL_HOME": "/nonexistent"}).name.value
    assert cleaned
    assert cleaned.isprintable()
    assert len(cleaned) <= 100


def test_the_bandwidth_is_unlimited_unless_said_and_shown_with_its_origin(tmp_path: Path) -> None:
    settings = resolve(None, _environment(tmp_path))
    assert (settings.bandwidth_up, settings.bandwidth_down) == (0, 0)
    (tmp_path / "config.json").write_text('{"bandwidth_up": 64, "bandwidth_down": 128}')
    settings = resolve(None, _environment(tmp_path, CRYSTAL_BANDWIDTH_DOWN="0"))
    assert (settings.bandwidth_up, settings.bandwidth_down) == (64 * 1024, 0)
    shown = {setting.name: (setting.value, setting.origin) for setting in settings.shown()}
    assert shown["bandwidth_up"] == ("64", "config.json")
    assert shown["bandwidth_down"] == ("0", "environment (CRYSTAL_BANDWIDTH_DOWN)")


@pytest.mark.parametrize("text", ["1", "15", "-1", "2.5", "fast", "\u0665\u0666", "9999999999"])
def test_a_bandwidth_that_cannot_be_kept_to_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadConfig, match="bandwidth_up from environment"):
        resolve(None, _environment(tmp_path, CRYSTAL_BANDWIDTH_UP=text))


def test_an_option_is_set_shown_with_its_origin_overridden_and_unset(vault: Vault) -> None:
    core = vault.core
    done = core.call("config", "set", "time_zone", "Europe/Berlin", "--json")
    assert done.json == {"name": "time_zone", "value": "Europe/Berlin", "origin": "config.json"}
    shown = {
        each["name"]: each for each in core.call("config", "--json", CRYSTAL_BACKUP_KEEP="3").json["settings"]
    }
    assert shown["time_zone"]["value"] == "Europe/Berlin"
    assert (shown["backup_keep"]["value"], shown["backup_keep"]["origin"]) == (
        "3",
        "environment (CRYSTAL_BACKUP_KEEP)",
    )
    assert core.call("config", "unset", "time_zone", "--json").json["origin"] == "default"
    assert "time_zone" not in json.loads((core.home / "config.json").read_text())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("time_zone", "Nowhere/Land"),
        ("time_zone", "../../etc/passwd"),
        ("capture", "perhaps"),
        ("backup_folder", "not/absolute"),
        ("backup_keep", "0"),
        ("capture_without", "Codex; rm"),
        ("llm_url", "file:///etc/passwd"),
        ("commands_denied", "laptop"),
        ("staging", "maybe"),
    ],
)
def test_an_option_that_cannot_be_is_refused_wherever_it_comes_from(
    vault: Vault, name: str, value: str
) -> None:
    core = vault.core
    before = (core.home / "config.json").read_bytes()
    refused = core.call("config", "set", name, value, check=False)
    assert (refused.code, name in refused.err) == (3, True), refused.err
    assert (core.home / "config.json").read_bytes() == before
    (core.home / "config.json").write_text(json.dumps(json.loads(before) | {name: value}))
    named = core.call("config", check=False)
    assert (named.code, "config.json" in named.err) == (3, True)


def test_options_are_typed_as_json_has_them(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        '{"capture": false, "weave_tokens_max": 5000, "capture_without": "codex, Gemini-CLI"}'
    )
    settings = resolve(environment={"CRYSTAL_HOME": str(tmp_path), "HOME": str(tmp_path)})
    assert not settings.capture.on
    assert settings.capture.without == {"codex", "gemini-cli"}
    assert settings.dreams.tokens_max == 5000
    assert settings.capture.drop_folder == tmp_path / "drop"


def test_settings_that_are_asked_for_every_second_are_those_of_the_file_as_it_is_now(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    settings = resolve(None, _environment(tmp_path))

    def agent() -> str:
        return with_current_options(settings).agent.value

    path.write_text('{"agent": "a"}')
    assert agent() == "a"
    path.write_text('{"agent": "b"}')  # as long, within the same tick of a coarse clock
    assert agent() == "b"
    long_ago = time.time() - 60
    os.utime(path, (long_ago, long_ago))
    assert agent() == "b"
    path.write_text('{"agent": "c"}')
    os.utime(path, (long_ago, long_ago))  # restored from a copy with its time
    assert agent() == "c"
    path.unlink()
    assert agent() == "claude-code"


def test_a_config_that_stays_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"agent": "a"}')
    monkeypatch.setattr(config, "_SETTLED_NS", 0)
    current = config.CurrentConfig()
    first = current.read(path)
    assert current.read(path) is first
    path.write_text('{"agent": "bb"}')
    assert current.read(path).agent == "bb"
