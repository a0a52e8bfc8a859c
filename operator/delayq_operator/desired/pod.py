"""The pod template that all processes share, merged with the user's.

It satisfies the Pod Security Standard `restricted`. The user's sidecars must satisfy it themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from delayq.contract import Problem, SpecError
from delayq.contract.problems import Place
from delayq.contract.trees import copy

from delayq_operator.base import names
from delayq_operator.desired import mounts, protected
from delayq_operator.desired.merge import merged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delayq.kube.objects import Object

    from delayq_operator.base.names import Component
    from delayq_operator.desired.facts import Setting

HOST: Final = "*"  # the kubelet's probes and Prometheus come from outside the pod, by IPv4 or IPv6
LISTEN: Final = ("--host", HOST)

SMALL: Final[Object] = {
    # Measured: 40 MB idle. No CPU limit, because throttling causes lateness. A memory limit, because only delayq's own
    # code runs here: more is a leak.
    "requests": {"cpu": "50m", "memory": "64Mi"},
    "limits": {"memory": "256Mi"},
}
OF_API: Final[Object] = {
    # Two batches of 8 MiB at a time, and 2,000 connections.
    "requests": {"cpu": "100m", "memory": "128Mi"},
    "limits": {"memory": "512Mi"},
}
OF_CODE: Final[Object] = {
    # Requests for a small handler. The limit protects the node: a handler that leaks must not cause evictions of other
    # pods. Authors set the needs of their handler in the template.
    "requests": {"cpu": "100m", "memory": "128Mi"},
    "limits": {"memory": "1Gi"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """One kind of pod."""

    component: Component
    """Also the name of the main container, by which a template addresses it."""
    image: str
    resources: Object
    grace_seconds: int
    mounted: tuple[object, ...]
    """Parts of the document whose Secrets and ConfigMaps these pods read."""
    template: Mapping[str, object] | None
    """The user's template, spec.<component>.template."""
    probes: Object
    """Probes of the container, by field."""
    issuer: bool = False
    """Whether these pods read the keys of ServiceAccount tokens."""
    document: str = ""
    """Annotation of the pod with the document; empty: the document is in the ConfigMap."""
    process: str = ""
    """Subcommand of `delayq`, if it is not the component."""
    options: tuple[str, ...] = ()
    """Further options of the subcommand."""
    protected: Mapping[str, str] = field(default_factory=dict)
    """Additional pod fields that the user's template must not set → why."""
    under: Mapping[str, object] = field(default_factory=dict)
    """A template that is merged before the user's: a part of another role's template, or what a token needs."""
    under_of: Component = "worker"
    """The component whose template `under` is a part of."""
    ports: tuple[Object, ...] = ()
    """Further ports of the container."""
    pod: Mapping[str, object] = field(default_factory=dict)
    """Further fields of the pod."""
    container: Mapping[str, object] = field(default_factory=dict)
    """Further fields of the container."""


def template(queue_name: str, setting: Setting, role: Role) -> Object:
    """Return the pod template. SpecError lists every problem of the user's template."""
    base = {
        "metadata": {"labels": names.labels(queue_name, role.component)},
        "spec": _spec(queue_name, setting, role),
    }
    # An empty `spec:` is null in YAML; it counts as absent, as in the rest of the document.
    given = {field: value for field, value in (role.template or {}).items() if value is not None}
    problems: list[Problem] = []
    place = Place(f"spec.{role.component}.template", problems)
    protected.check(given, place, container=role.component, pod=role.protected)
    ours = merged(base, role.under, Place(f"spec.{role.under_of}.template", problems)) if role.under else base
    found = merged(ours, given, place)
    if problems or not isinstance(found, dict):
        raise SpecError(tuple(problems))
    return found


def _spec(queue_name: str, setting: Setting, role: Role) -> Object:
    spec: Object = {
        "serviceAccountName": names.pods(queue_name),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,  # else exec handlers inherit a variable for every Service
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "terminationGracePeriodSeconds": role.grace_seconds,
        **role.pod,
        "containers": [_container(setting, role)],
        "volumes": [
            mounts.volume(queue_name, role.mounted, role.document, issuer=role.issuer),
            {"name": "tmp", "emptyDir": {}},
        ],
    }
    if setting.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in setting.image_pull_secrets]
    return spec


def _container(setting: Setting, role: Role) -> Object:
    made: Object = {
        "name": role.component,
        "image": role.image,
        "command": ["delayq", role.process or role.component, *LISTEN, *role.options],
        "ports": [
            {"name": names.METRICS_PORT_NAME, "containerPort": names.METRICS_PORT, "protocol": "TCP"},
            *role.ports,
        ],
        "resources": copy(role.resources),
        "terminationMessagePolicy": "FallbackToLogsOnError",  # the last line has the cause
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [
            {"name": mounts.VOLUME, "mountPath": mounts.DIRECTORY, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - the pod's own
        ],
        **role.probes,
        **role.container,
    }
    if setting.image_pull_policy is not None:
        made["imagePullPolicy"] = setting.image_pull_policy
    return made
