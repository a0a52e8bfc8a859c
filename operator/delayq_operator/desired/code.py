"""The user's code in scanners and reapers, which ask it about tasks whose leases ran out: spec.recovery.check.python.

They run the workers' image then, and pull it as workers do. Nothing else of the workers' template is theirs: variables,
volumes and sidecars that the check needs belong into scanner.template and reaper.template.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq_operator.base.objects import mapping, mappings
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
    if not asked(queue) or queue.spec.worker.image is None:
        return {}
    spec = mapping(mapping(queue.spec.worker.template).get("spec"))
    workers = (each for each in mappings(spec.get("containers")) if each.get("name") == "worker")
    policies = [policy for each in workers if (policy := each.get("imagePullPolicy"))]
    found: Object = {"imagePullSecrets": spec["imagePullSecrets"]} if spec.get("imagePullSecrets") else {}
    if policies:
        found["containers"] = [{"name": component, "imagePullPolicy": policies[-1]}]
    return {"spec": found} if found else {}
