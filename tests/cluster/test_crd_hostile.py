"""Fields that are too deep, wide or long: the API server refuses or prunes them, and other namespaces are served.

One DelaySchedule of 1,500 levels could stop the operator for all, and one of 9,996 the API server's lists of the kind.
Kubernetes looks at all items of a list, also of one that is too long, and compares each error with all before it:
400,000 take half a minute, so that shorter lists stand for them where a field is a list.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pytest

from tests.cluster.harness.resources import delayqueues, delete_namespace, make_namespace
from tests.cluster.harness.rest import Refused
from tests.unit.contract.crd import CRD, SCHEDULE_CRD, root
from tests.unit.contract.documents import document

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.harness.rest import Rest
    from tests.cluster.world import World

Json = dict[str, Any]

HERE: Final = "HERE"
"""Stands in a document where the hostile value comes."""
SCHEDULE: Final[Json] = {
    "apiVersion": "delayq.dev/v1alpha1",
    "kind": "DelaySchedule",
    "metadata": {"name": "poll"},
    "spec": {"queueRef": {"name": "orders"}, "everySeconds": 60},
}
DEEP: Final = '{"a":' * 1500 + "1" + "}" * 1500
DEEPER: Final = "[" * 9990 + "]" * 9990
LONG: Final = f'"{"x" * 1_000_000}"'
TEMPLATE: Final = "spec.worker.template"
LEAVES: Final = (
    *(f"{TEMPLATE}.spec.{leaf}" for leaf in ("nodeName", "priority", "hostNetwork", "tolerations")),
    *(f"{TEMPLATE}.spec.{leaf}" for leaf in ("nodeSelector", "affinity.nodeAffinity", "affinity.$patch")),
    *(
        f"{TEMPLATE}.spec.containers.0.{leaf}"
        for leaf in ("startupProbe.httpGet.port", "resources.limits", "resources.limits.cpu", "args")
    ),
    "spec.networkPolicy.metricsFrom.0.podSelector",
)
"""One of each kind."""
ELEMENTS: Final = {"spec.times": 1000, LEAVES[3]: 1000, LEAVES[10]: 40_000}
UNDECLARED: Final = ("zzz", "status.zzz", "spec.zzz", "spec.worker.zzz", f"{TEMPLATE}.zzz", "spec.task.zzz")
INVALID: Final = 422
START: Final = 40
"""Characters that tell a hostile value."""


def wide(field: str) -> str:
    return json.dumps([""] * ELEMENTS.get(field, 400_000), separators=(",", ":"))


def hostile(field: str) -> list[str]:
    return [DEEP, DEEPER, LONG, wide(field)]


def marked(field: str) -> Json:
    """The mark in a field; 0 stands for a container or another item of a list."""
    value: Any = HERE
    for step in reversed(field.split(".")):
        value = [{"name": "worker", **value}] if step == "0" else {step: value}
    found: Json = value
    return found


def merged(one: Json, other: Json) -> Json:
    both = one.keys() & other.keys()
    inside = {key: merged(one[key], other[key]) for key in both if isinstance(other[key], dict)}
    return one | other | inside


def fields(crd: Json) -> Iterator[str]:
    """The fields below spec and status."""
    for part in ("spec", "status"):
        yield from (f"{part}.{name}" for name in root(crd)["properties"][part]["properties"])
    yield from UNDECLARED


def stored(rest: Rest, path: str, body: Json) -> Json | None:
    """What is stored of a document; nothing if it is refused as invalid."""
    name = f"hostile-{uuid4().hex[:8]}"
    field, value = body.pop(HERE)
    whole = json.dumps(merged(body, {"metadata": {"name": name}} | marked(field)))
    try:
        rest.create(path, whole.replace(f'"{HERE}"', value).encode())
    except Refused as error:
        if error.code != INVALID:
            raise
        return None
    return rest.get(f"{path}/{name}")


def strike(world: World, namespace: str, *, all_values: bool) -> None:
    """Create documents with hostile fields; each kind can be listed afterwards."""
    rest, queues = world.cluster.rest, delayqueues(namespace)
    schedules = queues.replace("delayqueues", "delayschedules")
    for path, least, crd, leaves in (
        (queues, document(), CRD, LEAVES),
        (schedules, SCHEDULE, SCHEDULE_CRD, ("spec.task.payload",)),
    ):
        for number, field in enumerate((*fields(crd), *leaves)):
            values = hostile(field)
            for value in values if all_values else [values[3 if number % 9 == 0 else number % 3]]:
                found = stored(rest, path, least | {HERE: (field, value)})
                assert value[:START] not in json.dumps(found, separators=(",", ":")), field
                assert found or field not in UNDECLARED, field
        assert rest.get(path.replace(f"/namespaces/{namespace}", ""))["items"]


@pytest.mark.parametrize(
    "all_values", [False, pytest.param(True, marks=pytest.mark.full)], ids=["one-of-each", "all-of-each"]
)
def test_a_hostile_field_is_refused_or_pruned_and_other_namespaces_are_served(
    world: World, *, all_values: bool
) -> None:
    bad = f"hostile-{uuid4().hex[:8]}"
    make_namespace(world.cluster, bad)
    strike(world, bad, all_values=all_values)
    world.operator.wait_ready()
    world.start()
    delete_namespace(world.cluster, bad)
