"""What the operator knows of the cluster: kept by reflectors and by kopf, read by reconciliation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from delayq_operator.cache.children import Children
    from delayq_operator.cache.pods import Pods
    from delayq_operator.cache.queues import Queues
    from delayq_operator.cache.rivals import Rivals


@dataclass(frozen=True)
class Inventory:
    """All of it that a reconciliation looks at."""

    queues: Queues
    children: Children
    pods: Pods
    rivals: Rivals
