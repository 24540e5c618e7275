"""Crystal's own secrets do not come into its memory, in whatever way somebody pasted them."""

import base64
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal_crypto.hierarchy import Root
from crystal_crypto.identity import ExchangeKey
from crystal_crypto.invite_code import InviteCode, InviteSecret, encode_invite
from crystal_crypto.kit import encode_kit, line_place
from crystal_crypto.pairing import encode
from crystal_crypto.short_invite import ShortInvite, encode_short_invite
from crystal_node.base.home import Home
from crystal_node.capture.redaction import redact
from crystal_node.surfaces.gateway.access import kept_token, new_link
from crystal_relay.server.enrollment import new_enrollment_token
from crystal_relay.tokens import new_token


def _bytes(seed: int, count: int) -> bytes:
    return Random(seed).randbytes(count)


def _lines(seed: int) -> tuple[str, ...]:
    root = Root.from_bytes(_bytes(seed, 32))
    return encode_kit(root, root.vault)


def _wrapped_anywhere(lines: tuple[str, ...], width: int) -> str:
    whole = " ".join(lines)
    return "\n".join(whole[at : at + width] for at in range(0, len(whole), width))


WRITTEN: dict[str, Callable[[tuple[str, ...]], str]] = {
    "as printed": "\n".join,
    "without numbers": lambda lines: "\n".join(line[3:] for line in lines),
    "quoted": lambda lines: "\n".join(f"> {line}" for line in lines),
    "quoted twice": lambda lines: "\n".join(f"> > {line}" for line in lines),
    "in a table": lambda lines: "\n".join(f"| {line} |" for line in lines),
    "in a list": lambda lines: "\n".join(f"- `{line}`" for line in lines),
    "with spaces": lambda lines: "\n".join(line.replace("-", " ") for line in lines),
    "without separators": lambda lines: "\n".join(line.replace("-", "") for line in lines),
    "in lower case": lambda lines: "\n".join(lines).lower(),
    "on one line": " ".join,
    "wrapped": lambda lines: textwrap.fill(" ".join(lines), 31),
    "wrapped anywhere": lambda lines: _wrapped_anywhere(lines, 37),
    "wrapped and quoted": lambda lines: textwrap.indent(_wrapped_anywhere(lines, 33), "> "),
    "in JSON": "\\n".join,
    "in JSON of JSON": "\\\\n".join,
    "coloured": lambda lines: "\n".join(f"\x1b[1m{line}\x1b[0m" for line in lines),
    "in a page": "<br>".join,
}


@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
@pytest.mark.parametrize("seed", range(5))
def test_the_lines_of_a_recovery_kit_are_blanked_however_they_are_written(
    written: Callable[[tuple[str, ...]], str], seed: int
) -> None:
    lines = _lines(seed)
    redacted = redact(f"I keep it here:\n{written(lines)}\nDo not lose it.")
    assert redacted.text.startswith("I keep it here:\n")
    assert redacted.text.endswith("\nDo not lose it.")
    assert redacted.counts["crystal-kit"] == 6
    readable = redacted.text.upper()
    assert not any(group in readable for line in lines for group in line[3:].split("-"))


@pytest.mark.parametrize("number", range(6))
def test_one_line_alone_is_blanked(number: int) -> None:
    line = _lines(9)[number]
    assert redact(f"was it {line}?").text == f"was it {line[:3]}[redacted:crystal-kit]?"


@given(st.binary(min_size=32, max_size=32), st.integers(0, 5))
def test_any_line_of_any_kit_is_blanked_and_a_mistyped_one_is_none(raw: bytes, number: int) -> None:
    root = Root.from_bytes(raw)
    line = encode_kit(root, root.vault)[number]
    assert "[redacted:crystal-kit]" in redact(f"{line}\n").text
    assert line_place(line[3:].replace("-", "")) == number + 1
    other = line[:3] + ("0" if line[3] != "0" else "1") + line[4:]
    assert line_place(other[3:].replace("-", "")) != number + 1


