"""Service files: what they hold, what they never hold, and that the systems' own rules find nothing wrong with them."""

import plistlib
import shutil
import signal
import stat
import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from crystal_node.agent.service import NotInstalled, ServiceState, ServiceUnavailable
from crystal_node.agent.service.control import await_agent, install_and_start, stop_agent
from crystal_node.agent.service.launchd import Launchd
from crystal_node.agent.service.program import Program, Unwritable, program_of
from crystal_node.agent.service.systemd import Systemd
from crystal_node.agent.service.taskscheduler import NAMESPACE, TaskScheduler
from crystal_node.base.errors import ExitCode, HomeBusy
from crystal_node.base.settings import Settings, resolve
from crystal_node.base.settings.user_session import Surroundings, surroundings
from tests.node.agent.daemon.running import agent
from tests.support.machine import Machine, Vault
from tests.support.systemd_unit import Unit

_ODD = 'a "home" with 100% of $HOME \\ and ünïcode'
_SECRET = "correct horse battery staple"
_SYSTEMCTL = """#!/bin/sh
# Stands in for systemd's command: keeps what it was asked, and whether the service runs, in files.
echo "$@" >> "{folder}/asked"
case "$*" in
  *show-environment*) exit {reachable} ;;
  *" start "*) touch "{folder}/running" ;;
  *" stop "*|*"disable --now"*) rm -f "{folder}/running" ;;
  *is-active*) if [ -e "{folder}/running" ]; then echo active; else echo inactive; exit 3; fi ;;
esac
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return _settings(tmp_path, CRYSTAL_HOME=str(tmp_path / _ODD))


def _settings(person: Path, **variables: str) -> Settings:
    return resolve(environment={"HOME": str(person)} | variables)


def _systemd(tmp_path: Path, settings: Settings, *, reachable: bool = True) -> Systemd:
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "systemctl"
    script.write_text(_SYSTEMCTL.format(folder=folder, reachable=0 if reachable else 1))
    script.chmod(0o755)
    around = Surroundings(tmp_path, tmp_path / ".config", {"PATH": f"{folder}:/usr/bin:/bin"})
    return Systemd(program_of(settings), around)


def _all(settings: Settings, tmp_path: Path) -> list[bytes]:
    program, around = program_of(settings), surroundings(tmp_path, {})
    return [kind(program, around).render() for kind in (Systemd, Launchd, TaskScheduler)]


def test_a_service_file_holds_absolute_paths_the_passphrases_file_and_no_secret(tmp_path: Path) -> None:
    secret = tmp_path / "passphrase"
    secret.write_text(_SECRET)
    settings = _settings(
        tmp_path,
        CRYSTAL_HOME=str(tmp_path / "home"),
        CRYSTAL_PASSPHRASE_FILE=str(secret),
        CRYSTAL_RELAY_ENROLL_TOKEN="e" * 64,
        OPENAI_API_KEY="sk-proj-secret",
        ANTHROPIC_API_KEY="sk-ant-secret",
        CODEX_HOME=str(tmp_path / "codex"),
    )
    program = program_of(settings)
    assert Path(program.command[0]).is_absolute()
    assert program.variables["CRYSTAL_PASSPHRASE_FILE"] == str(secret)
    assert program.variables["CRYSTAL_HOME"] == str(tmp_path / "home")
    assert program.variables["CODEX_HOME"] == str(tmp_path / "codex")
    assert _SECRET not in repr(program)
    for data in _all(settings, tmp_path):
        text = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8")
        assert str(secret) in text
        assert not any(bad in text for bad in (_SECRET, "e" * 64, "sk-proj-secret", "sk-ant-secret"))


def test_the_usual_home_needs_no_variables_and_each_other_home_has_a_service_of_its_own(
    tmp_path: Path,
) -> None:
    usual = program_of(_settings(tmp_path))
    assert (usual.mark, usual.variables) == ("", {})
    marks = {program_of(_settings(tmp_path, CRYSTAL_HOME=str(tmp_path / name))).mark for name in "ab"}
    assert len(marks) == 2
    assert program_of(_settings(tmp_path, CRYSTAL_HOME=str(resolve().person_home / ".ldm"))).mark == ""


def test_a_path_that_would_add_lines_to_a_service_file_is_refused(tmp_path: Path) -> None:
    hostile = _settings(tmp_path, CRYSTAL_HOME=f"{tmp_path}/x\nExecStartPre=/bin/evil")
    with pytest.raises(Unwritable):
        program_of(hostile)


# --- systemd ---


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")
def test_systemd_finds_nothing_wrong_with_the_unit_and_reads_odd_paths_as_they_are(
    settings: Settings, tmp_path: Path
) -> None:
    path = tmp_path / "crystal.service"
    path.write_bytes(Systemd(program_of(settings), surroundings(tmp_path, {})).render())
    done = subprocess.run(
        ["systemd-analyze", "verify", "--user", "--man=no", str(path)],
        env={"XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    unit = Unit(path)
    escaped = _ODD.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    assert unit.all("Environment") == [f'"CRYSTAL_HOME={tmp_path}/{escaped}"']
    assert unit.one("Restart") == "on-failure"
    assert set(unit.one("RestartPreventExitStatus").split()) == {
        str(int(code)) for code in (ExitCode.USAGE, ExitCode.NOT_SET_UP, ExitCode.WRONG_KEY)
    }
    assert unit.on("NoNewPrivileges")
    assert unit.one("UMask") == "0077"


def test_installing_writes_a_file_for_its_owner_and_uninstalling_leaves_nothing(
    settings: Settings, tmp_path: Path
) -> None:
    manager = _systemd(tmp_path, settings)
    assert manager.state() is ServiceState.ABSENT
    with pytest.raises(NotInstalled):
        manager.start()
    for _ in range(2):
        assert "loginctl enable-linger" in manager.install()
    assert stat.S_IMODE(manager.file.stat().st_mode) == 0o600
    assert manager.state() is ServiceState.STOPPED
    manager.start()
    assert manager.state() is ServiceState.RUNNING
    manager.stop()
    assert manager.state() is ServiceState.STOPPED
    manager.start()
    manager.uninstall()
    assert manager.state() is ServiceState.ABSENT
    assert not (tmp_path / "bin" / "running").exists()
    manager.uninstall()
    asked = (tmp_path / "bin" / "asked").read_text().splitlines()
    assert all(line.startswith("--user --no-ask-password ") for line in asked)
    assert not any("linger" in line for line in asked)


def test_where_no_manager_runs_nothing_is_written_and_what_to_do_is_said(
    settings: Settings, tmp_path: Path
) -> None:
    manager = _systemd(tmp_path, settings, reachable=False)
    with pytest.raises(ServiceUnavailable, match="no service manager") as refused:
        manager.install()
    assert "crystal agent run" in refused.value.hint
    assert not manager.file.exists()


def test_a_service_is_taken_away_though_its_manager_is_gone(settings: Settings, tmp_path: Path) -> None:
    manager = _systemd(tmp_path, settings, reachable=False)
    wants = manager.file.parent / "default.target.wants"
    wants.mkdir(parents=True)
    manager.file.write_bytes(manager.render())
    (wants / manager.unit).symlink_to(manager.file)
    manager.uninstall()
    assert not manager.file.exists()
    assert list(wants.iterdir()) == []


def test_a_service_whose_manager_does_not_answer_is_told_as_such(settings: Settings, tmp_path: Path) -> None:
    manager = Systemd(program_of(settings), Surroundings(tmp_path, tmp_path, {"PATH": str(tmp_path)}))
    manager.file.parent.mkdir(parents=True)
    manager.file.write_bytes(manager.render())
    assert manager.state() is ServiceState.UNREACHABLE


def test_stopping_goes_through_the_manager_that_runs_it(settings: Settings, tmp_path: Path) -> None:
    manager = _systemd(tmp_path, settings)
    manager.install()
    manager.start()
    stopped = stop_agent(settings, manager)
    assert (stopped.ran, stopped.by) == (True, "systemd --user")
    assert manager.state() is ServiceState.STOPPED


def test_a_service_that_waits_for_an_agent_by_hand_says_so_and_stop_ends_both(
    vault: Vault, tmp_path: Path
) -> None:
    settings = _settings(tmp_path, CRYSTAL_HOME=str(vault.core.home))
    manager = _systemd(tmp_path, settings)
    with agent(vault.core) as process:
        said = install_and_start(settings, manager)
        assert f"takes over when process {process.pid} (crystal agent) ends" in said
        assert stop_agent(settings, manager).by == "systemd --user"
        assert process.wait(20) == 0
    assert manager.state() is ServiceState.STOPPED


def test_a_service_without_an_agent_is_not_called_running(vault: Vault, tmp_path: Path) -> None:
    settings = _settings(tmp_path, CRYSTAL_HOME=str(vault.core.home))
    manager = _systemd(tmp_path, settings)
    manager.install()
    with pytest.raises(ServiceUnavailable, match="does not run"):
        await_agent(settings, manager)


def test_an_agent_that_does_not_end_is_told_with_its_process(vault: Vault, tmp_path: Path) -> None:
    settings = _settings(tmp_path, CRYSTAL_HOME=str(vault.core.home))
    manager = _systemd(tmp_path, settings)
    with agent(vault.core) as process:
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(HomeBusy, match="did not end") as busy:
            stop_agent(settings, manager, seconds=0.3)
        assert f"kill -KILL {process.pid}" in busy.value.hint
        process.send_signal(signal.SIGCONT)
        assert process.wait(20) == 0


def test_keys_behind_a_passphrase_that_nobody_can_type_are_told_before_a_service_is_made(
    vault: Vault, tmp_path: Path
) -> None:
    core = vault.core
    passphrase = tmp_path / "passphrase"
    passphrase.write_text(_SECRET + "\n")
    passphrase.chmod(0o600)
    core.call("keys", "passphrase", "--new-file", str(passphrase), "--json")
    refused = core.call("agent", "install", check=False)
    assert refused.code != 0
    assert "CRYSTAL_PASSPHRASE_FILE" in refused.err
    assert not (core.root / ".config").exists()


def test_a_container_is_told_what_to_do_instead(vault: Vault) -> None:
    refused = vault.core.call("agent", "install", "--json", check=False, PATH=str(vault.core.root))
    assert refused.code == 8
    assert "crystal agent run" in refused.err
    assert vault.core.call("agent", "start", check=False).code == 10
    assert vault.core.call("agent", "uninstall", "--json").json["state"] == "absent"


# --- systems that are not here: held against their documents ---

_LAUNCHD_KEYS = {
    "Label": str,
    "ProgramArguments": list,
    "WorkingDirectory": str,
    "RunAtLoad": bool,
    "KeepAlive": dict,
    "ThrottleInterval": int,
    "ExitTimeOut": int,
    "ProcessType": str,
    "Umask": int,
    "HardResourceLimits": dict,
    "StandardOutPath": str,
    "StandardErrorPath": str,
    "EnvironmentVariables": dict,
}
"""Of launchd.plist(5), those that are used, with their types."""


def test_the_property_list_holds_documented_keys_of_their_types(settings: Settings, tmp_path: Path) -> None:
    manager = Launchd(program_of(settings), surroundings(tmp_path, {}))
    found = plistlib.loads(manager.render())
    assert {key: type(value) for key, value in found.items()} == _LAUNCHD_KEYS
    assert found["EnvironmentVariables"]["CRYSTAL_HOME"] == str(tmp_path / _ODD)
    assert all(isinstance(word, str) for word in found["ProgramArguments"])
    assert found["Umask"] == 0o077
    assert found["KeepAlive"] == {"SuccessfulExit": False}
    assert found["ProcessType"] in ("Background", "Standard", "Adaptive", "Interactive")
    assert found["HardResourceLimits"].keys() <= {"Core"}
    assert manager.file == tmp_path / "Library" / "LaunchAgents" / f"{found['Label']}.plist"


_BOOLEAN = ("true", "false")
_TASK_SETTINGS = {
    "MultipleInstancesPolicy": ("Parallel", "Queue", "IgnoreNew", "StopExisting"),
    "DisallowStartIfOnBatteries": _BOOLEAN,
    "StopIfGoingOnBatteries": _BOOLEAN,
    "AllowHardTerminate": _BOOLEAN,
    "StartWhenAvailable": _BOOLEAN,
    "RunOnlyIfNetworkAvailable": _BOOLEAN,
    "AllowStartOnDemand": _BOOLEAN,
    "Enabled": _BOOLEAN,
    "Hidden": _BOOLEAN,
    "RunOnlyIfIdle": _BOOLEAN,
    "WakeToRun": _BOOLEAN,
    "ExecutionTimeLimit": ("PT0S",),
    "Priority": tuple(str(number) for number in range(11)),
    "RestartOnFailure": None,
}
"""Of the Task Scheduler's schema (settingsType): the elements that are used, and what each may hold."""


