"""What a checker reads: operations on one task, each with the window in which it took effect, if it did."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, floor
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

Span: TypeAlias = tuple[int, int]
"""A number of which only bounds are known; both bounds are possible."""
FAR: Final = 1 << 52
"""Later than everything."""
BLUR_MS: Final = 1.0
"""How exactly Redis' clock and the monotonic clock of the recorders are compared."""

INERT: Final = frozenset(
    {
        *("lease_lost", "not_found", "kept", "exists", "repeated", "dead", "in_flight", "changed"),
        *("gone", "alive", "lock_lost", "none", 0, (0, 0, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)),
    }
)


def exactly(number: int) -> Span:
    return number, number


def plus(span: Span, more: int) -> Span:
    return span[0] + more, span[1] + more


def later(one: Span, other: Span) -> Span:
    return max(one[0], other[0]), max(one[1], other[1])


def earlier(one: Span, other: Span) -> Span:
    return min(one[0], other[0]), min(one[1], other[1])


def meet(one: Span, other: Span) -> Span | None:
    low, high = max(one[0], other[0]), min(one[1], other[1])
    return (low, high) if low <= high else None


class Parsed(NamedTuple):
    """An envelope: its content, the latest due time of a debounced task, and its due time."""

    body: str
    latest: int | None
    due: int


@dataclass(frozen=True, eq=False)
class Op:
    """One operation on one task. `lo` and `hi` are ms of Redis' clock; after `hi` it cannot take effect any more.

    `result` is None if it is unknown: the reply was lost, or its caller was killed. Then it may never take effect.
    """

    number: int
    verb: str
    lo: float
    hi: float
    args: Mapping[str, Any] = field(default_factory=dict)
    result: Any = None

    @property
    def required(self) -> bool:
        return self.result is not None

    @property
    def inert(self) -> bool:
        """Whether the result says that it changed nothing."""
        counts = self.verb == "bulk" and not self.args["cancels"]
        return self.required and (counts or self.verb == "get" or self.result in INERT)

    @property
    def at(self) -> Span:
        """What the script may have read from Redis' clock; some say it in their reply."""
        if "now" in self.args:
            return exactly(self.args["now"])
        return floor(self.lo), min(FAR, ceil(min(self.hi, FAR)))


@dataclass
class Record:
    """One script that was sent."""

    number: int
    verb: str
    lo: float
    named: Mapping[str, Any]
    rest: list[Any]
    hi: float = FAR
    reply: Any = None
    outcome: str = "unknown"
