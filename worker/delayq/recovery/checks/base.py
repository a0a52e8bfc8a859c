"""What recovery knows of a check: a task goes in, a verdict and its reason come out. Not here: any check."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from delayq.errors import DelayQError
from delayq.protocol.results import Verdict

if TYPE_CHECKING:
    from delayq.protocol.envelope import Task


class Answer(NamedTuple):
    """What is to become of a task, and why, for logs and dead letters."""

    verdict: Verdict
    reason: str = ""


class CheckFailed(DelayQError):
    """The check gave no verdict."""


class Check(Protocol):
    """Decides what becomes of a task whose lease expired."""

    @property
    def stuck(self) -> int:
        """How many threads still go on for questions that were cancelled: as many can be asked less."""

    async def start(self) -> None:
        """Open what the questions share; HandlerSetupError when the document names what is not there."""

    async def ask(self, task: Task) -> Answer:
        """Ask about one task; GuardBusy: ask again in a moment; whatever else it raises: there is no verdict.

        May be cancelled at any time.
        """

    async def close(self) -> None:
        """Let go of what `start` opened. No question begins any more."""


def verdict_of(word: object) -> Verdict:
    """Return the verdict of this name; CheckFailed when there is none."""
    try:
        return Verdict(word)  # type: ignore[arg-type]  # whatever a user's function returned
    except ValueError:
        expected = ", ".join(Verdict)
        raise CheckFailed(f"expected one of {expected} as the verdict, got {word!r:.60}") from None
