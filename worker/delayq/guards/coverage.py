"""Which tasks a worker runs under its guard. Not here: the guards, and the blocks around handlers."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from delayq.errors import InvalidDocument

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delayq.contract.guard import Guard as GuardSpec


@dataclass(frozen=True, slots=True)
class Coverage:
    """The kinds of task that the guard applies to."""

    kinds: frozenset[str] | None = None
    """None: every task, also those without a kind."""

    def __contains__(self, kind: str) -> bool:
        """Whether tasks of this kind run under the guard."""
        return self.kinds is None or kind in self.kinds


EVERY_TASK: Final = Coverage()
NO_TASK: Final = Coverage(frozenset())


def coverage(spec: GuardSpec | None, *, asking: Iterable[str], known: Iterable[str] | None) -> Coverage:
    """Return the tasks under the guard of a document: of the kinds that it names, and of those that ask for it.

    `asking` are the kinds with guard=True, `known` all kinds of the handler, None for every kind. InvalidDocument for a
    kind that asks for a guard that is not there, or that the document names and no handler runs.
    """
    asking = sorted(asking)
    if spec is None:
        if asking:
            raise InvalidDocument(
                f"spec.guard: required by kind {asking[0]}, which has guard=True; but missing"
            )
        return EVERY_TASK
    if spec.applies_to == "AllTasks":
        return EVERY_TASK
    for nth, name in enumerate(spec.kinds or ()):
        if known is not None and name not in (names := sorted(filter(None, set(known)))):
            similar = get_close_matches(name, names, 1)
            hint = f"did you mean {similar[0]}?" if similar else f"it runs {', '.join(names) or 'none'}"
            raise InvalidDocument(f"spec.guard.kinds[{nth}]: the handler has no kind {name}; {hint}")
    return Coverage(frozenset((*(spec.kinds or ()), *asking)))
