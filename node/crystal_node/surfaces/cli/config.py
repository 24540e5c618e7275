"""``crystal config``: every setting, its value and origin; setting and unsetting options."""

from typing import Annotated

import typer
from msgspec import structs

from crystal_node.base.errors import NotSetUp, UsageError
from crystal_node.base.settings import resolve
from crystal_node.base.settings.options import BY_NAME
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit, say

group = typer.Typer(no_args_is_help=False)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The option, as `crystal config` lists it.")]
Value = Annotated[str, typer.Argument(metavar="VALUE", help="What it shall be.")]


@group.callback(invoke_without_command=True)
def run(context: typer.Context, as_json: Json = False) -> None:
    """Show each setting and where it comes from, or change it.

    A setting comes from a flag, the environment, config.json or its default.

    Example:

        CRYSTAL_RELAY_URL=https://relay.example.org crystal config
    """
    if context.invoked_subcommand is not None:
        return

    settings = resolve()
    shown = settings.shown()
    if as_json:
        emit({"settings": [{"name": s.name, "value": s.value, "origin": s.origin} for s in shown]})
        return
    width = max(len(setting.name) for setting in shown)
    for setting in shown:
        say(f"{setting.name:<{width}}  {setting.value or '-'}  [{setting.origin}]")


@group.command("set")
def set_option(name: Name, value: Value, as_json: Json = False) -> None:
    """Change an option in config.json.

    A running background service follows within seconds.

    Example:

        crystal config set time_zone Europe/Berlin
    """
    _change(name, value, as_json=as_json)


@group.command("unset")
def unset_option(name: Name, as_json: Json = False) -> None:
    """Remove an option from config.json, so that its default applies.

    Example:

        crystal config unset time_zone
    """
    _change(name, None, as_json=as_json)


def _change(name: str, value: str | None, *, as_json: bool) -> None:
    option = BY_NAME.get(name)
    if option is None:
        raise UsageError(
            f"there is no option {name[:60]!r}", hint=f"There are: {', '.join(sorted(BY_NAME))}."
        )
    checked = None if value is None else option.check(value, "the command line")
    settings = resolve()
    if not settings.home.root.is_dir():
        raise NotSetUp(f"there is no home {settings.home.root}")
    settings.save(structs.replace(settings.config, **{name: checked}))
    now = resolve().options[name]
    if as_json:
        emit({"name": name, "value": now.value, "origin": now.origin})
        return
    say(f"{name} is {now.value or 'empty'} [{now.origin}].")
