"""The commands: one module for each, which imports what it needs when it runs."""

from typing import Annotated

import typer

from crystal_prototype.cli.v1 import v1
from crystal_relay.cli.backup import backup
from crystal_relay.cli.check import check
from crystal_relay.cli.restore import restore
from crystal_relay.cli.serve import serve
from crystal_relay.cli.sweep import sweep
from crystal_relay.cli.tokens import tokens
from crystal_relay.cli.up import down, up
from crystal_relay.cli.vaults import vaults
from crystal_relay.cli.vaults_export import export

app = typer.Typer(
    name="crystal-relay",
    help="Crystal's relay: a blind dead drop for sealed memory.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from crystal_relay.distribution import installed_version

        typer.echo(f"crystal-relay {installed_version()}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=_version),
    ] = False,
) -> None:
    """Crystal's relay: a blind dead drop for sealed memory."""


app.command()(up)
app.command()(down)
app.command()(serve)
vaults.command()(export)
app.add_typer(vaults, name="vaults")
app.add_typer(tokens, name="tokens")
app.add_typer(v1, name="v1")
app.command()(check)
app.command()(sweep)
app.command()(backup)
app.command()(restore)
