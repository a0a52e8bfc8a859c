"""The operator's policy: what a valid spec must not ask for, because it would escalate its author's privileges.

It is checked on the merged pod templates, so no merge can bypass it. `baseline` is the Pod Security Standard: a cluster
with Pod Security admission rejects the same pods later. Not here: fields that break the operator's guarantees
(protected.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from delayq.contract import Problem

from delayq_operator.base import names
from delayq_operator.base.objects import at, mapping, mappings, pod_template

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from delayq.kube.objects import Object

PodSecurity = Literal["baseline", "privileged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What DelayQueues may ask for."""

    pod_security: PodSecurity = "baseline"
    """The Pod Security Standard that pod templates must satisfy."""
    service_accounts: tuple[str, ...] = ("*",)
    """Names that pod templates may set as serviceAccountName; "*" stands for any."""
    own_service_account: str | None = None
    """The operator's ServiceAccount, which no queue may use."""
    closed_namespace: str | None = None
    """The operator's namespace, unless DelayQueues are allowed there."""


_CAPABILITIES: Final = frozenset(
    {
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD"),
        *("NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    }
)
_SYSCTLS: Final = frozenset(
    {
        *("kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start"),
        *("net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.ip_local_reserved_ports"),
        *("net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl"),
        "net.ipv4.tcp_keepalive_probes",
    }
)
_SELINUX_TYPES: Final = frozenset(
    {"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
)
_FIELDS: Final[Mapping[str, object]] = {
    "hostNetwork": True,
    "hostPID": True,
    "hostIPC": True,
    "securityContext.privileged": True,
    "securityContext.procMount": "Unmasked",
    "securityContext.appArmorProfile.type": "Unconfined",
    "securityContext.seccompProfile.type": "Unconfined",
    "securityContext.windowsOptions.hostProcess": True,
}
"""Path in a pod or a container → the value that `baseline` forbids."""
_PROBES: Final = tuple(
    f"{hook}.{how}.host"
    for hook in (
        *("livenessProbe", "readinessProbe", "startupProbe"),
        *("lifecycle.postStart", "lifecycle.preStop"),
    )
    for how in ("httpGet", "tcpSocket")
)
"""Handlers with which the kubelet connects from the node's network: to the pod, unless they name a host."""
_APPARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"
"""Pod annotation for one container, which the API server converts to the field."""
_DEFAULT: Final = "default"
"""The ServiceAccount of a pod that names none."""
_TEMPLATES: Final = {"erase": "reaper", "api": "scanner"}
"""Component → the component whose template its pods use, if it is another."""


def of_namespace(namespace: str, policy: Policy) -> tuple[Problem, ...]:
    """Return the problems of a DelayQueue's namespace."""
    if namespace != policy.closed_namespace:
        return ()
    why = "is the operator's own, where a pod can reach the operator's credentials; use another namespace"
    return (Problem("metadata.namespace", why),)


def of_templates(bodies: Iterable[Object], policy: Policy) -> tuple[Problem, ...]:
    """Return the problems of the pod templates of children."""
    return tuple(problem for body in bodies for problem in _of_child(body, policy))


def _of_child(body: Object, policy: Policy) -> Iterator[Problem]:
    template = pod_template(body)
    pod = template.get("spec")
    if pod is None:
        return
    labels = body["metadata"]["labels"]
    component = labels[names.COMPONENT_LABEL]
    path = f"spec.{_TEMPLATES.get(component, component)}.template"
    yield from _account(pod, f"{path}.spec.serviceAccountName", labels[names.QUEUE_LABEL], policy)
    if policy.pod_security == "baseline":
        yield from _baseline(pod, f"{path}.spec")
        yield from _annotations(template.get("metadata", {}), f"{path}.metadata")


def _account(pod: Object, path: str, queue: str, policy: Policy) -> Iterator[Problem]:
    if "serviceAccountName" not in pod and not _has_token(pod):
        return  # as in erase Jobs: the account of a pod without a token gives it no rights
    name, own = pod.get("serviceAccountName", _DEFAULT), (names.pods(queue), names.scanner(queue))
    if name == policy.own_service_account:
        yield Problem(path, f"{name} is the operator's own ServiceAccount")
    elif name not in (*own, *policy.service_accounts) and "*" not in policy.service_accounts:
        allowed = ", ".join(policy.service_accounts) or "none but the queue's own"
        yield Problem(path, f"ServiceAccount {name} is not allowed to DelayQueues; allowed: {allowed}")


def _has_token(pod: Object) -> bool:
    if pod.get("automountServiceAccountToken") is not False:
        return True
    volumes = mappings(pod.get("volumes"))
    sources = (source for volume in volumes for source in mappings(at(volume, "projected.sources")))
    return any("serviceAccountToken" in source for source in sources)


def _annotations(metadata: Object, path: str) -> Iterator[Problem]:
    for key, value in (metadata.get("annotations") or {}).items():
        if key.startswith(_APPARMOR) and value == "unconfined":
            yield Problem(f"{path}.annotations[{key}]", f"{value} is forbidden by Pod Security baseline")


def _baseline(pod: Object, path: str) -> Iterator[Problem]:
    for where, part in ((path, pod), *_containers(pod, path)):
        for field, value in _forbidden(part):
            yield Problem(f"{where}.{field}", f"{value} is forbidden by Pod Security baseline")


def _containers(pod: Object, path: str) -> Iterator[tuple[str, Object]]:
    for field in ("initContainers", "containers"):
        for each in mappings(pod.get(field)):
            yield f"{path}.{field}[{each.get('name')}]", each


def _forbidden(part: Object) -> Iterator[tuple[str, object]]:
    """Yield forbidden fields of a pod or a container. No field name has two meanings in the two."""
    for field, bad in _FIELDS.items():
        if at(part, field) == bad:
            yield field, "true" if bad is True else bad
    for field in _PROBES:
        if host := at(part, field):
            yield field, host
    for volume in mappings(part.get("volumes")):
        if "hostPath" in volume:
            yield f"volumes[{volume.get('name')}].hostPath", "a volume of the node"
    for port in mappings(part.get("ports")):
        if port.get("hostPort"):
            yield "ports.hostPort", port["hostPort"]
    yield from _listed(part)


def _listed(part: Object) -> Iterator[tuple[str, object]]:
    """Yield fields whose value is not in the allowed list."""
    added = at(part, "securityContext.capabilities.add")
    for each in added if isinstance(added, list) else ():
        if str(each) not in _CAPABILITIES:
            yield "securityContext.capabilities.add", each
    for each in mappings(at(part, "securityContext.sysctls")):
        if str(each.get("name")) not in _SYSCTLS:
            yield "securityContext.sysctls", each.get("name")
    for field, value in mapping(at(part, "securityContext.seLinuxOptions")).items():
        if (field in ("user", "role") and value) or (field == "type" and str(value) not in _SELINUX_TYPES):
            yield f"securityContext.seLinuxOptions.{field}", value
