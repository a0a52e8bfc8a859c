"""The ServiceAccount of a queue's pods: an identity without rights; its token is not mounted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq_operator.base import names
from delayq_operator.desired.child import Object, child

if TYPE_CHECKING:
    from delayq.contract import DelayQueue

    from delayq_operator.desired.facts import Facts


def service_account(queue: DelayQueue, facts: Facts) -> Object:
    """Return the ServiceAccount: pods do not get the rights of the account `default`."""
    return child(
        names.SERVICE_ACCOUNT,
        queue,
        facts,
        name=names.pods(queue.metadata.name),
        component="pods",
        automountServiceAccountToken=False,
    )
