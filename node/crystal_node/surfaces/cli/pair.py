"""``crystal pair``: brings another machine in by an invite, joins by a code, or shows the vault's offline code."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crystal_node.surfaces.cli.options import (
    SECRET_CHARS_MAX,
    Debug,
    Json,
    Relay,
    Yes,
    is_terminal,
    read_secret,
)

if TYPE_CHECKING:
    from crystal_node.base.settings import Settings

_ASK = "-"

Offline = Annotated[
    bool,
    typer.Option(
        "--offline", help="Show the offline code in place of an invite: whoever has it has the vault."
    ),
]
Code = Annotated[
    str | None,
    typer.Option(
        "--code",
        metavar="CODE",
        help="Join with this invite (MC2); - reads an invite or an offline code (mc1) from standard input, or asks for it.",
    ),
]
CodeFile = Annotated[
    Path | None, typer.Option("--code-file", metavar="FILE", help="Join with the code in this file.")
]
QrFile = Annotated[
    Path | None,
    typer.Option(
        "--qr", metavar="FILE", help="Write the code's QR to this .png or .svg in place of drawing it."
    ),
]
Grant = Annotated[
    bool, typer.Option("--grant", help="Let the new machine take the lead later, by its own decision.")
]
NewKeys = Annotated[
    bool,
    typer.Option("--new-keys", help="Join as a new device: for a machine that was revoked."),
]
Name = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="What your other devices call this one.")
]


def run(
    offline: Offline = False,
    code: Code = None,
    code_file: CodeFile = None,
    qr: QrFile = None,
    grant: Grant = False,
    new_keys: NewKeys = False,
    relay: Relay = None,
    name: Name = None,
    yes: Yes = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Bring another machine into the vault: show an invite here, give it there, and type its six digits here.

    On a machine that is set up this makes an invite, good for one machine and ten minutes; on another one it joins with the
    code, which it asks for without showing it. An invite adds nobody without the digits. Joining again, with another invite,
    mends a lost relay token. With --json each event is one line; digits are read from standard input.

    --offline shows the code that works without anybody's help, and opens everything.

    Example:

        crystal pair             (on the Core)
        crystal pair --code -    (on the new machine)
    """
    from crystal_node.base.errors import Usage
    from crystal_node.base.settings import Flags, resolve

    joins = code is not None or code_file is not None
    if offline and joins:
        raise Usage("--offline shows a code and --code takes one: not both at once")
    if code is not None and code_file is not None:
        raise Usage("--code and --code-file each give a code: one of them")
    settings = resolve(Flags(relay_url=relay, name=name))
    joins = joins or (settings.vault is None and not offline)
    if joins and (qr is not None or grant):
        raise Usage(f"{'--qr' if qr is not None else '--grant'} is for the machine that invites")
    if not joins and new_keys:
        raise Usage("--new-keys is for the machine that joins")
    if joins:
        check_argument(code)
        given = _file(code_file) if code_file is not None else code or _ASK
        join(settings, given, as_json=as_json, yes=yes, new_keys=new_keys)
    elif offline:
        from crystal_node.surfaces.cli.pair_offline import show_offline

        if grant:
            raise Usage(
                "--grant goes with an invite", hint="Whoever joins by the offline code may do everything."
            )
        show_offline(settings, qr, yes=yes, as_json=as_json)
    else:
        from crystal_node.surfaces.cli.pair_invite import invite

        invite(settings, qr, grant=grant, as_json=as_json)


def join(
    settings: "Settings",
    code: str,
    *,
    as_json: bool,
    yes: bool = False,
    new_keys: bool = False,
) -> None:
    """Joins with a code of either kind, or with one that is read when it is "-"."""
    if code == _ASK:
        code = read_secret("The code (MC2:… or mc1:…): ", what="code")
    if is_invite(code):
        from crystal_crypto.invite_code import decode_invite
        from crystal_node.surfaces.cli.pair_invite import join as join_by_invite

        invite = decode_invite(code)
        someone_must_confirm(yes=yes)
        join_by_invite(settings, invite, as_json=as_json, yes=yes, new_keys=new_keys)
        return
    from crystal_node.surfaces.cli.pair_offline import join_offline as join_offline

    join_offline(settings, code, as_json=as_json, new_keys=new_keys)


def check_argument(code: str | None) -> None:
    """Refuses an offline code that stood on the command line: every user of the machine sees that while the program runs, and
    the shell keeps it. An invite may stand there, which adds nobody without the digits.

    Raises:
        Usage: it did.
    """
    from crystal_node.base.errors import Usage

    if code is not None and not is_invite(code):
        raise Usage(
            "an offline code (mc1) opens the whole vault, and is not taken from a command line: "
            "every user of this machine can read that, and your shell's history keeps it",
            hint="Use `--code -`, which asks for it, or `crystal pair --code-file FILE`; and clear your shell's history.",
        )


def is_invite(code: str) -> bool:
    """Whether it is to be read as an invite; what is neither gets the invite's explanation, the one that people meet."""
    return not code.strip().lower().startswith("mc1")


def someone_must_confirm(*, yes: bool) -> None:
    """Said before the invite is used up."""
    from crystal_node.base.errors import Usage

    if not yes and not is_terminal():
        raise Usage(
            "nobody can confirm the inviting machine here; the invite was not used",
            hint="Add --yes if the code came from a machine of your own.",
        )


def _file(path: Path) -> str:
    from crystal_node.base.errors import Usage

    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            text = file.read(SECRET_CHARS_MAX).strip()
    except OSError as error:
        raise Usage(
            f"{path} cannot be read: {error.strerror}", hint="Name the file that holds the code."
        ) from error
    if not text:
        raise Usage(f"{path} is empty", hint="Name the file that holds the code.")
    return text
