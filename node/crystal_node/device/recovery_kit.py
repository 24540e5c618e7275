"""The recovery kit: the page that a person prints, whether a kit opens this vault, and whether it was typed back.

The page is ASCII and at most 80 columns wide, so that any printer and editor takes it. Only its six lines look like lines of a
kit, so that the whole page can be given back. It explains itself: the person who needs it may have nothing else.

``config.json`` keeps a mark of the root whose kit was typed back, never the root. A kit whose root was replaced no longer
counts. Each device knows only what was typed on it.
"""

import hmac
import textwrap
from dataclasses import dataclass, field
from enum import StrEnum

from crystal_crypto.errors import CrystalError
from crystal_crypto.hierarchy import Root, vault_id
from crystal_crypto.identity import VerifyKey
from crystal_crypto.kit import Kit, encode_kit
from crystal_crypto.pairing import encode
from crystal_mirror.devicelog.log import DeviceLog
from crystal_mirror.devicelog.records import RootRecord
from crystal_mirror.membership.authority import in_force
from crystal_node.base.errors import ExitCode, HomeBusy
from crystal_node.base.settings import Config
from crystal_node.device.device import Device
from crystal_node.device.keys.roots import NEXT

_MARK_BYTES = 8
COLUMNS_MAX = 80
_NAME_CHARS_MAX = 60
_INDENT = "  "
_LABEL_CHARS = 8
_POWER = """\
Anyone who has these six lines has the vault: they can read everything in it, add devices, put devices out and take the lead.
The relay's operator cannot do any of that without them. They are good until you have the vault's root replaced."""
_LOSS = """\
If you lose all of your devices and this kit, the vault is lost. Nobody can bring it back: not the relay, not the makers of
the program."""
_KEEP = """\
Keep it on paper, where you keep what must be neither lost nor seen. Photograph it nowhere, mail it to nobody, put it into no
cloud folder. If you saved it as a file to print it, delete the file afterwards."""
_CHECK = """\
Type it back once, and you know that it works: `crystal recovery verify`."""
_WITH_RELAY = """\
With the relay above, or wherever it has moved to: install Crystal on any machine, run this command, and type the six lines
when you are asked for them."""
_WITHOUT_RELAY = """\
Without that relay: on a new one, with a copy of the folder .ldm of any device that was in the vault. The keys of that device
are not needed."""
_AFTERWARDS = """\
Then look which devices are in the vault, and put out those that you have lost. If that replaces the vault's root, make a new
kit."""
_STEPS = (
    (_WITH_RELAY, "crystal recovery restore --relay URL"),
    (_WITHOUT_RELAY, "crystal recovery restore --from FOLDER --relay URL --enroll-token -"),
    (_AFTERWARDS, "crystal devices"),
)


@dataclass(frozen=True, slots=True)
class KitPage:
    """The page's content. ``made`` is a date; ``device`` the name of the machine that made it.

    ``number``: how often the vault's root was replaced before.
    """

    root: Root = field(repr=False)
    vault: bytes
    relay: str
    made: str
    device: str
    number: int = 0

    @property
    def lines(self) -> tuple[str, ...]:
        """The six lines. They are the vault."""
        return encode_kit(self.root, self.vault)

    @property
    def code(self) -> str:
        """The same as an offline code, for a QR code."""
        return encode(self.root, self.vault)

    def text(self) -> str:
        """The page as text."""
        parts = [
            "CRYSTAL RECOVERY KIT",
            "\n".join(
                [
                    *_labelled("Vault", self.vault.hex()),
                    *_labelled("Relay", _ascii(self.relay)),
                    *_labelled("Made", _ascii(f"{self.made}, on {self.device[:_NAME_CHARS_MAX]}")),
                ]
            ),
        ]
        if self.number:
            parts.append(
                _filled(
                    "It takes the place of every kit of this vault that was made before: the root was replaced."
                )
            )
        parts += [
            "\n".join(_INDENT * 2 + line for line in self.lines),
            _section("What it is", _POWER, _LOSS),
            _section("Keep it", _KEEP, _CHECK),
            _section(
                "Bring the vault back",
                *(f"{_filled(words, 1)}\n\n{_INDENT * 3}{command}" for words, command in _STEPS),
            ),
        ]
        return "\n\n".join(parts) + "\n"


