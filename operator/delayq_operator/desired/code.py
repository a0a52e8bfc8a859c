"""The user's code in scanners and reapers, which ask it about tasks whose leases ran out: spec.recovery.check.python.

They run the workers' image then, and pull it as workers do. Nothing else of the workers' template is theirs: variables,
volumes and sidecars that the check needs belong into scanner.template and reaper.template.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from delayq_operator.base.objects import mapping, mappings
from delayq_operator.desired import pod
from delayq_operator.desired.pod import Role

if TYPE_CHECKING:
    from delayq.contract import DelayQueue

    from delayq_operator.base.names import Component
    from delayq_operator.desired.child import Object
    from delayq_operator.desired.facts import Setting


GRACE_SECONDS: Final = (
    10  # time for handing leadership over: one round trip, and 10 s later it has run out anyway
)


def asked(queue: DelayQueue) -> bool:
    """Whether scanners and reapers call a function of the user's."""
    check = queue.spec.recovery.check
    return check is not None and check.python is not None


def role(queue: DelayQueue, setting: Setting, component: Component, **more: Any) -> Role:  # noqa: ANN401
    """Say what scanners and reapers have in common; the user's code may take more than ours. `more` is the rest."""
    image = queue.spec.worker.image if asked(queue) else None
    return Role(
        component=component,
        image=image or setting.worker_image,
        resources=pod.OF_CODE if asked(queue) else pod.SMALL,
        grace_seconds=GRACE_SECONDS,
        under=pulled(queue, component),
        **more,
    )


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
