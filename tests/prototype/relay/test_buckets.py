"""Two relays over one bucket serve the prototype's devices as one relay does."""

import random

from crystal_prototype.relay.extension import PROTOTYPE
from crystal_relay.s3 import Conditions
from crystal_relay.server import RelaySettings
from tests.prototype.device import V1Device
from tests.support.relay_server import served
from tests.support.s3_servers import running_moto
from tests.support.s3_stores import s3_store_on


async def test_two_relays_over_one_bucket_lose_nothing_and_double_nothing() -> None:
    sizes = (10, 2_000, 1_500_000, 10, 3_000_000, 20)
    deltas = [random.Random(number).randbytes(size) for number, size in enumerate(sizes)]
    with running_moto() as server:
        async with (
            s3_store_on(server, Conditions.HONOURED) as first,
            s3_store_on(server, Conditions.HONOURED) as second,
            served(first, RelaySettings(), extensions=[PROTOTYPE]) as one,
            served(second, RelaySettings(), extensions=[PROTOTYPE]) as two,
            await V1Device.added(one.url, first, "cc-core", "core") as core,
            await V1Device.added(one.url, first, "cc-near", "node") as near,
            await V1Device.added(two.url, second, "cc-far", "node") as far,
        ):
            away = V1Device(two.url, core.token, core.agent)
            for delta in deltas:
                reply = await core.drop("mirror", delta)
                assert await away.drop("mirror", delta) == reply, "a repetition at the other relay"
            assert await far.poll("mirror") == deltas
            assert await near.poll("mirror") == deltas
            assert await away.drop("mirror", deltas[0])
            assert await near.listed("mirror") == await far.listed("mirror") == []
            left = [entry.key for entry in (await first.list("w/")).entries if "/seen/" not in entry.key]
            assert left == []
            await away.http.aclose()
