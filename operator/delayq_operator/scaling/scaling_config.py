"""The parts of a spec that scraping and scaling use, parsed once for each version of a DelayQueue."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from delayq.contract import SpecError, parse
from delayq.contract.queue import MOST_SHARDS
from delayq.contract.references import references
from delayq.scaling import Policy

if TYPE_CHECKING:
    from delayq.contract.files import Reference

    from delayq_operator.base.names import Key
    from delayq_operator.cache.queues import Queues
    from delayq_operator.cache.resource import Resource


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingConfig:
    """The configuration of one DelayQueue; the defaults stand for an invalid spec."""

    policy: Policy | None = None
    """Scaling policy; None if another client decides, or the queue is on hold, paused or being deleted."""
    ours: bool = True
    """Whether mode Internal applies, also while the queue is on hold or paused."""
    guarded: bool = False
    """Whether the spec has a guard."""
    references: frozenset[Reference] = frozenset()
    """The keys of Secrets and ConfigMaps that the spec names, templates aside."""
    lateness_seconds: float = math.inf
    percentile: float = 100.0
    shards: int = MOST_SHARDS


def scaling_config(resource: Resource) -> ScalingConfig:
    """Return the configuration of one DelayQueue."""
    try:
        spec = parse(resource.document).spec
    except SpecError:
        return ScalingConfig()
    scaling = spec.autoscaling
    ours = scaling is not None and scaling.mode == "Internal"
    kept = spec.suspend or resource.left_alone or resource.deleting
    return ScalingConfig(
        policy=Policy.of(spec) if ours and not kept else None,
        ours=ours,
        guarded=spec.guard is not None,
        references=frozenset(each for _, each in references(spec)),
        lateness_seconds=spec.objective.lateness_seconds,
        percentile=spec.objective.percent,
        shards=spec.shards,
    )


class ScalingConfigs:
    """The configurations of all DelayQueues."""

    def __init__(self, queues: Queues) -> None:
        """Specs are parsed on demand."""
        self._queues = queues
        self._known: dict[Key, tuple[str, int, ScalingConfig]] = {}

    def of(self, key: Key) -> ScalingConfig:
        """Return the current configuration; the defaults if the DelayQueue is gone."""
        uid, version = self._queues.uid(key), self._queues.version(key)
        known = self._known.get(key)
        if known is None or known[:2] != (uid, version):
            resource = self._queues.get(key)
            if resource is None:
                return ScalingConfig()
            known = self._known[key] = (uid, version, scaling_config(resource))
        return known[2]

    def forget(self, key: Key) -> None:
        """Drop the configuration of a DelayQueue."""
        self._known.pop(key, None)
