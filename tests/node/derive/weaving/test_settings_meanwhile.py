"""Who turns a language model off while an agent runs is heard at the next run: nothing is sent to it any more."""

import asyncio
import os
from unittest import mock

from crystal_core.weaver.documents import NO_MODEL
from crystal_node.base.settings import resolve
from crystal_node.derive.weaving import WeaveRequest
from crystal_node.derive.weaving.weave import weave
from crystal_node.device.device import opened
from tests.support.llm_server import llm_server
from tests.support.machine import Vault, transcript
from tests.support.woven import good_answer


def test_a_model_that_was_turned_off_while_the_process_goes_on_is_not_asked(vault: Vault) -> None:
    core = vault.core
    transcript(core, "We decided to use teak.")
    core.call("capture")
    core.call("sync")
    with llm_server(good_answer) as server:
        core.call("config", "set", "llm_url", server.openai)
        core.call("config", "set", "llm_provider", "openai-compatible")
        with mock.patch.dict(os.environ, core.environment, clear=True), opened(resolve()) as device:
            core.call("config", "set", "llm_provider", "none")
            result = asyncio.run(weave(device, WeaveRequest()))
        assert result.model == NO_MODEL
        assert server.asked == []
