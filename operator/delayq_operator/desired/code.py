"""The user's code in scanners and reapers, which ask it about tasks whose leases ran out: spec.recovery.check.python.

They run the workers' image then, and pull it as workers do. Nothing else of the workers' template is theirs: variables,
volumes and sidecars that the check needs belong into scanner.template and reaper.template.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from delayq_operator.desired import pod

if TYPE_CHECKING:
    from delayq.contract import DelayQueue

    from delayq_operator.base.names import Component
    from delayq_operator.desired.child import Object
    from delayq_operator.desired.facts import Setting


def asked(queue: DelayQueue) -> bool:
    """Whether scanners and reapers call a function of the user's."""
    check = queue.spec.recovery.check
    return check is not None and check.python is not None


def image(queue: DelayQueue, setting: Setting) -> str:
    """Name the image of scanners and reapers."""
    return (queue.spec.worker.image if asked(queue) else None) or setting.worker_image


def resources(queue: DelayQueue) -> Object:
    """Say what a scanner or reaper takes; the user's code may take more than ours."""
    return pod.OF_CODE if asked(queue) else pod.SMALL


def pulled(queue: DelayQueue, component: Component) -> Object:
    """Return that part of the workers' template which says how their image is pulled, for pods of a component."""
    template = queue.spec.worker.template
    if not asked(queue) or queue.spec.worker.image is None or template is None:
        return {}
    spec = _mapping(template.get("spec"))
    found = {"imagePullSecrets": spec["imagePullSecrets"]} if spec.get("imagePullSecrets") else {}
    containers = spec.get("containers")
    for container in map(_mapping, containers if isinstance(containers, list) else ()):
        if container.get("name") == "worker" and container.get("imagePullPolicy"):
            policy = {"name": component, "imagePullPolicy": container["imagePullPolicy"]}
            found["containers"] = [policy]
    return {"spec": found} if found else {}


def _mapping(value: object) -> Mapping[str, object]:
    """Take it for nothing if it is none: what is wrong with the template is said where workers are made."""
    return value if isinstance(value, Mapping) else {}
