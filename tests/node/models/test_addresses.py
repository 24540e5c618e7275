"""A model on this machine is one that this person, or the machine, runs: texts go to nobody else who took its port."""

import os
import socket
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from crystal_node.base.settings import resolve
from crystal_node.models.llm.addresses import is_strangers, listens_here
from crystal_node.models.llm.discovery import find_llm
from crystal_node.search.finding.deep import Deep
from crystal_node.search.finding.documents import Depth, SearchRequest
from tests.support.machine import Machine

PERSON, SERVICE = 4321, 998

root = pytest.mark.skipif(
    not os.path.exists("/proc/net/tcp") or os.geteuid() != 0,  # noqa: PTH110
    reason="takes Linux, and the right to be another user",
)


@contextmanager
def listening(user: int, address: str = "127.0.0.1", family: int = socket.AF_INET) -> Generator[str]:
    """The address of a socket that this user made, and that answers nothing."""
    before = os.geteuid()
    os.seteuid(user)
    try:
        made = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        pytest.skip("there is no such family of addresses")
    finally:
        os.seteuid(before)
    with made:
        try:
            made.bind((address, 0))
        except OSError:
            pytest.skip("there is no such address")
        made.listen()
        yield f"http://127.0.0.1:{made.getsockname()[1]}"


@root
@pytest.mark.parametrize(
    ("address", "family"),
    [
        ("127.0.0.1", socket.AF_INET),
        ("0.0.0.0", socket.AF_INET),  # noqa: S104
        ("::", socket.AF_INET6),
        ("::1", socket.AF_INET6),
    ],
)
def test_another_person_who_took_a_models_port_is_no_model(address: str, family: int) -> None:
    with listening(PERSON, address, family) as url:
        assert is_strangers(url)
        assert not listens_here(url)


@root
def test_ones_own_server_and_a_service_of_the_machine_are() -> None:
    for user in (os.geteuid(), SERVICE):
        with listening(user) as url:
            assert not is_strangers(url)
            assert listens_here(url)


@root
def test_nothing_is_sent_to_another_person_who_poses_as_a_model(machine: Machine) -> None:
    with listening(PERSON) as mlx, listening(PERSON) as ollama:
        variables = machine.environment | {"CRYSTAL_HOME": str(machine.home), "CRYSTAL_OLLAMA_HOST": ollama}
        settings = resolve(environment={**variables, "OPENAI_API_KEY": "", "ANTHROPIC_API_KEY": ""})
        assert find_llm(settings, "auto", mlx_url=f"{mlx}/v1") is None
        deep = Deep(settings, mlx_url=f"{mlx}/v1")
        assert deep._llm("") is None  # pyright: ignore[reportPrivateUsage]
        assert deep.wanted(SearchRequest(query="x", depth=Depth.DEEP))


def test_an_address_that_is_none_is_nobodys() -> None:
    for url in ("", "http://[", "http://127.0.0.1:99999999/", "rubbish"):
        assert not is_strangers(url)
        assert not listens_here(url)
