"""``crystal config``: every setting, its value, and where the value comes from."""

from crystal_node.cli.options import Debug, Json
from crystal_node.cli.output import emit, say


def run(as_json: Json = False, debug: Debug = False) -> None:
    """Show each setting and where it comes from: flag, environment, config.json or default.

    Example:

        CRYSTAL_RELAY_URL=https://relay.example.org crystal config
    """
    from crystal_node.settings import resolve

    settings = resolve()
    shown = settings.shown()
    if as_json:
        emit({"settings": [{"name": s.name, "value": s.value, "origin": s.origin} for s in shown]})
        return
    width = max(len(setting.name) for setting in shown)
    for setting in shown:
        say(f"{setting.name:<{width}}  {setting.value or '-'}  [{setting.origin}]")
