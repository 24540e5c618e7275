"""``crystal reembed``: the former name of ``crystal embed migrate`` without a provider."""

from crystal_node.surfaces.cli.console.options import Json, Yes
from crystal_node.surfaces.cli.embed import migrate


def run(yes: Yes = False, as_json: Json = False) -> None:
    """Make missing or outdated vectors with the configured model.

    The same as `crystal embed migrate` without a provider. The other machines follow with their next sync.

    Example:

        crystal reembed
    """
    migrate(yes=yes, as_json=as_json)
