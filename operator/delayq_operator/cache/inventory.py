"""The informer caches: reflectors and kopf update them, reconciliation reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq_operator.cache.children import Children
from delayq_operator.cache.pod import Pods
from delayq_operator.cache.queues import Queues
from delayq_operator.cache.rivals import Rivals
from delayq_operator.cache.schedules import Schedules

if TYPE_CHECKING:
    from collections.abc import Callable

    from delayq_operator.base.names import Key


class Inventory:
    """The caches that a reconciliation reads."""

    def __init__(self, enqueue: Callable[[Key], None]) -> None:
        """Call `enqueue` for each queue of which an object changes."""
        self.queues = Queues(enqueue)
        self.children = Children(self.queues, enqueue)
        self.pods = Pods(self.queues, enqueue)
        self.schedules = Schedules(enqueue)
        self.rivals = Rivals()
