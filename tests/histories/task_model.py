"""One task as a value: what every verb may do to it, and what it answers. Pure.

It is `tests/redis/model.py` for one ID, where times and tokens may be known by bounds only (test_task_model.py compares
the two). A verb yields each possible answer with the task after it; what cannot be decided is possible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.histories import leases, verbs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.histories.history import Op
    from tests.histories.life import Answers, Life


def step(life: Life, op: Op) -> Iterator[Life]:
    """Yield what the task may be after an operation with its result; of an unknown one, only what it changes."""
    for answer, after in VERBS[op.verb](life, op):
        if answer == op.result or (op.result is None and after != life):
            yield after


VERBS: Final[dict[str, Callable[[Life, Op], Answers]]] = {
    "schedule": verbs.schedule,
    "cancel": verbs.cancel,
    "reschedule": verbs.reschedule,
    "get": verbs.get,
    "bulk": verbs.bulk,
    "claim": leases.claim,
    "isolate": leases.isolate,
    "unclaim": leases.unclaim,
    "extend": leases.settling(leases.extend),
    "ack": leases.settling(leases.ack),
    "retry": leases.unless_cancelled(leases.retry),
    "bury": leases.unless_cancelled(leases.bury),
    "release": leases.unless_cancelled(leases.release),
    "park": leases.unless_cancelled(leases.park),
    "end_cancelled": leases.settling(leases.end_cancelled),
    "unpark": leases.unpark,
    "reclaim": leases.reclaim,
    "recover": leases.recover,
    "redrive": verbs.redrive,
    "purge": verbs.purge,
}
