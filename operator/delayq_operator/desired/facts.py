"""What the desired objects follow from, besides the document itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from delayq_operator.desired.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What the operator was started with, the same for every queue."""

    worker_image: str
    """Image of scanners and reapers, and of workers unless spec.worker.image says otherwise."""
    image_pull_policy: str | None = None
    """Absent: Kubernetes' own rule."""
    image_pull_secrets: tuple[str, ...] = ()
    """Names of Secrets in the queue's namespace."""
    own_namespace: str | None = None
    """Where the operator's own pods are, which read the metrics of queues; absent outside of a cluster."""
    own_labels: Mapping[str, str] = field(default_factory=dict)
    """What selects them there; none: every pod there."""
    policy: Policy = field(default_factory=Policy)
    """What DelayQueues may not ask for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What was seen of the world around one queue."""

    uid: str
    """Of the DelayQueue, for owner references."""
    namespace: str
    installation: str = ""
    """What the operator that serves it writes into the ConfigMap as its claim; empty: nothing."""
    generation: int = 1
    """Of the DelayQueue: which of its documents this is."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Name → hash of the content, of each that the queue refers to; "" where there is none."""
    unkeyed: Mapping[str, str] = field(default_factory=dict)
    """The same as earlier versions took it; it is compared, and never written anew."""
    lacking: tuple[tuple[str, str], ...] = ()
    """Name and key, of each that the document names and the Secret does not have."""
    config_maps: Mapping[str, str] = field(default_factory=dict)
    """The same for ConfigMaps."""
    kinds: frozenset[str] = frozenset()
    """Optional kinds that the API serves: PodMonitor, PrometheusRule."""
    inputs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Component → what its Deployment's annotation names.INPUTS says now: a Secret that is gone rolls nothing."""
