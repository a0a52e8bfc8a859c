"""Names of children, labels, annotations and field managers. They are defined only here."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, Literal

from delayq.contract.files import ISSUER_FILE
from delayq.contract.queue import GROUP, KIND, VERSION
from delayq.contract.schedule import KIND as SCHEDULE_KIND
from delayq.kube.objects import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

OPERATOR: Final = "delayq-operator"
"""Field manager of children and status, and the value of the managed-by label."""

SCALER: Final = "delayq-scaler"
"""Field manager that owns `spec.replicas` of the worker Deployment, and nothing else."""

VICTIMS: Final = "delayq-victims"
"""Field manager that owns the deletion cost of worker pods, and nothing else."""

API_VERSION: Final = f"{GROUP}/{VERSION}"
PLURAL: Final = "delayqueues"
ERASE_FINALIZER: Final = f"{GROUP}/erase"

SUSPEND_RECONCILIATION: Final = f"{GROUP}/suspend-reconciliation"
"""Annotation of a DelayQueue: "true" and the operator leaves its children alone."""

ABANDON_TASKS: Final = f"{GROUP}/abandon-tasks"
"""Annotation of a DelayQueue: the address of a Redis that spec.redis may cease to name while it holds tasks."""

PLACES: Final = f"{GROUP}/places"
"""Annotation of a queue's ConfigMap: where the tasks are, so that another Redis is noticed."""

CHECKSUM: Final = f"{GROUP}/checksum"
"""Annotation of a pod template: a hash of what pods read at their start. When it changes, they are replaced."""

INPUTS: Final = f"{GROUP}/inputs"
"""Annotation of a Deployment: the hash of each part of the checksum, so that an event can name what changed."""

APPLIED: Final = f"{GROUP}/applied"
"""Annotation of every child: a hash of the applied object, to compare it with the desired one without a request."""

INSTALLATION: Final = f"{GROUP}/installation"
"""Annotation of a queue's ConfigMap: the age and the name of the Lease of the installation that serves the queue."""

OWNER_UID: Final = f"{GROUP}/uid"
"""Annotation of the erase Job: the uid of the DelayQueue whose tasks it erases."""

DOCUMENT: Final = f"{GROUP}/document"
"""Annotation of the erase Job's pod: the document, for its ConfigMap may go before it."""

DECISION: Final = f"{GROUP}/decision"
"""Annotation of an Event: what a decision on the number of workers was made from, for `delayq replay`."""

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
"""Annotation of a pod: a ReplicaSet that has to delete some deletes those first that cost the least."""

QUEUE_LABEL: Final = f"{GROUP}/queue"
COMPONENT_LABEL: Final = "app.kubernetes.io/component"
MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"

METRICS_PORT: Final = 8080
METRICS_PORT_NAME: Final = "metrics"

HORIZONS_PORT: Final = 18080
"""Where scanners answer the horizons that the operator asks for, and a NetworkPolicy admits only the operator."""
HORIZONS_VARIABLE: Final = "DELAYQ_HORIZONS_PORT"
REAPER_VARIABLE: Final = "DELAYQ_REAPER"
"""`delayq doctor` reads there which mounted files the pod should have."""

API_PORT: Final = 8090
API_PORT_NAME: Final = "api"
ISSUER_KEY: Final = PurePosixPath(ISSUER_FILE).name
"""Key of the ConfigMap with the keys of ServiceAccount tokens."""

LONGEST_LABEL = 63
LONGEST_NAME = 253
LONGEST_CRONJOB_NAME = 52  # a Job adds eleven characters to it, and a pod's host name has 63

Component = Literal["scanner", "worker", "reaper", "erase", "config", "metrics", "pods", "monitoring", "api"]


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Which DelayQueue."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


DELAY_QUEUE: Final = Kind(API_VERSION, KIND, PLURAL)
DELAY_SCHEDULE: Final = Kind(API_VERSION, SCHEDULE_KIND, "delayschedules")
CONFIG_MAP: Final = Kind("v1", "ConfigMap", "configmaps")
SERVICE_ACCOUNT: Final = Kind("v1", "ServiceAccount", "serviceaccounts")
SERVICE: Final = Kind("v1", "Service", "services")
DEPLOYMENT: Final = Kind("apps/v1", "Deployment", "deployments")
CRON_JOB: Final = Kind("batch/v1", "CronJob", "cronjobs")
JOB: Final = Kind("batch/v1", "Job", "jobs")
DISRUPTION_BUDGET: Final = Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
ROLE_BINDING: Final = Kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings")
NETWORK_POLICY: Final = Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
POD_MONITOR: Final = Kind("monitoring.coreos.com/v1", "PodMonitor", "podmonitors")
PROMETHEUS_RULE: Final = Kind("monitoring.coreos.com/v1", "PrometheusRule", "prometheusrules")

POD: Final = Kind("v1", "Pod", "pods")
EVENT: Final = Kind("v1", "Event", "events")

