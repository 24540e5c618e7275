"""``crystal up`` on a machine with a memory of its own that joins another vault (``setup.merge``)."""

from collections.abc import Callable
from typing import Protocol

from crystal_node.base.errors import UsageError
from crystal_node.base.settings import LOCAL_RELAY, Settings
from crystal_node.base.wording import counted
from crystal_node.surfaces.cli.console.progress import progress_shown
from crystal_node.surfaces.setup.merge import Merge, MergePlan, MergeState
from crystal_node.surfaces.setup.steps import SetupStep


class Joins(Protocol):
    """What joins a vault with a code, and reads the settings again."""

    def join(self, settings: Settings) -> str: ...

    def latest(self) -> Settings: ...


class OwnMemory:
    """The merge that this call of ``crystal up`` begins or goes on with. ``about``: what a person is told before it."""

    def __init__(self, merge: Merge, state: MergeState, own: str) -> None:
        self._merge, self._state, self._own = merge, state, own
        self._plan = merge.plan() if state is not MergeState.CHANGED else MergePlan(0, [])

    @property
    def joins(self) -> bool:
        """Whether a code is needed, which is not asked for when the new home has joined already."""
        return self._state is MergeState.NONE

    @property
    def enter_is_yes(self) -> bool:
        return not self._plan.left

    @property
    def about(self) -> list[str]:
        if self._state is MergeState.CHANGED:
            return []
        count = counted(self._plan.messages, "message")
        lines = [
            f"This machine has a memory of its own, with {count}. It goes along into the vault that you join;",
            "then its own vault ends. It may be interrupted at any time: nothing is lost, and `crystal up` goes on.",
        ]
        if self._plan.left:
            lines += ["These do not go along:", *(f"  - {text}" for text in self._plan.left)]
        return lines

    def refuse_unasked(self, *, yes: bool) -> None:
        """Refuse, where nobody is asked, what a person has to decide. Raises UsageError."""
        if self._state is not MergeState.NONE:
            return
        if self._plan.left:
            raise UsageError(
                f"these would not go along: {'; '.join(self._plan.left)}",
                hint="Run it at a terminal without --yes, and answer yes if you can do without them.",
            )
        if not yes:
            raise UsageError(
                "this machine has a memory of its own, and nobody can be asked whether it goes along",
                hint="Add --yes: its memory goes along into the other vault, and its own vault ends.",
            )

    def into(self, plan: list[SetupStep], enrolment: Joins, *, quiet: bool) -> list[SetupStep]:
        """The plan of `crystal up` with the steps of the merge. ``quiet``: without progress."""
        steps: list[SetupStep] = []
        for step in plan:
            if step.name != "vault":
                steps.append(step)
                continue
            steps += [
                step if self._state is MergeState.CHANGED else self._vault(enrolment, quiet=quiet),
                SetupStep(
                    "former-home",
                    "remove the former home, once the vault has everything in it",
                    lambda: Merge(enrolment.latest()).state() is not MergeState.CHANGED,
                    lambda: _finished(enrolment.latest()),
                ),
            ]
        return steps

    def _vault(self, enrolment: Joins, *, quiet: bool) -> SetupStep:
        def merge() -> str:
            said = ""
            if self._merge.state() is MergeState.NONE:
                try:
                    said = enrolment.join(self._merge.prepare())
                except BaseException:
                    self._merge.give_up()
                    raise
            with progress_shown("messages", quiet=quiet) as progress:
                self._merge.bring(progress)
            self._merge.change()
            count = counted(self._plan.messages, "message")
            return f"{said}; {count} of its own went along" if said else f"{count} of its own went along"

        return SetupStep(
            "vault",
            "join the vault, and take this machine's own memory along",
            lambda: enrolment.latest().config.vault not in ("", self._own),
            merge,
            ground=True,
        )


def _finished(settings: Settings) -> str:
    Merge(settings).finish()
    return ""


def own_memory(settings: Settings, reread: Callable[[], Settings], code: str | None) -> OwnMemory | None:
    """The merge that is wanted or under way; None if there is none. Goes on where one was killed between its renames.

    Raises:
        UsageError: the code is for another vault, and this machine's own cannot end.
    """
    merge = Merge(settings)
    if merge.state() is MergeState.BETWEEN:
        merge.change()
        settings = reread()
        merge = Merge(settings)
    state = merge.state()
    alone = settings.vault is not None and settings.config.relay_url == LOCAL_RELAY
    if state is MergeState.NONE:
        if code is None or not alone:
            return None
        merge.check()
    return OwnMemory(merge, state, settings.config.vault)
