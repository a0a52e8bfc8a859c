"""spec.schedules, spec.podDisruptionBudget, spec.networkPolicy and spec.monitoring: what surrounds the processes.

All but the first mean something on Kubernetes only; `delayq run` reads them and leaves them alone.
"""

# ruff: noqa: RUF009 - fields.py's functions return dataclasses.field(...), as a default should be
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from delayq.contract.fields import dictionary, flag, listing, portion, section, whole
from delayq.contract.kubernetes import KubernetesType
from delayq.contract.record import Shape, exclusive
from delayq.contract.words import LABEL_NAME, LABEL_VALUE

if TYPE_CHECKING:
    from collections.abc import Mapping


def _labels() -> Mapping[str, str]:
    """Declare labels for Prometheus to select by: one or two are enough."""
    doc = "Labels to add, such as the one your Prometheus selects by."
    return dictionary(name=LABEL_NAME, value=LABEL_VALUE, most=32, doc=doc)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedules:
    """DelaySchedules may name the queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDisruptionBudget:
    """How many pods a node drain may take at once."""

    SHAPE: ClassVar[Shape] = Shape(rules=(exclusive("max_unavailable", "min_available"),))

    enabled: bool = flag(
        default=True, doc="Have a PodDisruptionBudget for the scanners and one for the workers."
    )
    max_unavailable: int | str | None = portion(
        1, 10_000, default=None, doc="Pods of each that may be evicted at a time. Absent: 1, or minAvailable."
    )
    min_available: int | str | None = portion(
        1,
        10_000,
        default=None,
        doc="Pods of each that must stay. With no more pods than this, a node drain never ends.",
    )


def _peers(doc: str) -> tuple[Mapping[str, object], ...] | None:
    peer = KubernetesType("NetworkPolicyPeer", "a NetworkPolicyPeer")
    return listing(peer, least=1, most=32, default=None, doc=doc)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPolicy:
    """Who may connect to the pods; what they may connect to is not limited, for a handler may need anything."""

    enabled: bool = flag(
        default=False,
        doc="Have a NetworkPolicy that lets nothing in but to the metrics port, and to the HTTP API.",
    )
    metrics_from: tuple[Mapping[str, object], ...] | None = _peers(
        "NetworkPolicyPeers that may read metrics. Absent: any pod of any namespace. The operator always may."
    )
    api_from: tuple[Mapping[str, object], ...] | None = _peers(
        "NetworkPolicyPeers that may connect to the HTTP API of spec.api. Absent: anyone, who then needs a token."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PodMonitor:
    """Has the Prometheus operator scrape scanners and workers; only where its PodMonitor kind is installed."""

    enabled: bool = flag(default=False, doc="Have a PodMonitor.")
    interval_seconds: int = whole(5, 3600, default=30, doc="Time between two scrapes.")
    labels: Mapping[str, str] = _labels()


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusRule:
    """Gives the Prometheus operator alerts for the queue; only where its PrometheusRule kind is installed."""

    enabled: bool = flag(default=False, doc="Have a PrometheusRule.")
    labels: Mapping[str, str] = _labels()


@dataclass(frozen=True, slots=True, kw_only=True)
class Monitoring:
    """Monitoring of the queue by the Prometheus operator."""

    pod_monitor: PodMonitor = section(
        PodMonitor, default=PodMonitor(), doc="Scraping, by the Prometheus operator's PodMonitor."
    )
    prometheus_rule: PrometheusRule = section(
        PrometheusRule, default=PrometheusRule(), doc="Alerts, by the Prometheus operator's PrometheusRule."
    )
