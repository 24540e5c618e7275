"""The redaction rules have a version, and a change of them is noticed."""

from hashlib import sha256
from pathlib import Path

from crystal_node import capture
from crystal_node.device.redaction_version import RULES_VERSION

MODULES = (
    "redaction",
    "credentials",
    "maker_tokens",
    "redaction_rules",
    "assigned_secrets",
    "own_secrets",
    "secret_values",
    "escapes",
)
FINGERPRINTS = {1: "0930a8aacc4ed942"}
"""Of the modules' text, by version of the rules."""


def fingerprint() -> str:
    folder = Path(capture.__file__).parent
    texts = ((folder / f"{name}.py").read_text(encoding="utf-8") for name in MODULES)
    return sha256("".join(texts).encode()).hexdigest()[:16]


def test_a_change_of_the_rules_has_a_version() -> None:
    assert FINGERPRINTS[RULES_VERSION] == fingerprint(), (
        "The rules' modules changed. If they blank anything else now, count up RULES_VERSION, so that people are told of"
        " `crystal redact --again`; then put the new fingerprint here."
    )
