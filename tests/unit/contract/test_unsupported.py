"""A valid document may ask for what this version does not do: it is said before a process is started in vain."""

from __future__ import annotations

from typing import Any

import pytest
from delayq.contract import parse
from delayq.contract.unsupported import REDIS, unsupported

NODES = [{"host": "a", "port": 26379}]


def spec(**fields: Any) -> Any:  # noqa: ANN401  JSON in, a spec out
    least = {"redis": {"standalone": {"host": "redis"}}, "handler": {"exec": {"command": ["cat"]}}}
    head = {"apiVersion": "delayq.dev/v1alpha1", "kind": "DelayQueue", "metadata": {"name": "orders"}}
    return parse({**head, "spec": least | fields}).spec


@pytest.mark.parametrize(
    ("fields", "problems"),
    [
        ({}, ()),
        ({"guard": {"none": {}}}, ()),
        ({"guard": {"redisLock": {}}}, ()),
        ({"redis": {"sentinel": {"masterName": "main", "nodes": NODES}}}, (REDIS,)),
        ({"redis": {"cluster": {"nodes": NODES}}, "guard": {"redisLock": {}}}, (REDIS,)),
    ],
)
def test_what_is_asked_for_in_vain_is_named(fields: dict[str, Any], problems: tuple[Any, ...]) -> None:
    assert unsupported(spec(**fields)) == problems
