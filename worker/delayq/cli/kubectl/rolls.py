"""What a change does to pods, in sentences: how many are replaced, and why. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delayq_operator.base import names
from delayq_operator.desired.checksum import TEMPLATE, changes
from delayq_operator.reconcile.drift import differs
from delayq_operator.reconcile.plan import inputs_of

from delayq.scaling.sentences import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq.cli.kubectl.comparison import Compared, Comparison
    from delayq.cli.kubectl.kubectl import Object
    from delayq.cli.kubectl.surroundings import Surroundings
    from delayq.contract import DelayQueue

NOTHING: Final = "no pod would be replaced"


def told(world: Surroundings, found: Comparison) -> Iterator[str]:
    """Say it, when anything changes at all."""
    name = world.new.metadata.name
    said = [
        *_component(world, found, "scanner", names.scanner(name)),
        *_component(world, found, "worker", names.worker(name)),
        *_workers(world),
        *(f"{each.kind} {each.name} would be deleted" for each in found.children if each.after is None),
    ]
    if found.children or said:
        yield ""
        yield from said or [NOTHING]


def _component(world: Surroundings, found: Comparison, component: str, name: str) -> Iterator[str]:
    pair = found.of(names.DEPLOYMENT.kind, name)
    if pair is None or pair.after is None:
        return
    if pair.before is None:
        yield f"{component} pods would be started: Deployment {name} is new"
    elif _template(pair.before) != _template(pair.after):
        live = world.children.get((names.DEPLOYMENT.kind, name), pair.before)
        count = live["spec"].get("replicas", 1)
        yield f"{counted(count, f'{component} pod')} would be replaced: {'; '.join(_reasons(pair))}"


def _template(deployment: Object) -> object:
    return deployment["spec"]["template"]


def _reasons(pair: Compared) -> list[str]:
    """Name what changed, by the annotation that the operator names it by; of the template also where."""
    if pair.before is None or pair.after is None:
        return []
    found = changes(inputs_of(pair.before), inputs_of(pair.after)) or [f"{TEMPLATE} changed"]
    return [
        f"{each} ({path})" if each.startswith(TEMPLATE) and (path := _path(pair)) else each for each in found
    ]


def _path(pair: Compared) -> str | None:
    """Return where two templates first differ."""
    one, other = (
        {"metadata": {}, "spec": each["spec"]["template"]["spec"]}
        for each in (pair.after, pair.before)
        if each
    )
    return differs(one, other) or differs(other, one)


def _workers(world: Surroundings) -> Iterator[str]:
    """Say how many workers there would be, where the document alone decides that."""
    live = world.children.get((names.DEPLOYMENT.kind, names.worker(world.new.metadata.name)))
    wanted, why = _wanted(world.new)
    if world.old is not None and _wanted(world.old) == (wanted, why):
        return
    if wanted is None:
        yield f"workers would be {why}"
    elif live is not None and live["spec"].get("replicas", 1) != wanted:
        yield f"{live['spec'].get('replicas', 1)} → {counted(wanted, 'worker')}: {why}"


def _wanted(queue: DelayQueue) -> tuple[int | None, str]:
    spec = queue.spec
    if spec.stop_policy == "HoldAndDrain":
        return 0, "spec.stopPolicy is HoldAndDrain"
    if spec.autoscaling is None:
        return (
            (1, "the default")
            if spec.worker.replicas is None
            else (spec.worker.replicas, "spec.worker.replicas")
        )
    if spec.autoscaling.mode == "External":
        return spec.worker.replicas, "scaled by an HPA or KEDA, which writes spec.worker.replicas"
    return None, f"scaled between {spec.autoscaling.min_replicas} and {spec.autoscaling.max_replicas}"
