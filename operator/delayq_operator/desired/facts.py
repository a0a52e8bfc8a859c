"""The inputs of desired objects besides the document."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from delayq_operator.desired.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The operator's configuration, the same for every queue."""

    worker_image: str
    """Image of scanners and reapers, and of workers unless spec.worker.image says otherwise."""
    scanner_role: str = "delayq-scanner"
    """Name of the role with what scanners may do that watch DelaySchedules."""
    scanner_role_kind: str = "ClusterRole"
    """Role, if the operator serves only some namespaces: its installer may lack permissions in the whole cluster."""
    image_pull_policy: str | None = None
    """None: Kubernetes' default."""
    image_pull_secrets: tuple[str, ...] = ()
    """Names of Secrets in the queue's namespace."""
    own_namespace: str | None = None
    """Namespace of the operator's pods, which read the metrics of queues; None outside of a cluster."""
    own_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that select them; empty: every pod of that namespace."""
    policy: Policy = field(default_factory=Policy)
    """What DelayQueues may not ask for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The observed state that one queue depends on."""

    uid: str
    """Of the DelayQueue, for owner references."""
    namespace: str
    installation: str = ""
    """The operator's claim, which it writes into the ConfigMap; empty: none."""
    generation: int = 1
    """metadata.generation of the DelayQueue."""
    kinds: frozenset[str] = frozenset()
    """Optional kinds that the API serves, and the operator may use: those of monitors."""
    issuer_keys: str = ""
    """The issuer of ServiceAccount tokens and its keys, as the API's pods read them; empty: not known yet."""
    inputs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Component → the live inputs in its Deployment's annotation names.INPUTS."""
