"""The interface of a check: a task in, a verdict and its reason out. Not here: any check."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from delayq.errors import DelayQError
from delayq.protocol.results import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from delayq.contract.files import Reference
    from delayq.protocol.envelope import Task


class Answer(NamedTuple):
    """A verdict and its reason, for logs and dead letters."""

    verdict: Verdict
    reason: str = ""


class CheckFailed(DelayQError):
    """The check gave no verdict."""


class Check(Protocol):
    """Decides about a task whose lease expired."""

    @property
    def stuck(self) -> int:
        """The number of threads that still run cancelled checks; each reduces the concurrency by one."""

    def lacks(self) -> Mapping[Reference, str]:
        """Return the mounted files without which it gives no verdict and that cannot be used yet, and why."""

    async def start(self) -> None:
        """Open shared resources; HandlerSetupError when the document names something that does not exist."""

    async def ask(self, task: Task) -> Answer:
        """Check one task. GuardBusy: try again soon; any other exception: no verdict. May be cancelled at any time."""

    async def close(self) -> None:
        """Close shared resources. No check starts afterwards."""


def verdict_of(name: object, *, shown: Callable[[object], str] = repr) -> Verdict:
    """Return the verdict of this name; CheckFailed, with the name as `shown`, when it does not exist."""
    try:
        return Verdict(name)  # type: ignore[arg-type]  # any result of a user's function
    except ValueError:
        expected = ", ".join(Verdict)
        raise CheckFailed(f"expected one of {expected} as the verdict, got {shown(name):.60}") from None
