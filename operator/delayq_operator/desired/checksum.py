"""What rolls pods: a hash of each thing they read when they start, and a hash of all of these in their annotations.

A part of the document counts for a role only if its process reads it: what is not here rolls nothing. Image and
template roll pods by themselves; they are among the inputs so that an event can name them.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final, cast

from delayq.contract import to_document

from delayq_operator.base import names
from delayq_operator.desired import mounts, reads
from delayq_operator.desired.config import asked_shards
from delayq_operator.desired.mounts import CONFIG_MAP, SECRET

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delayq.contract import DelayQueue

    from delayq_operator.base.names import Component
    from delayq_operator.desired.child import Object
    from delayq_operator.desired.facts import Facts
    from delayq_operator.desired.mounts import Named

SCANNER_READS: Final = ("redis", "delivery", "durability")
CHECK: Final = "spec.recovery.check"
GUARD: Final = ("guard",)
"""What a scanner reads too when it asks about tasks: the question, and the guard when that has to answer."""
WORKER_READS: Final = ("redis", "delivery", "handler", "guard")
PACE: Final = ("ratePerSecond", "burst", "maxInFlight")
"""Of spec.limits: what may begin; the rest of it is for those who schedule."""
WORKER_FIELDS: Final = ("concurrency", "drainTimeoutSeconds")
"""Of spec.worker; the rest of it is the Deployment's own."""

IMAGE: Final = "image"
TEMPLATE: Final = "pod template"
STOP_POLICY: Final = "spec.stopPolicy"
MISSING: Final = "missing"
KEYED: Final = "keyed:"
"""In front of a digest that takes a key: those without let anybody try passwords who reads the annotation."""
_DIGITS: Final = 12
_ROLL_BY_THEMSELVES: Final = (IMAGE, TEMPLATE)

Inputs = dict[str, str]


def of_scanner(queue: DelayQueue, facts: Facts) -> Inputs:
    """Hash the parts of the document that a scanner reads."""
    spec, check = _spec(queue), queue.spec.recovery.check
    own = {**_sections(spec, SCANNER_READS), **asked_shards(queue, facts), **_pace(spec)}
    if check is not None:
        own[CHECK] = _hash(spec["recovery"]["check"])
    if check is not None and check.guard is not None:
        own |= _sections(spec, GUARD)
    return own


def of_worker(queue: DelayQueue, before: Mapping[str, str]) -> Inputs:
    """Hash the parts of the document that a worker reads; `before` are the inputs last applied.

    Of spec.shards it learns from Redis, while it runs: in the document it is a guess.
    """
    spec = _spec(queue)
    own = {field: spec["worker"][field] for field in WORKER_FIELDS}
    return {
        **_sections(spec, WORKER_READS),
        **_pace(spec),
        "spec.worker": _hash(own),
        STOP_POLICY: _held(queue, before),
    }


def _held(queue: DelayQueue, before: Mapping[str, str]) -> str:
    """Workers learn that they hold from a new pod; to drain, they only have to go, as a scale change."""
    if queue.spec.stop_policy == "HoldAndDrain":
        return before.get(STOP_POLICY, "None")
    return queue.spec.stop_policy


def _spec(queue: DelayQueue) -> Object:
    return cast("Object", to_document(queue)["spec"])


def _sections(spec: Object, paths: tuple[str, ...]) -> Inputs:
    return {f"spec.{name}": _hash(spec.get(name)) for name in paths}


def _pace(spec: Object) -> Inputs:
    given = {field: spec["limits"][field] for field in PACE if field in spec["limits"]}
    return {"spec.limits": _hash(given)} if given else {}


