"""What a DelayQueue wants of those who read and scale it, parsed once for each version of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from delayq.contract import SpecError, parse
from delayq.contract.queue import MOST_SHARDS
from delayq.scaling import Policy

if TYPE_CHECKING:
    from delayq_operator.base.names import Key
    from delayq_operator.cache.queues import Queues
    from delayq_operator.cache.resource import Resource


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingConfig:
    """Of one DelayQueue; without a spec that fits, nothing is wanted."""

    policy: Policy | None = None
    """How it is scaled; None if another client decides, or the queue is on hold."""
    ours: bool = True
    """Whether the operator scales it, or will when nothing keeps it from that any more."""
    guarded: bool = False
    """Whether its workers have a guard to tell of."""
    lateness_seconds: float = math.inf
    percentile: float = 100.0
    shards: int = MOST_SHARDS


def aim(resource: Resource) -> ScalingConfig:
    """Read one DelayQueue."""
    try:
        spec = parse(resource.document).spec
    except SpecError:
        return ScalingConfig()
    scaling = spec.autoscaling
    ours = scaling is not None and scaling.mode == "Internal"
    kept = spec.stop_policy != "None" or resource.paused or resource.deleting
    return ScalingConfig(
        policy=Policy.of(spec) if ours and not kept else None,
        ours=ours,
        guarded=spec.guard is not None,
        lateness_seconds=spec.objective.lateness_seconds,
        percentile=spec.objective.percent,
        shards=spec.shards,
    )


class ScalingConfigs:
    """Those of all DelayQueues."""

    def __init__(self, queues: Queues) -> None:
        """Nothing is parsed before it is asked for."""
        self._queues = queues
        self._known: dict[Key, tuple[str, int, ScalingConfig]] = {}

    def of(self, key: Key) -> ScalingConfig:
        """Return what a DelayQueue wants now; nothing when it is gone."""
        uid, version = self._queues.uid(key), self._queues.version(key)
        known = self._known.get(key)
        if known is None or known[:2] != (uid, version):
            resource = self._queues.get(key)
            if resource is None:
                return ScalingConfig()
            known = self._known[key] = (uid, version, aim(resource))
        return known[2]

    def forget(self, key: Key) -> None:
        """Drop what a DelayQueue wanted."""
        self._known.pop(key, None)