class KitState(StrEnum):
    """What this device knows of the recovery kit."""

    VERIFIED = "verified"
    NEVER = "never"
    OUTDATED = "outdated"


def kit_mark(root: Root) -> str:
    """The mark of a root whose kit was typed back: the first bytes of its admin key's hash, in hex."""
    return root.vault[:_MARK_BYTES].hex()


def kit_state(config: Config, log_root: RootRecord | None) -> KitState:
    """The kit's state by what was typed here and the root in force in the device log (None: none yet)."""
    if not config.kit_verified:
        return KitState.NEVER
    if log_root is None:
        return KitState.VERIFIED
    in_force = vault_id(VerifyKey.from_bytes(log_root.admin))[:_MARK_BYTES].hex()
    return KitState.VERIFIED if config.kit_verified == in_force else KitState.OUTDATED


class WrongKit(CrystalError):
    """A well-formed kit that does not open this vault."""

    exit_code = ExitCode.WRONG_KEY
    hint = "Use the newest kit of this vault; `crystal recovery show` makes one on a machine that holds the root."


class KitOfAnotherVault(WrongKit):
    """A kit with another vault's id."""


class KitOutdated(WrongKit):
    """A kit whose root was replaced: it opens and signs nothing."""


def check_kit(kit: Kit, log: DeviceLog, *, newer_may_be: bool = False) -> None:
    """Checks that the kit's root is in force. ``newer_may_be``: or one that this log does not know yet.

    Raises:
        KitOfAnotherVault: its vault id is another one.
        KitOutdated: its root was in force before.
        WrongKit: its root was never this vault's, by this log.
    """
    if not hmac.compare_digest(kit.vault, log.vault):
        raise KitOfAnotherVault(
            f"that kit belongs to another vault ({kit.vault.hex()[:8]}; this one is {log.vault.hex()[:8]})"
        )
    if in_force(log, kit.root):
        return
    admin = kit.root.admin.public.to_bytes()
    if any(isinstance(event.record, RootRecord) and event.record.admin == admin for event in log.events):
        raise KitOutdated(
            "that kit is outdated: the vault's root was replaced since it was made, and the old one has no power any more"
        )
    if not newer_may_be:
        raise WrongKit(
            "that kit names this vault, and its root was never this vault's",
            hint="Its lines may come from two kits. Or this machine has not heard yet that the root was replaced: "
            "run `crystal sync`, then try again.",
        )


def remove_root(device: Device) -> None:
    """Removes the root from the key store, for a person who has it on a kit that was typed back.

    Raises:
        HomeBusy: a replacement of the root is under way here, which needs both.
        KeyStoreError: the key store cannot delete it.
    """
    if device.keys.store.load(NEXT) is not None:
        raise HomeBusy(
            "another root is taking this one's place: both stay here until that is finished",
            hint="Run `crystal sync`, then this again.",
        )
    device.keys.drop_replaced()
    device.keys.drop_root()
    device.member.root = None


def _labelled(label: str, text: str) -> list[str]:
    """A label and its text, wrapped."""
    room = COLUMNS_MAX - _LABEL_CHARS
    pieces = [text[at : at + room] for at in range(0, len(text), room)] or ["(none)"]
    return [f"{label if not at else '':<{_LABEL_CHARS}}{piece}" for at, piece in enumerate(pieces)]


def _section(title: str, *paragraphs: str) -> str:
    filled = [text if text.startswith(_INDENT) else _filled(text, 1) for text in paragraphs]
    return "\n\n".join((title.upper(), *filled))


def _filled(text: str, indents: int = 0) -> str:
    indent = _INDENT * indents
    return textwrap.fill(
        " ".join(text.split()),
        COLUMNS_MAX,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _ascii(text: str) -> str:
    return "".join(char if " " <= char <= "~" else "?" for char in text)
