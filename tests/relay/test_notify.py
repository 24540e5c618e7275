"""Waiting: against a model that remembers every write, the notifier may say yes for nothing, never no for something."""

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from crystal_relay.notify import Notifier

keys = st.sampled_from([f"v/{vault}/{channel}/{name}" for vault in "ab" for channel in "xy" for name in "12"])
prefixes = st.sampled_from(
    ["", "v", "v/", "v/a", "v/a/", "v/b/", "v/a/x", "v/a/x/", "v/a/x/1", "v/b/y/2", "w/"]
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), keys),
        st.tuples(st.just("token"), prefixes),
        st.tuples(st.just("ask"), prefixes),
    ),
    max_size=40,
)


@given(steps, st.integers(1, 6))
@settings(deadline=None)
def test_no_write_since_a_token_is_ever_missed(steps: list[tuple[str, str]], groups_max: int) -> None:
    asyncio.run(_play(steps, groups_max))


async def _play(steps: list[tuple[str, str]], groups_max: int) -> None:
    notifier = Notifier(groups_max=groups_max)
    written: list[str] = []
    tokens: list[tuple[str, int]] = []
    for step, name in steps:
        if step == "write":
            notifier.written(name)
            written.append(name)
        elif step == "token":
            tokens.append((await notifier.wait(name, None, 0), len(written)))
        else:
            for token, since in tokens:
                woken = await notifier.wait(name, token, 0) != token
                if any(key.startswith(name) for key in written[since:]):
                    assert woken, f"a write under {name!r} was missed"
                elif since == len(written):
                    assert not woken, "woken although nothing at all was written"


async def test_only_who_waits_for_the_key_is_woken() -> None:
    notifier = Notifier()
    token = await notifier.wait("", None, 0)
    woken: list[str] = []

    async def sleep(prefix: str) -> None:
        if await notifier.wait(prefix, token, 5) != token:
            woken.append(prefix)

    prefixes = ["v/a/", "v/a/x/", "v/a/x/1", "v/a/y/", "v/b/", "v/a/x/12", ""]
    tasks = [asyncio.create_task(sleep(prefix)) for prefix in prefixes]
    await asyncio.sleep(0)
    assert notifier.waiting == len(prefixes)
    notifier.written("v/a/x/1")
    await asyncio.sleep(0.01)
    assert sorted(woken) == ["", "v/a/", "v/a/x/", "v/a/x/1"]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert notifier.waiting == 0


async def test_tokens_of_another_process_or_of_the_future_wake_at_once() -> None:
    one, other = Notifier(), Notifier()
    one.written("v/a/x/1")
    token = await one.wait("", None, 0)
    assert await other.wait("", token, 5) != token
    name = token.partition("-")[0]
    for odd in (
        f"{name}-2",
        f"{name}-99999999999999999999",
        f"{name}-01",
        f"{name}--1",
        f"{name}-",
        token + "\n",
        "-",
    ):
        assert await one.wait("", odd, 5) == token


async def test_a_cancelled_sleeper_is_forgotten() -> None:
    notifier = Notifier()
    token = await notifier.wait("v/", None, 0)
    task = asyncio.create_task(notifier.wait("v/", token, 5))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert notifier.waiting == 0
    notifier.written("v/a")


async def test_what_one_vault_waits_for_costs_another_vaults_writes_nothing() -> None:
    notifier = Notifier()
    token = await notifier.wait("v/a/", None, 0)
    waits = [
        asyncio.create_task(notifier.wait(f"v/a/mirror/{'x' * count}", token, 30)) for count in range(1, 200)
    ]
    await asyncio.sleep(0)
    looked = 0

    class Waiters(dict[str, set[asyncio.Future[None]]]):
        def get(self, key: str, default: Any = None) -> Any:
            nonlocal looked
            looked += 1
            return super().get(key, default)

    notifier._waiters = Waiters(notifier._waiters)  # pyright: ignore[reportPrivateUsage]
    notifier.written("v/b/mirror/x/0")
    assert looked <= 4
    notifier.wake_all()
    await asyncio.gather(*waits)
