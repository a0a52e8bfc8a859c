"""Compares desired objects with live children, and returns the changes to make. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from delayq_operator.base import names
from delayq_operator.reconcile import drift

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from delayq.kube.objects import Kind, Object

    from delayq_operator.cache.children import Child

_KINDS = {kind.kind: kind for kind in (*names.CHILDREN, *names.OPTIONAL)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One object to apply."""

    kind: Kind
    body: Object
    live: Child | None
    why: tuple[str, ...] = ()
    """The paths where the live object differs; empty for a new one."""

    @property
    def name(self) -> str:
        """Name of the object."""
        return str(self.body["metadata"]["name"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The changes to the children of one queue."""

    changes: tuple[Change, ...] = ()
    there: frozenset[tuple[str, str]] = frozenset()
    """Kind and name of the desired objects that exist."""
    prune: tuple[Child, ...] = ()
    leaving: tuple[Child, ...] = ()
    """Children of an earlier DelayQueue of the same name: new ones wait for their deletion."""
    foreign: tuple[str, ...] = ()
    """Additions of other clients to pod templates, such as "container proxy of Deployment orders-worker"."""


def claim(todo: Plan) -> Plan:
    """Reduce a plan to the ConfigMap, whose annotation claims the queue for this installation."""
    return Plan(changes=tuple(change for change in todo.changes if change.kind == names.CONFIG_MAP))


def plan(wanted: Iterable[Object], children: Mapping[tuple[str, str], Child], uid: str) -> Plan:
    """Compare the desired objects with the live children; `uid` is the DelayQueue's."""
    changes, leaving, foreign, kept, there = [], [], [], set(), set()
    for body in wanted:
        reference = (body["kind"], body["metadata"]["name"])
        live = children.get(reference)
        if live is not None and live.owner_uid is None and not live.ours:
            live = None  # an object of another owner: labels alone do not make it a child
        if live is not None and "roleRef" in body and body["roleRef"] != live.body.get("roleRef"):
            continue  # it cannot be changed, so the object is pruned first
        kept.add(reference)
        if live is not None and live.owner_uid not in (None, uid):
            leaving.append(live)
            continue
        why = () if live is None else tuple(drift.differences(body, live.body))
        if live is None or why:
            changes.append(Change(kind=_KINDS[body["kind"]], body=body, live=live, why=why))
        if live is not None:
            there.add(reference)
            foreign += [f"{what} of {body['kind']} {live.name}" for what in drift.foreign(body, live.body)]
    prune = tuple(
        child for reference, child in children.items() if reference not in kept and child.owner_uid == uid
    )
    return Plan(
        changes=tuple(changes),
        there=frozenset(there),
        prune=prune,
        leaving=tuple(leaving),
        foreign=tuple(foreign),
    )


def inputs_of(deployment: Object) -> dict[str, str]:
    """Return the inputs of a Deployment's pods by name; any client may have edited the annotation."""
    try:
        found = json.loads((deployment["metadata"].get("annotations") or {}).get(names.INPUTS, "{}"))
    except ValueError:
        return {}
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}
