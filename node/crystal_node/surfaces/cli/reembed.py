"""``crystal reembed``: ``crystal embed migrate`` with the model that is configured, as it was called before."""

from crystal_node.surfaces.cli.console.options import Debug, Json, Yes
from crystal_node.surfaces.cli.embed import migrate


def run(yes: Yes = False, as_json: Json = False, debug: Debug = False) -> None:
    """Make the vectors that are missing, or all when they are of another model than this Core's: `crystal embed migrate`.

    The other machines follow with their next sync.

    Example:

        crystal reembed
    """
    migrate(yes=yes, as_json=as_json, debug=debug)
