"""Carries out a plan: applies and prunes children. Returns what it did and what failed. Not here: scaling (scaler.py).

Every write is a server-side apply with the operator's field manager: fields of other managers stay, and two operators
write the same. An object that the informer cache lacks is read before its first write: one of another owner is kept.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from delayq.kube.errors import Conflict, Denied, Failed, Invalid, NotFound

from delayq_operator.base import names
from delayq_operator.desired.checksum import changes
from delayq_operator.reconcile.drift import differs
from delayq_operator.reconcile.plan import Plan, inputs_of

if TYPE_CHECKING:
    from delayq.kube.objects import Object

    from delayq_operator.base.names import Key
    from delayq_operator.cache.children import Child
    from delayq_operator.cache.inventory import Inventory
    from delayq_operator.cache.resource import Resource
    from delayq_operator.kube.api import Api
    from delayq_operator.reconcile.plan import Change
    from delayq_operator.scaling.scaling import Scale

REFUSED: Final = (Invalid, Denied, NotFound, Failed)
"""Errors that concern one child only: they are reported and retried.

Not Conflict: it means that the informer cache is stale, and the next reconciliation reads it again.
"""


@dataclass(slots=True)
class Outcome:
    """The result of a plan."""

    created: list[str] = field(default_factory=list)
    repaired: list[str] = field(default_factory=list)
    rolled: list[str] = field(default_factory=list)
    """Sentences: which pods are replaced, and why."""
    scaled: tuple[str, str, str] | None = None
    """Reason, message and record of the event, if the number of workers was changed."""
    pruned: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    """Objects of other owners that have the name of a child."""
    failures: list[str] = field(default_factory=list)


class Applier:
    """Writes the children of DelayQueues."""

    def __init__(self, api: Api, inventory: Inventory) -> None:
        """Responses of the API server update `inventory` at once, ahead of the watch."""
        self._api, self._inventory = api, inventory
        self._there: dict[Key, set[tuple[str, ...]]] = defaultdict(set)
        """UID of the DelayQueue, kind and name of each desired child that this process has found or made."""

    async def apply(self, resource: Resource, plan: Plan, scale: Scale) -> Outcome:
        """Carry out the plan. The outcome lists rejected writes; Unavailable if the API server does not answer."""
        outcome = Outcome()
        if plan != Plan():  # which keeps the children of a spec that is refused
            wanted = {(resource.uid, change.kind.kind, change.name) for change in plan.changes}
            self._there[resource.key] &= wanted
            self._there[resource.key] |= {(resource.uid, *reference) for reference in plan.there}
        for change in plan.changes:
            await self._apply(resource, change, scale, outcome)
        for child in plan.prune:
            label = f"{child.kind.kind} {child.name}"
            try:
                await self.delete(child, resource.key.namespace)
            except REFUSED as error:
                outcome.failures.append(f"{label}: {error.message.rstrip('.')}.")
            else:
                outcome.pruned.append(label)
        return outcome

    async def _apply(self, resource: Resource, change: Change, scale: Scale, outcome: Outcome) -> None:
        label = f"{change.kind.kind} {change.name}"
        try:
            if change.live is None and (there := await self._read(resource, change)):
                owners = there["metadata"].get("ownerReferences") or ()
                if all(owner["uid"] != resource.uid for owner in owners):
                    outcome.taken.append(label)
                    return
                if not differs(change.body, there):
                    return  # its watch has not delivered it yet
            wanted = _with_replicas(change, scale)
            self._inventory.seen(
                change.kind, await self._api.apply(change.kind, wanted, manager=names.OPERATOR)
            )
        except REFUSED as error:
            outcome.failures.append(f"{label}: {error.message.rstrip('.')}.")
            return
        if change.live is None:
            known, child = self._there[resource.key], (resource.uid, change.kind.kind, change.name)
            (outcome.repaired if child in known else outcome.created).append(label)
            known.add(child)
            return
        deployment = change.kind is names.DEPLOYMENT  # the only kind with pods to replace
        if deployment and (reasons := changes(inputs_of(change.live.body), inputs_of(change.body))):
            outcome.rolled.append(f"{label}: {', '.join(reasons)}")
        elif _applied(change.live.body) in (None, _applied(change.body)):  # else the spec has changed
            outcome.repaired.append(f"{label} ({', '.join(change.why)})")

    async def _read(self, resource: Resource, change: Change) -> Object | None:
        """Read an object that the informer cache lacks; None if it does not exist."""
        try:
            return await self._api.get(change.kind, resource.key.namespace, change.name)
        except NotFound:
            return None

    async def end_runs(self, reaper: Child, namespace: str) -> None:
        """Delete the active Jobs of a CronJob: concurrencyPolicy Forbid lets no other run start before they end."""
        for job in reaper.body.get("status", {}).get("active") or ():
            with suppress(NotFound, Conflict):
                await self._api.delete(names.JOB, namespace, job["name"], uid=job["uid"])

    async def delete(self, child: Child, namespace: str) -> None:
        """Delete a child by its UID: an object that has its name by now stays."""
        with suppress(NotFound, Conflict):
            await self._api.delete(child.kind, namespace, child.name, uid=child.uid)
        self._inventory.ended(child.kind, (namespace, child.name), child.uid)

    def forget(self, key: Key) -> None:
        self._there.pop(key, None)


def _with_replicas(change: Change, scale: Scale) -> Object:
    """Set the replicas of a worker Deployment until the scaler owns them: the API server's default is 1."""
    if change.kind is not names.DEPLOYMENT or "replicas" in change.body["spec"]:
        return change.body
    if change.live is not None and change.live.scaled:
        return change.body
    return {**change.body, "spec": {**change.body["spec"], "replicas": scale.replicas}}


def _applied(body: Object) -> str | None:
    found: str | None = (body["metadata"].get("annotations") or {}).get(names.APPLIED)
    return found