def test_many_kits_take_no_more_than_linear_time() -> None:
    def seconds(kits: int) -> float:
        text = " ".join(line[3:].replace("-", "") for seed in range(kits) for line in _lines(seed))
        start = time.process_time()
        assert redact(text).counts["crystal-kit"] == kits * 6
        return time.process_time() - start

    assert min(seconds(800), seconds(800)) < 8 * max(seconds(200), seconds(200))


@pytest.mark.parametrize(
    "text",
    [
        "what they said when they came back last week from that long trip with kids",
        "HTTP JSON YAML TOML HTML CSS2 REST SOAP GRPC are four letters each",
        "0x1F 0x2A 0x3B 0x4C and 1A2B-3C4D-5E6F-7A8C",
        "2024-2025 1999-2000 1234-5678-9012-3456",
        "https://shop.example.org/orders/7KPD-3MX9-QWHT and 192.168.1.20:18791/7KPD-3MX9-QWHS",
    ],
)
def test_other_groups_of_four_stay(text: str) -> None:
    assert redact(text).text == text


def _secrets(home: Home) -> dict[str, str]:
    root = Root.from_bytes(_bytes(1, 32))
    invite = InviteCode(
        root.vault,
        InviteSecret(_bytes(2, 16)),
        ExchangeKey.generate(lambda count: _bytes(3, count)).public,
        "https://relay.example.org",
    )
    device = _bytes(4, 16).hex()
    return {
        "offline code": encode(root),
        "offline code of an earlier version": "mc1:" + base64.b64encode(root.to_bytes()).decode(),
        "offline code of a later root": encode(root, _bytes(5, 16)),
        "invite": encode_invite(invite),
        "short invite": encode_short_invite(ShortInvite("192.168.1.20:18791", "7KPD3MX9QW")),
        "short invite of a relay on this machine": encode_short_invite(
            ShortInvite("http://127.0.0.1:18791", "0123456789")
        ),
        "short invite over IPv6": encode_short_invite(ShortInvite("[fd00::7]:18791", "ZZZZZZZZZZ")),
        "relay token": new_token(device, lambda count: _bytes(6, count)),
        "token of the page": kept_token(home, ""),
        "link to the page": "http://127.0.0.1:8765/#link=" + new_link(home, 1),
        "enrolment token": new_enrollment_token(),
        "recovery secret": "Authorization: Crystal-Recovery " + _bytes(7, 32).hex(),
        "access to an invite": f"Authorization: Crystal-Invite {device}.{_bytes(8, 32).hex()}",
    }


FRAMES = [
    "{}",
    "it printed {}",
    "> {}",
    '{{"stdout": "{}\\n"}}',
    "\x1b[32m{}\x1b[0m",
    "token: `{}`",
    "a\\n{}\\nb",
]


@pytest.mark.parametrize("frame", FRAMES)
def test_whatever_crystal_prints_that_is_secret_is_blanked(frame: str, tmp_path: Path) -> None:
    for name, secret in _secrets(Home(tmp_path)).items():
        redacted = redact(frame.format(secret)).text
        core = secret.rpartition(" ")[2].rpartition("=")[2] if "link" in name else secret.rpartition(" ")[2]
        core = core.partition("@")[0].rpartition(".")[2]
        assert not any(core[at : at + 12] in redacted for at in range(0, len(core) - 12, 6)), name


@pytest.mark.parametrize("width", [40, 60, 64, 76])
@pytest.mark.parametrize("prefix", ["", "> ", "  "])
def test_codes_that_a_mail_wrapped_are_blanked(width: int, prefix: str, tmp_path: Path) -> None:
    secrets = _secrets(Home(tmp_path))
    for name in ("offline code", "offline code of an earlier version", "invite"):
        code = secrets[name]
        wrapped = "\n".join(prefix + code[at : at + width] for at in range(0, len(code), width))
        redacted = redact(f"Take this:\n{wrapped}\nand no other.")
        assert redacted.text.startswith("Take this:\n")
        assert redacted.text.endswith("\nand no other.")
        assert not any(code[at : at + 12] in redacted.text for at in range(4, len(code) - 12, 6))
