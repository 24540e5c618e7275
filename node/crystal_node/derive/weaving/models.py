"""The language model that this device's settings name, for whoever needs one."""

from crystal_core.llm.port import Llm
from crystal_node.base.settings import Settings


def llm_of(settings: Settings, provider: str = "") -> Llm | None:
    """The model of these settings, or of ``provider``; None where there is none. It blocks while it looks (up to two
    seconds): call it in a thread. Whoever uses it closes it.

    Raises:
        LlmError: the provider that is named is not there, or cannot be used as it is configured.
        LocalStorage: the file with the keys can be read by others.
    """
    from crystal_node.models.llm.discovery import find_llm

    return find_llm(settings, provider)
