"""``crystal doctor``: checks everything that a device needs, and says what is wrong and how to fix it.

A check that fails hides no other. It opens what it needs, closes it again and changes nothing, except for a test secret that is
put into the system's keyring and deleted. Only the relay's checks use the network. ``mend`` does what is safe and checks again:
one fix may reveal the next finding.
"""

from collections.abc import Callable

from crystal_node.agent.health.checks import background
from crystal_node.agent.health.checks.databases import databases
from crystal_node.agent.health.checks.device import device_checks
from crystal_node.agent.health.checks.home import disk_space, leftovers_here, permissions
from crystal_node.agent.health.checks.keys import encryption, key_store, passphrase
from crystal_node.agent.health.checks.memory import model
from crystal_node.agent.health.checks.relay import honesty_checks, relay_checks
from crystal_node.agent.health.findings import Finding, Severity, failed, guarded
from crystal_node.base.errors import ExitCode, NotSetUp, describe
from crystal_node.base.settings import Settings
from crystal_node.device.device import opened

_ROUNDS_MAX = 4
"""Rounds of fixing and checking again: who may use the home, then what can be opened, then what is in it."""


def examine(settings: Settings, *, offline: bool, deep: bool = False) -> list[Finding]:
    """All checks, in the order of fixing. ``deep``: reads the whole memory."""
    checks = [
        *guarded("permissions", lambda: permissions(settings)),
        *guarded("key store", lambda: key_store(settings)),
    ]
    checks += guarded("passphrase", lambda: passphrase(settings))
    checks += guarded("at rest", lambda: encryption(settings))
    checks += guarded("disk", lambda: disk_space(settings))
    checks += guarded("databases", lambda: databases(settings, deep=deep))
    checks += guarded("device", lambda: _device(settings, offline=offline, deep=deep))
    return checks


def exit_code(checks: list[Finding]) -> int:
    """The exit code of the first check that failed; 0 if none did."""
    return next((check.exit_code for check in checks if check.severity is Severity.FAILED), ExitCode.OK)


def mend(look: Callable[[], list[Finding]], told: Callable[[str], None]) -> tuple[list[str], list[Finding]]:
    """Fixes what is safe to fix and checks again, until nothing more can be fixed. ``told`` is told
    each. Returns what was done, and the findings left. Nothing is tried twice."""
    done: list[str] = []
    tried: set[tuple[str, str]] = set()
    checks = look()
    for _ in range(_ROUNDS_MAX):
        open_ = [
            check for check in checks if check.mend is not None and (check.name, check.text) not in tried
        ]
        if not open_:
            break
        for check in open_:
            tried.add((check.name, check.text))
            said = _mended(check)
            done.append(said)
            told(said)
        checks = look()
    return done, checks


def _mended(check: Finding) -> str:
    assert check.mend is not None, "only such findings are fixed"
    try:
        return check.mend()
    except Exception as error:  # noqa: BLE001  one fix that fails stops no other
        failure = describe(error)
        return f"could not mend {check.name}: {failure.message}"


def _device(settings: Settings, *, offline: bool, deep: bool) -> list[Finding]:
    """What needs a home that is set up. The relay is asked even if the device cannot be opened."""
    if settings.vault is None:
        return [failed("device", NotSetUp(f"{settings.home.root} belongs to no vault yet"))]
    relay = [] if offline else guarded("relay", lambda: relay_checks(settings))
    reached = bool(relay) and relay[0].severity is Severity.OK
    checks = guarded("device", lambda: _opened(settings, reached=reached, deep=deep))
    checks += guarded("model", model)
    checks += guarded("hooks", lambda: background.hooks(settings))
    checks += guarded("service", lambda: background.service(settings))
    checks += guarded("jobs", lambda: background.jobs(settings))
    checks += guarded("staging", lambda: background.staging(settings))
    checks += guarded("copies", lambda: leftovers_here(settings))
    return checks + relay


def _opened(settings: Settings, *, reached: bool, deep: bool) -> list[Finding]:
    """The device is opened once: a passphrase may be asked for."""
    with opened(settings) as device:
        checks = device_checks(settings, device, deep=deep)
        checks += guarded("backups", lambda: background.backups(settings, device))
        refused = any(check.name == "access" or check.exit_code == ExitCode.WRONG_KEY for check in checks)
        if reached and not refused:
            checks += guarded("relay holds", lambda: honesty_checks(device))
        return checks