def of_deployment(
    own: Inputs, queue: DelayQueue, facts: Facts, *, template: Object, component: Component
) -> Inputs:
    """Put together what a Deployment's pods read: `own` of the document, their namespace's, and their template.

    Without our own volume: it follows from the document, and has Secrets that are read again while they run.
    """
    volumes = [each for each in template["spec"]["volumes"] if each["name"] != mounts.VOLUME]
    template = {**template, "spec": {**template["spec"], "volumes": volumes}}
    rest = {**own, **_of_template(template, component)}
    kept = {**rest, **_of_pods(queue, facts, template, component=component, renew=False)}
    if kept == facts.inputs.get(component):
        return kept
    return {**rest, **_of_pods(queue, facts, template, component=component, renew=True)}


def _of_pods(
    queue: DelayQueue, facts: Facts, template: Object, *, component: Component, renew: bool
) -> Inputs:
    """Hash what the pods of a merged template read from their namespace when they start.

    Digests of the form that earlier versions wrote are only kept, unless `renew`, while nothing else replaces the pods.
    """
    before = facts.inputs.get(component, {})
    read = reads.of_template(template) | set(reads.at_start_by(component, queue.spec))
    read.discard((CONFIG_MAP, names.config(queue.metadata.name)))
    return {" ".join(named): _content(facts, named, before, renew=renew) for named in sorted(read)}


def _content(facts: Facts, named: Named, before: Mapping[str, str], *, renew: bool) -> str:
    """Salted with the queue's uid: annotations do not show that two queues have the same password.

    One that is gone rolls nothing: pods that run have read it, new ones would not start. When it comes back as it
    was, nothing has changed; when it comes back different, pods are rolled once and not twice.
    """
    kind, name = named
    content = (facts.secrets if kind == SECRET else facts.config_maps).get(name)
    known = before.get(" ".join(named), MISSING)
    if not content:
        return known
    if kind == CONFIG_MAP:
        return _hash([facts.uid, kind, name, content])
    if not renew and known == _hash([facts.uid, kind, name, facts.unkeyed.get(name)]):
        return known
    return KEYED + _hash([facts.uid, kind, name, content])


def _of_template(template: Object, component: str) -> Inputs:
    """Name the image, and hash the rest of a merged pod template."""
    containers = {each["name"]: dict(each) for each in template["spec"]["containers"]}
    image = containers[component].pop("image", "")
    rest = {**template, "spec": {**template["spec"], "containers": containers}}
    return {IMAGE: str(image), TEMPLATE: _hash(rest)}


def checksum(inputs: Mapping[str, str]) -> str:
    """Hash what does not roll pods by itself."""
    return _hash({name: value for name, value in inputs.items() if name not in _ROLL_BY_THEMSELVES})


def annotated(template: Object, inputs: Mapping[str, str]) -> Object:
    """Put the checksum on a pod template."""
    metadata = template["metadata"]
    annotations = {**metadata.get("annotations", {}), names.CHECKSUM: checksum(inputs)}
    return {**template, "metadata": {**metadata, "annotations": annotations}}


def remembered(inputs: Mapping[str, str]) -> dict[str, str]:
    """Annotate the Deployment, so that the next change can be named."""
    return {names.INPUTS: json.dumps(inputs, sort_keys=True, separators=(",", ":"))}


def changes(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Say what changed: "Secret shop-db changed", "image changed from a to b". Nothing, if there was nothing before."""
    if not old:
        return []
    names_of_all = [*new, *(name for name in old if name not in new)]
    found = [name for name in names_of_all if old.get(name) != new.get(name)]
    known = [name for name in found if not _renewed(old.get(name), new.get(name))]
    return [_change(name, old.get(name), new.get(name)) for name in known or found]


def _renewed(old: str | None, new: str | None) -> bool:
    """Whether the form of a digest changed, which says nothing of the content: beside a change it is none."""
    if old is None or old == MISSING or new is None:
        return False
    return new.startswith(KEYED) and not old.startswith(KEYED)


def _change(name: str, old: str | None, new: str | None) -> str:
    if name == IMAGE:
        return f"image changed from {old} to {new}"
    if old is None:
        return f"{name} added"
    if new is None:
        return f"{name} removed"
    return f"{name} appeared" if old == MISSING else f"{name} changed"


def _hash(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
