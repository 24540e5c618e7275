"""``crystal embed``: the model of the vault's vectors, and the change to another."""

import asyncio
from contextlib import closing
from typing import Annotated

import typer

from crystal_core.embed.prices import PRICES_OF
from crystal_node.base.settings import resolve
from crystal_node.base.wording import ago, counted, size
from crystal_node.device.device import opened
from crystal_node.surfaces.cli.console.options import Json, Yes
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.surfaces.cli.console.prompts import confirm
from crystal_node.sync.maintenance.embedding_migration import (
    MigrationPlan,
    Reembedded,
    change_over,
    make_all,
    planned,
    save,
    settings_for,
    target,
)
from crystal_node.sync.maintenance.embedding_status import EmbeddingStatus, embedding_status
from crystal_node.sync.members.rights import check_is_core
from crystal_node.sync.progress import ProgressLines

group = typer.Typer(no_args_is_help=True, help="Show or change the model that makes the vault's vectors.")

Provider = Annotated[
    str,
    typer.Argument(
        metavar="[PROVIDER]",
        help="builtin, multilingual, ollama, openai, google or sentence-transformers; default: as configured.",
    ),
]
Model = Annotated[
    str,
    typer.Option("--model", metavar="NAME", help="The provider's model; default: its usual one."),
]
Url = Annotated[
    str,
    typer.Option("--url", metavar="URL", help="The address of its server, where it is not the usual one."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what it would do and cost, and do nothing.")]
Anew = Annotated[
    bool,
    typer.Option("--anew", help="Make all vectors again, also if the model has the same name as before."),
]


@group.command()
def status(as_json: Json = False) -> None:
    """Show which model makes vectors, and try it once.

    Shows the model of the vault's vectors and the one that this device embeds with.

    Example:

        crystal embed status
    """
    with opened(resolve()) as device:
        found = embedding_status(device)
    if as_json:
        emit(found.document())
        return
    _show(found)


@group.command()
def migrate(
    provider: Provider = "",
    model: Model = "",
    url: Url = "",
    dry_run: DryRun = False,
    anew: Anew = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Make all vectors with another model, and change over to it.

    Only on the Core. The old vectors answer until all new ones are made; then the vault changes over, and the other
    machines follow with their next sync. The cost is shown first. Interrupted, it continues when it is run again.

    A remote provider gets all messages of the vault to read. Its key is read from OPENAI_API_KEY, GOOGLE_API_KEY or, for a
    server of another address, CRYSTAL_EMBEDDING_API_KEY.

    Example:

        crystal embed migrate openai --dry-run
    """
    settings = resolve()
    with opened(settings) as device:
        check_is_core(device, "embeds")
        chosen = settings_for(settings, provider, model, url)
        with closing(target(chosen)) as embedder:
            plan = planned(device, chosen, embedder, anew=anew)
            if dry_run:
                _plan(plan, as_json=as_json)
                return
            if _asks(plan) and not yes:
                about = "\n".join(_words(plan))
                confirm("\nType migrate to go on: ", expect="migrate", about=about, as_json=as_json)
            elif not as_json and plan.texts:
                for line in _words(plan):
                    note(line)
            pace = ProgressLines(note)
            made = make_all(device, embedder, plan, None if as_json else pace)
        save(settings, chosen)
        device.settings = resolve()
        done = asyncio.run(change_over(device, plan.model, None if as_json else note, anew=plan.anew))
    _done(plan, done, made, as_json=as_json)


def _asks(plan: MigrationPlan) -> bool:
    return plan.changes_over or (bool(plan.texts) and not plan.free)


def _plan(plan: MigrationPlan, *, as_json: bool) -> None:
    if as_json:
        emit(
            {
                "former": plan.former or None,
                "model": plan.model,
                "provider": plan.provider,
                "destination": plan.destination or None,
                "changes_over": plan.changes_over,
                "texts": plan.texts,
                "bytes": plan.bytes,
                "made": plan.made,
                "tokens": plan.tokens,
                "dollars": None if plan.dollars is None else round(plan.dollars, 8),
                "seconds": round(plan.seconds, 1),
            }
        )
        return
    for line in _words(plan):
        say(line)


def _words(plan: MigrationPlan) -> list[str]:
    lines = [
        f"The vault's vectors are of {plan.former or 'no model yet'}; the next ones are of {plan.model}."
    ]
    if not plan.texts and not plan.changes_over:
        return [f"Nothing to do: all vectors are of {plan.model}."]
    if plan.anew and plan.former == plan.model:
        lines = [f"The vault's vectors are of {plan.model}, and are all made again."]
    before = f" ({plan.made:,} are made already)" if plan.made else ""
    lines.append(
        f"{counted(plan.texts, 'vector')} to make, {size(plan.bytes)}{before}: {ago(plan.seconds)} or so."
    )
    if plan.destination:
        lines.append(f"They are sent to {plan.destination}, which reads them.")
    else:
        lines.append("They stay on this machine.")
    if plan.free:
        lines.append("It costs nothing.")
    elif plan.dollars is None:
        lines.append(
            f"What it costs is not known here: about {plan.tokens:,} tokens at the provider's price."
        )
    else:
        cost = f"${plan.dollars:.2f}" if plan.dollars >= 0.01 else "under a cent"
        lines.append(f"It costs {cost} or so: {plan.tokens:,} tokens at the list price of {PRICES_OF}.")
    if plan.changes_over:
        lines.append(
            "The old vectors answer until the new ones are made; words find everything all the time."
        )
    return lines


def _done(plan: MigrationPlan, done: Reembedded, made: int, *, as_json: bool) -> None:
    if as_json:
        emit(
            {
                "former": done.former or None,
                "model": done.model,
                "made": made,
                "embedded": done.texts,
                "seconds": round(done.seconds, 3),
            }
        )
    elif done.texts:
        say(
            f"Made {counted(done.texts, 'vector')} with {done.model}; changing over took {ago(done.seconds)}."
        )
    else:
        say(f"Nothing to do: all vectors are of {plan.model}.")


def _show(found: EmbeddingStatus) -> None:
    say(f"The vault's vectors   {found.vault or 'none yet'}")
    say(
        f"This device embeds    {found.own or 'nothing'}{f', at {found.destination}' if found.destination else ''}"
    )
    aside = f", {found.set_aside:,} set aside: the model died with them" if found.set_aside else ""
    say(f"Without vectors       {found.lacking:,} of {found.texts:,}{aside}")
    if found.made:
        say(f"Being made            {found.made:,} of {found.texts:,} for {found.made_model}")
    say(f"Queries               {'by meaning and by words' if found.works else 'by words'}")
    if found.problem:
        note(f"{found.problem[:1].upper()}{found.problem[1:]}")
