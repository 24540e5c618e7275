"""The line by which an operator invites a person: an address and an enrolment token, and nothing that shows the token."""

import pytest

from crystal_relay.enrolment_link import enrolment_link, read_enrolment_link
from crystal_relay.errors import BadRequest

TOKEN = "crystal_enrol_" + "Aa0_-" * 8 + "xyz"
PINNED = "https://192.168.1.20:18791#pin=" + "a2" * 13


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("https://relay.example.org/", f"https://relay.example.org#enrol={TOKEN}"),
        (PINNED, f"{PINNED}&enrol={TOKEN}"),
        ("http://127.0.0.1:18791", f"http://127.0.0.1:18791#enrol={TOKEN}"),
    ],
)
def test_a_link_gives_back_the_address_with_its_certificate_and_the_token(url: str, text: str) -> None:
    link = enrolment_link(url, TOKEN)
    assert link.text() == text
    assert TOKEN not in repr(link)
    assert read_enrolment_link(f" {text}\n") == link
    assert link.url == url.rstrip("/")


def test_the_order_within_a_link_does_not_matter_and_an_address_is_none() -> None:
    assert read_enrolment_link(f"https://10.0.0.1#enrol={TOKEN}&pin={'a2' * 13}") == enrolment_link(
        f"https://10.0.0.1#pin={'a2' * 13}", TOKEN
    )
    assert read_enrolment_link("https://relay.example.org") is None
    assert read_enrolment_link(PINNED) is None


@pytest.mark.parametrize(
    "text",
    [
        f"https://relay.example.org#enrol={TOKEN[:-1]}",
        f"https://relay.example.org#enrol={TOKEN}x",
        f"https://relay.example.org#enrol={TOKEN}&enrol={TOKEN}",
        f"https://relay.example.org#enrol={TOKEN}&pin={'a2' * 13}&pin={'a2' * 13}",
        f"https://relay.example.org#pin=short&enrol={TOKEN}",
        f"https://relay.example.org#other={TOKEN}&enrol={TOKEN}",
        f"https://{TOKEN}@relay.example.org#enrol={TOKEN}",
        f"http://relay.example.org#enrol={TOKEN}",
        f"ftp://relay.example.org#enrol={TOKEN}",
    ],
)
def test_a_damaged_link_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read_enrolment_link(text)
    assert TOKEN[:-1] not in str(refused.value) + refused.value.hint
    assert refused.value.hint


@pytest.mark.parametrize(
    ("url", "token"),
    [("https://relay.example.org", "a-token-of-the-environment"), ("http://relay.example.org", TOKEN)],
)
def test_a_link_is_not_made_of_what_no_device_could_use(url: str, token: str) -> None:
    with pytest.raises(BadRequest):
        enrolment_link(url, token)
