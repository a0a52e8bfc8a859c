"""Inputs and checksum of pods: a hash of each input that they read at start, and a hash of all inputs as annotation.

A part of the document is an input of a component only if its process reads it; other parts cause no rollout. Image and
template cause a rollout by themselves; they are inputs so that an event can name them.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final, cast

from delayq.contract import Limits, to_document
from delayq.contract.record import write_record

from delayq_operator.base import names
from delayq_operator.desired import mounts
from delayq_operator.desired.config import asked_shards

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delayq.contract import DelayQueue
    from delayq.kube.objects import Object

    from delayq_operator.base.names import Component
    from delayq_operator.desired.facts import Facts

SCANNER_READS: Final = ("redis", "delivery", "durability", "schedules")
CHECK: Final = "spec.recovery.check"
GUARD: Final = ("guard",)
"""What a scanner also reads for the check of expired leases."""
WORKER_READS: Final = ("redis", "delivery", "handler", "guard")
API_READS: Final = ("redis", "delivery", "durability", "handler", "schedules", "limits")
PACE: Final = ("ratePerSecond", "burst", "maxInFlight")
"""Fields of spec.limits that limit starts."""
SIZE: Final = ("maxLength", "maxBytes")
"""Fields that limit what a queue holds. Clients read them, and scanners, which create the occurrences of schedules."""
TASK: Final = ("maxPayloadBytes", "maxHeaderBytes")
"""Fields that limit a task. Clients read them, and scanners that store definitions of DelaySchedules."""
WORKER_FIELDS: Final = ("concurrency", "drainTimeoutSeconds")
"""Fields of spec.worker that the process reads; the others configure the Deployment."""

IMAGE: Final = "image"
TEMPLATE: Final = "pod template"
SUSPEND: Final = "spec.suspend"
_DIGITS: Final = 12

Inputs = dict[str, str]


def of_scanner(queue: DelayQueue, facts: Facts) -> Inputs:
    """Hash the parts of the document that a scanner reads."""
    spec, check = _spec(queue), queue.spec.recovery.check
    limits = PACE + SIZE + (() if queue.spec.schedules is None else TASK)
    own = {**_sections(spec, SCANNER_READS), **asked_shards(queue, facts), **_limits(spec, limits)}
    if check is not None:
        own[CHECK] = _hash(spec["recovery"]["check"])
    if check is not None and check.guard is not None:
        own |= _sections(spec, GUARD)
    return own


def of_worker(queue: DelayQueue, before: Mapping[str, str]) -> Inputs:
    """Hash the parts of the document that a worker reads; `before` are the inputs last applied.

    A worker reads the shard map from Redis while it runs, so spec.shards is not among them.
    """
    spec, suspended = _spec(queue), str(queue.spec.suspend).lower()
    found = {
        **_sections(spec, WORKER_READS),
        **_limits(spec, PACE),
        "spec.worker": _hash({field: spec["worker"][field] for field in WORKER_FIELDS}),
        # Hold needs new pods; Drain keeps the last input, as it only scales to 0.
        SUSPEND: before.get(SUSPEND, "false") if queue.spec.drains else suspended,
    }
    # Only workers write the history; the next reaper reads the other fields of spec.retention.
    if finished := spec["retention"].get("finished"):
        found["spec.retention.finished"] = _hash(finished)
    return found


def of_api(queue: DelayQueue) -> Inputs:
    """Hash the parts of the document that the HTTP API reads: those of a client, and spec.api without replicas."""
    spec = _spec(queue)
    own = {field: value for field, value in spec["api"].items() if field != "replicas"}
    return {**_sections(spec, API_READS), "spec.api": _hash(own)}


def _spec(queue: DelayQueue) -> Object:
    return cast("Object", to_document(queue)["spec"])


def _sections(spec: Object, paths: tuple[str, ...]) -> Inputs:
    return {f"spec.{name}": _hash(spec.get(name)) for name in paths}


def _limits(spec: Object, fields: tuple[str, ...]) -> Inputs:
    """Hash those that differ from their defaults."""
    limits, defaults = spec["limits"], write_record(Limits())
    given = {name: limits[name] for name in fields if limits.get(name) != defaults.get(name)}
    return {"spec.limits": _hash(given)} if given else {}


def of_deployment(own: Inputs, template: Object, component: Component) -> Inputs:
    """Return all inputs of a Deployment's pods: `own` of the document, and the template.

    The operator's own volume is not an input: it follows from the document. What Secrets and ConfigMaps contain is
    none either: processes read most of them again, and `kubectl rollout restart` is for the rest.
    """
    volumes = [each for each in template["spec"]["volumes"] if each["name"] != mounts.VOLUME]
    template = {**template, "spec": {**template["spec"], "volumes": volumes}}
    return {**own, **_of_template(template, component)}


def _of_template(template: Object, component: str) -> Inputs:
    """Name the image, and hash the rest of a merged pod template."""
    containers = {each["name"]: dict(each) for each in template["spec"]["containers"]}
    image = containers[component].pop("image", "")
    rest = {**template, "spec": {**template["spec"], "containers": containers}}
    return {IMAGE: str(image), TEMPLATE: _hash(rest)}


def checksum(inputs: Mapping[str, str]) -> str:
    """Hash the inputs that do not cause a rollout by themselves."""
    return _hash({name: value for name, value in inputs.items() if name not in (IMAGE, TEMPLATE)})


def annotated(template: Object, inputs: Mapping[str, str]) -> Object:
    """Put the checksum on a pod template."""
    metadata = template["metadata"]
    annotations = {**metadata.get("annotations", {}), names.CHECKSUM: checksum(inputs)}
    return {**template, "metadata": {**metadata, "annotations": annotations}}


def remembered(inputs: Mapping[str, str]) -> dict[str, str]:
    """Return the annotation of the Deployment with its inputs, from which the next event names the change."""
    return {names.INPUTS: json.dumps(inputs, sort_keys=True, separators=(",", ":"))}


def changes(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Name the changes: "spec.redis changed", "image changed from a to b". Empty without old inputs."""
    if not old:
        return []
    names_of_all = [*new, *(name for name in old if name not in new)]
    found = [name for name in names_of_all if old.get(name) != new.get(name)]
    return [_change(name, old.get(name), new.get(name)) for name in found]


def _change(name: str, old: str | None, new: str | None) -> str:
    if name == IMAGE:
        return f"image changed from {old} to {new}"
    if old is None:
        return f"{name} added"
    if new is None:
        return f"{name} removed"
    return f"{name} changed"


def _hash(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
