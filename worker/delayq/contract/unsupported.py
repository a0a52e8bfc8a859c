"""What a document may ask for and this version does not do yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delayq.contract.problems import Problem

if TYPE_CHECKING:
    from delayq.contract.queue import Spec

REDIS: Final = Problem(
    "spec.redis", "this version connects to standalone Redis only, not sentinel or cluster"
)


def unsupported(spec: Spec) -> tuple[Problem, ...]:
    """Name what a valid spec asks for in vain."""
    asks = {
        REDIS: spec.redis.standalone is None,
    }
    return tuple(problem for problem, asked in asks.items() if asked)