def test_the_task_holds_what_its_schema_allows_in_the_order_that_it_wants(
    settings: Settings, tmp_path: Path
) -> None:
    around = surroundings(tmp_path, {"USERNAME": "someone", "USERDOMAIN": "DESK"})
    data = TaskScheduler(program_of(settings), around).render()
    task = ET.fromstring(data.decode("utf-16"))  # noqa: S314  our own
    name = f"{{{NAMESPACE}}}"
    assert (task.tag, task.get("version")) == (f"{name}Task", "1.2")
    assert [child.tag.removeprefix(name) for child in task] == [
        "RegistrationInfo",
        "Triggers",
        "Principals",
        "Settings",
        "Actions",
    ]
    logon = task.find(f"{name}Triggers/{name}LogonTrigger")
    assert logon is not None
    # triggerBaseType is a sequence, which logonTriggerType goes on.
    assert [child.tag.removeprefix(name) for child in logon] == ["Enabled", "UserId"]
    principal = task.find(f"{name}Principals/{name}Principal")
    actions = task.find(f"{name}Actions")
    assert principal is not None
    assert actions is not None
    assert principal.get("id") == actions.get("Context")
    assert {child.tag.removeprefix(name): child.text for child in principal} == {
        "UserId": "DESK\\someone",
        "LogonType": "InteractiveToken",
        "RunLevel": "LeastPrivilege",
    }
    wanted = task.find(f"{name}Settings")
    assert wanted is not None
    for child in wanted:
        allowed = _TASK_SETTINGS[child.tag.removeprefix(name)]
        assert allowed is None or child.text in allowed, child.tag
    again = wanted.find(f"{name}RestartOnFailure")
    assert again is not None
    assert {child.tag.removeprefix(name): child.text for child in again} == {
        "Interval": "PT1M",
        "Count": "255",
    }
    assert "--with" in (actions.findtext(f"{name}Exec/{name}Arguments") or "")


def test_variables_that_a_task_hands_over_reach_the_agent(machine: Machine) -> None:
    other = machine.root / "elsewhere"
    refused = machine.run("agent", "run", "--with", f"CRYSTAL_HOME={other}", check=False)
    assert (refused.code, str(other) in refused.err) == (3, True)


def test_a_program_shows_no_values_of_its_variables() -> None:
    assert "value" not in repr(Program(("python",), {"NAME": "value"}, "", Path("/home")))
