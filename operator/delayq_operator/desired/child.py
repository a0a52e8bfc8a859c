"""Common parts of all children: the owner reference and the labels that select them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq_operator.base import names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delayq.contract import DelayQueue
    from delayq.kube.objects import Kind, Object

    from delayq_operator.base.names import Component
    from delayq_operator.desired.facts import Facts


def child(
    kind: Kind,
    component: Component,
    queue: DelayQueue,
    facts: Facts,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **body: object,
) -> Object:
    """Return an object owned by its DelayQueue, named after the component. The operator's labels override `labels`."""
    metadata: Object = {
        "name": names.child(queue.metadata.name, component),
        "namespace": facts.namespace,
        "labels": {**(labels or {}), **names.labels(queue.metadata.name, component)},
    }
    if annotations:
        metadata["annotations"] = dict(annotations)
    owner = {
        "apiVersion": names.API_VERSION,
        "kind": names.DELAY_QUEUE.kind,
        "name": queue.metadata.name,
        "uid": facts.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata["ownerReferences"] = [owner]
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **body}