CHILDREN: Final[Mapping[Kind, tuple[Component, ...]]] = {
    SERVICE_ACCOUNT: ("pods", "scanner"),
    ROLE_BINDING: ("scanner",),
    CONFIG_MAP: ("config", "api"),
    SERVICE: ("metrics", "api"),
    NETWORK_POLICY: ("pods",),
    DISRUPTION_BUDGET: ("scanner", "worker", "api"),
    DEPLOYMENT: ("scanner", "worker", "api"),
    CRON_JOB: ("reaper",),
    JOB: ("erase",),
}
"""Kinds of children that every cluster serves, in the order they are applied → the components that may have one."""

OPTIONAL: Final[Mapping[Kind, tuple[Component, ...]]] = {
    POD_MONITOR: ("monitoring",),
    PROMETHEUS_RULE: ("monitoring",),
}
"""Kinds of children that may not be served, or that the operator may not be allowed to write. They are only listed:
they come and go with their CustomResourceDefinition, which would end kopf each time."""

REQUIRED: Final = (DELAY_QUEUE, DELAY_SCHEDULE, *CHILDREN, POD)


def fitted(text: str, longest: int) -> str:
    """Return the text, or as much of it as fits with a hash of all of it, so that two never fit to the same."""
    if len(text) <= longest:
        return text
    return f"{text[: longest - 9].rstrip('-.')}-{_digest(text)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def label_value(queue_name: str) -> str:
    """Value of the queue label: the DelayQueue's name, which may be longer than a label."""
    return fitted(queue_name, LONGEST_LABEL)


def labelled(key: Key) -> Key:
    """Return the group of objects that have the label of a queue, which stands for its name."""
    return Key(key.namespace, label_value(key.name))


def labels(queue_name: str, component: Component) -> dict[str, str]:
    value = label_value(queue_name)
    return {
        "app.kubernetes.io/name": "delayq",
        "app.kubernetes.io/instance": value,
        COMPONENT_LABEL: component,
        MANAGED_BY_LABEL: OPERATOR,
        QUEUE_LABEL: value,
    }


def selector(queue_name: str, component: Component) -> dict[str, str]:
    """Labels that select a component's pods; a Deployment's selector can never change."""
    return {QUEUE_LABEL: label_value(queue_name), COMPONENT_LABEL: component}


def deployment(queue_name: str, component: str) -> str:
    """Name of the Deployment of a component: scanner, worker or api."""
    return api(queue_name) if component == "api" else _child(queue_name, component, LONGEST_LABEL)


def api(queue_name: str) -> str:
    """Name of what belongs to the HTTP API. Callers know it as the name of its Service."""
    return _child(_of_service(queue_name), "api", LONGEST_LABEL)


def scanner(queue_name: str) -> str:
    return deployment(queue_name, "scanner")


def worker(queue_name: str) -> str:
    return deployment(queue_name, "worker")


def reaper(queue_name: str) -> str:
    return _child(queue_name, "reaper", LONGEST_CRONJOB_NAME)


def erase(queue_name: str) -> str:
    return _child(queue_name, "erase", LONGEST_LABEL)


def config(queue_name: str) -> str:
    return _child(queue_name, "config", LONGEST_NAME)


def metrics_service(queue_name: str) -> str:
    """Name of the headless Service in front of the metrics."""
    return _child(_of_service(queue_name), "metrics", LONGEST_LABEL)


def _of_service(queue_name: str) -> str:
    """Return a name for Services: a DNS label that begins with a letter."""
    dashed = queue_name.replace(".", "-")
    if dashed != queue_name or not dashed[0].isalpha():
        dashed = f"q{dashed}-{_digest(queue_name)}"
    return dashed


def pods(queue_name: str) -> str:
    """Name of the objects for all pods of a queue: ServiceAccount, NetworkPolicy, PodMonitor, PrometheusRule."""
    return _child(queue_name, "delayq", LONGEST_NAME)


def child(queue_name: str, component: Component) -> str:
    """Name of the children of a component; of each kind, it has one at most."""
    return _NAMES[component](queue_name)


_NAMES: Final[Mapping[Component, Callable[[str], str]]] = {
    "scanner": scanner,
    "worker": worker,
    "reaper": reaper,
    "erase": erase,
    "config": config,
    "metrics": metrics_service,
    "pods": pods,
    "monitoring": pods,
    "api": api,
}


@lru_cache(4096)
def children(queue_name: str) -> frozenset[tuple[str, str]]:
    """Kind and name of every child that a queue can have."""
    kinds = {**CHILDREN, **OPTIONAL}.items()
    return frozenset(
        (kind.kind, child(queue_name, each)) for kind, components in kinds for each in components
    )


def _child(queue_name: str, suffix: str, longest: int) -> str:
    return f"{fitted(queue_name, longest - len(suffix) - 1)}-{suffix}"
