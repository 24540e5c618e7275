"""``crystal reembed``: makes all vectors anew with this Core's model."""

from crystal_node.cli.options import Debug, Json, Yes, confirm
from crystal_node.cli.output import emit, note, say

_ABOUT = """\
All vectors of the vault are dropped on every machine and made anew here with this version's model. Until a text has its new
vectors it is found by its words alone. This takes about a minute for a few thousand texts; stopped, it goes on when run again.
"""


def run(yes: Yes = False, as_json: Json = False, debug: Debug = False) -> None:
    """Make all vectors anew, when they are of another model than this Core's. Otherwise only those that are missing.

    The other machines follow with their next sync.

    Example:

        crystal reembed
    """
    import asyncio

    from crystal_core.embed.builtin import BuiltinEmbedder
    from crystal_node.device import opened
    from crystal_node.replication.leading import check_leads
    from crystal_node.replication.reembedding import embed_anew, former_model
    from crystal_node.settings import resolve
    from crystal_node.wording import ago, counted

    with opened(resolve()) as device:
        check_leads(device, "embeds")
        if former_model(device) not in ("", BuiltinEmbedder().identity) and not yes:
            confirm("\nType reembed to go on: ", expect="reembed", about=_ABOUT, as_json=as_json)
        done = asyncio.run(embed_anew(device, None if as_json else note))
    if as_json:
        emit(
            {
                "former": done.former or None,
                "model": done.model,
                "embedded": done.texts,
                "seconds": round(done.seconds, 3),
            }
        )
    elif done.texts:
        say(f"Embedded {counted(done.texts, 'text')} anew with {done.model} in {ago(done.seconds)}.")
    else:
        say(f"Nothing to do: all vectors are of {done.model}.")
