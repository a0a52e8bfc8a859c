"""The user's code in scanners and reapers, which call it for expired leases: spec.recovery.check.python.

They then run the workers' image with the workers' pull settings. They get nothing else of the workers' template: put
variables, volumes and sidecars for the check into scanner.template and reaper.template.
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


GRACE_SECONDS: Final = 10  # time to hand over leadership: one round trip; after 10 s it has expired anyway


def asked(queue: DelayQueue) -> bool:
    """Whether scanners and reapers call a function of the user's."""
    check = queue.spec.recovery.check
    return check is not None and check.python is not None


def role(queue: DelayQueue, setting: Setting, component: Component, **more: Any) -> Role:  # noqa: ANN401
    """Return the common role of scanners and reapers; user code gets more resources. `more`: further fields."""
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
    """Return the image pull settings of the workers' template, for pods of a component."""
    if not asked(queue) or queue.spec.worker.image is None:
        return {}
    spec = mapping(mapping(queue.spec.worker.template).get("spec"))
    workers = (each for each in mappings(spec.get("containers")) if each.get("name") == "worker")
    policies = [policy for each in workers if (policy := each.get("imagePullPolicy"))]
    found: Object = {"imagePullSecrets": spec["imagePullSecrets"]} if spec.get("imagePullSecrets") else {}
    if policies:
        found["containers"] = [{"name": component, "imagePullPolicy": policies[-1]}]
    return {"spec": found} if found else {}
