"""What the agent notices of a world that went on without it: sleep, a set clock, another network, battery, metered networks."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from crystal_node.agent.daemon.power import on_battery
from crystal_node.agent.heartbeat import NETWORK_BEATS, Heartbeat, network_identity, sleeping_clock

_ROUTES = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"


@dataclass
class _World:
    """Clocks and a network that a test moves; the pulse beats as fast as it can, and stops when the script is over."""

    config: Path
    script: list[Callable[["_World"], None]]
    elapsed: float = 1000.0
    wall: float = 1_000_000.0
    network: tuple[str, ...] = ("10.0.0.2",)
    seen: list[str] = field(default_factory=list[str])

    async def live(self) -> list[str]:
        pulse = Heartbeat(
            self.config,
            again=self.seen.append,
            settings=lambda: self.seen.append("settings"),
            asked=lambda: None,
            elapsed=lambda: self.elapsed,
            wall=lambda: self.wall,
            where=lambda: self.network,
            beat=self._beat,
        )
        with pytest.raises(asyncio.CancelledError):
            await pulse.run()
        return self.seen

    async def _beat(self, seconds: float) -> None:
        if not self.script:
            raise asyncio.CancelledError
        self.elapsed += seconds
        self.wall += seconds
        self.script.pop(0)(self)


def _nothing(_world: _World) -> None: ...


def _slept(world: _World) -> None:
    world.elapsed += 3600
    world.wall += 3600


def _slept_without_such_a_clock(world: _World) -> None:
    world.wall += 3600


def _set_back(world: _World) -> None:
    world.wall -= 86_400 * 365


async def test_sleep_is_noticed_at_the_first_beat_after_it_and_once(tmp_path: Path) -> None:
    world = _World(tmp_path / "config.json", [_nothing, _slept, _nothing, _nothing])
    assert await world.live() == ["after sleep"]


async def test_sleep_is_noticed_where_no_clock_counts_it(tmp_path: Path) -> None:
    world = _World(tmp_path / "config.json", [_slept_without_such_a_clock, _nothing])
    assert await world.live() == ["after sleep"]


async def test_a_clock_that_is_set_is_noticed_and_small_corrections_are_not(tmp_path: Path) -> None:
    def corrected(world: _World) -> None:
        world.wall += 2

    world = _World(tmp_path / "config.json", [corrected, _set_back, _nothing])
    assert await world.live() == ["the clock was set"]


async def test_another_network_is_noticed_and_the_loss_of_one_is_not(tmp_path: Path) -> None:
    def lost(world: _World) -> None:
        world.network = ()

    def found(world: _World) -> None:
        world.network = ("192.168.1.7",)

    quiet = [_nothing] * NETWORK_BEATS
    world = _World(tmp_path / "config.json", [lost, *quiet, found, *quiet, *quiet])
    assert await world.live() == ["another network"]


async def test_a_changed_configuration_is_noticed_once(tmp_path: Path) -> None:
    path = tmp_path / "config.json"

    def written(_world: _World) -> None:
        path.write_text("{}")

    assert await _World(path, [_nothing, written, _nothing, _nothing]).live() == ["settings"]


def test_the_clock_that_counts_sleep_goes_on() -> None:
    first = sleeping_clock()
    assert 0 <= sleeping_clock() - first < 5


def test_a_default_route_by_another_gateway_is_another_network(tmp_path: Path) -> None:
    routes = tmp_path / "route"
    routes.write_text(_ROUTES + "wlan0\t00000000\t0101A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n")
    home = network_identity(routes)
    routes.write_text(_ROUTES + "wlan0\t00000000\t0102A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n")
    cafe = network_identity(routes)
    routes.write_text(
        _ROUTES
        + "docker0\t000011AC\t00000000\t0001\t0\t9\t0\t0000FFFF\t0\t0\t0\n"
        + "wlan0\t00000000\t0102A8C0\t0003\t0\t7\t600\t00000000\t0\t0\t0\n"
    )
    assert "wlan0 0101A8C0" in home
    assert home != cafe == network_identity(routes)


def _supply(folder: Path, name: str, **values: str) -> None:
    (folder / name).mkdir(parents=True)
    for key, value in values.items():
        (folder / name / key).write_text(value + "\n")


def test_a_battery_that_gives_power_counts_unless_something_is_plugged_in(tmp_path: Path) -> None:
    assert not on_battery(tmp_path / "none")
    _supply(tmp_path, "hid-mouse", type="Battery", scope="Device", status="Discharging")
    assert not on_battery(tmp_path)
    _supply(tmp_path, "BAT0", type="Battery", status="Discharging")
    assert on_battery(tmp_path)
    _supply(tmp_path, "AC", type="Mains", online="1")
    assert not on_battery(tmp_path)
