"""Unwanted additions to a pod spec: the fields that must be reported if other clients add them.

Fields that others add stay theirs (drift.py), and most are harmless. Not these: what the Pod Security Standard
`restricted` forbids, and what makes a container run something else. A desired field with another value is drift, which
the operator repairs.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from delayq_operator.base.objects import at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from delayq.kube.objects import Object

_ANY: Final = object()
"""Any value that is present and not empty."""

_SECURITY: Final[Mapping[str, object]] = {
    "securityContext.runAsNonRoot": False,
    "securityContext.runAsUser": 0,
    "securityContext.appArmorProfile.type": "Unconfined",
    "securityContext.seccompProfile.type": "Unconfined",
    "securityContext.seLinuxOptions": _ANY,
    "securityContext.windowsOptions.hostProcess": True,
}
_OF_POD: Final[Mapping[str, object]] = {
    "hostNetwork": True,
    "hostPID": True,
    "hostIPC": True,
    "shareProcessNamespace": True,
    "securityContext.sysctls": _ANY,
    **_SECURITY,
}
_OF_CONTAINER: Final[Mapping[str, object]] = {
    "command": _ANY,
    "args": _ANY,
    "lifecycle.postStart": _ANY,
    "lifecycle.preStop.exec": _ANY,
    "lifecycle.preStop.httpGet": _ANY,
    "securityContext.privileged": True,
    "securityContext.allowPrivilegeEscalation": True,
    "securityContext.capabilities.add": _ANY,
    "securityContext.procMount": "Unmasked",
    **_SECURITY,
}
"""Path → the value that matters."""

_HARMLESS_VOLUMES: Final = frozenset(
    {
        *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image"),
        *("persistentVolumeClaim", "projected", "secret"),
    }
)

CONTAINERS: Final = (("containers", "container"), ("initContainers", "init container"))


def added(wanted: Object, live: Object) -> list[str]:
    """Name what the live pod spec has and the wanted one does not, as "hostNetwork", "args of container worker"."""
    return [*_fields(_OF_POD, wanted, live), *_volumes(wanted, live), *_in_containers(wanted, live)]


def _fields(table: Mapping[str, object], wanted: Object, live: Object) -> Iterator[str]:
    for path, bad in table.items():
        value = at(live, path)
        matters = bool(value) if bad is _ANY else value is not None and value == bad
        if matters and at(wanted, path) is None:
            name = path.removeprefix("securityContext.")
            yield name if bad in (_ANY, True) else f"{name}: {json.dumps(value)}"


def _volumes(wanted: Object, live: Object) -> Iterator[str]:
    known = {volume["name"] for volume in wanted.get("volumes") or ()}
    for volume in live.get("volumes") or ():
        for kind in volume.keys() - {"name"} - _HARMLESS_VOLUMES:
            if volume["name"] not in known:
                yield f"{kind} volume {volume['name']}"


def _in_containers(wanted: Object, live: Object) -> Iterator[str]:
    """In those that are wanted; all others are strangers as a whole."""
    for field, what in CONTAINERS:
        ours = {container["name"]: container for container in wanted.get(field) or ()}
        for container in live.get(field) or ():
            name = container["name"]
            if name in ours:
                found = [*_fields(_OF_CONTAINER, ours[name], container)]
                found += () if live.get("hostNetwork") else _host_ports(ours[name], container)
                yield from (f"{each} of {what} {name}" for each in found)


def _host_ports(wanted: Object, live: Object) -> Iterator[str]:
    """Not in a host's network: there the API server says hostPort for every port."""
    known = {port.get("hostPort") for port in wanted.get("ports") or ()}
    ports = [port.get("hostPort") for port in live.get("ports") or ()]
    return (f"hostPort {port}" for port in ports if port and port not in known)
