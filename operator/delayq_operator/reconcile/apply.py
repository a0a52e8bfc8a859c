"""Carries out a plan: applies, scales and prunes children. Returns what it did and what failed.

Every write is a server-side apply with the operator's field manager: fields of other managers stay, and two operators
write the same. An object that the informer cache lacks is read before its first write: one of another owner is kept.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from delayq.scaling import recorded

from delayq_operator.base import names
from delayq_operator.base.errors import Conflict, Denied, Failed, Invalid, NotFound
from delayq_operator.desired.checksum import changes
from delayq_operator.reconcile.drift import differs
from delayq_operator.reconcile.plan import inputs_of

if TYPE_CHECKING:
    from delayq_operator.base.objects import Object
    from delayq_operator.cache.children import Child, Children
    from delayq_operator.cache.resource import Resource
    from delayq_operator.kube.api import Api
    from delayq_operator.reconcile.plan import Change, Plan
    from delayq_operator.scaling.scaling import Scale

REFUSED: Final = (Invalid, Denied, NotFound, Failed)
"""Errors that concern one child only: they are reported and retried.

Not Conflict: it means that the informer cache is stale, and the next reconciliation reads it again.
"""


UP: Final = "ScaledUp"
DOWN: Final = "ScaledDown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """A change of the number of workers."""

    reason: str
    """Reason of the event: UP or DOWN."""
    message: str
    record: str = ""
    """The inputs of the decision; empty if the operator did not decide."""


@dataclass(slots=True)
class Outcome:
    """The result of a plan."""

    created: list[str] = field(default_factory=list)
    repaired: list[str] = field(default_factory=list)
    rolled: list[str] = field(default_factory=list)
    """Sentences: which pods are replaced, and why."""
    scaled: Scaled | None = None
    pruned: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    """Objects of other owners that have the name of a child."""
    failures: list[str] = field(default_factory=list)


class Applier:
    """Writes the children of DelayQueues."""

    def __init__(self, api: Api, children: Children) -> None:
        """Responses of the API server update `children` at once, ahead of the watch."""
        self._api, self._children = api, children

    async def apply(self, resource: Resource, plan: Plan, scale: Scale) -> Outcome:
        """Carry out the plan. The outcome lists rejected writes; Unavailable if the API server does not answer."""
        outcome = Outcome()
        for change in plan.changes:
            await self._apply(resource, change, scale, outcome)
        for child in plan.prune:
            label = f"{child.kind.kind} {child.name}"
            try:
                await self.delete(child, resource.key.namespace)
            except REFUSED as error:
                outcome.failures.append(f"{label}: {error.message}.")
            else:
                outcome.pruned.append(label)
        return outcome

    async def _apply(self, resource: Resource, change: Change, scale: Scale, outcome: Outcome) -> None:
        label = f"{change.kind.kind} {change.name}"
        try:
            there = None if change.live is not None else await self._there(resource, change)
            if there is not None and _of_others(there, resource):
                outcome.taken.append(label)
                return
            if there is not None and differs(change.body, there) is None:
                return  # its watch has not delivered it yet
            with self._children.written(change.kind, (resource.key.namespace, change.name)) as take:
                wanted = _with_replicas(change, scale)
                take(await self._api.apply(change.kind, wanted, manager=names.OPERATOR))
        except REFUSED as error:
            outcome.failures.append(f"{label}: {error.message}.")
            return
        if change.live is None:
            again = self._children.found_again(change.kind, (resource.key.namespace, change.name))
            (outcome.repaired if again else outcome.created).append(label)
            return
        reasons = _rolled(change)
        if reasons:
            outcome.rolled.append(f"{label}: {', '.join(reasons)}")
        elif not _respecified(change):
            outcome.repaired.append(f"{label} ({change.why})")

    async def _there(self, resource: Resource, change: Change) -> Object | None:
        """Read an object that the informer cache lacks; None if it does not exist."""
        try:
            return await self._api.get(change.kind, resource.key.namespace, change.name)
        except NotFound:
            return None

    async def scale(self, resource: Resource, worker: Child, scale: Scale, outcome: Outcome) -> None:
        """Write the replicas of the worker Deployment with the scaler's own field manager."""
        asked = worker.body["spec"].get("replicas")
        if worker.scaled and asked == scale.replicas:
            return
        wanted = {
            "apiVersion": names.DEPLOYMENT.api_version,
            "kind": names.DEPLOYMENT.kind,
            "metadata": {"name": worker.name, "namespace": resource.key.namespace, "uid": worker.uid},
            "spec": {"replicas": scale.replicas},
        }
        try:
            with self._children.written(names.DEPLOYMENT, (resource.key.namespace, worker.name)) as take:
                take(await self._api.apply(names.DEPLOYMENT, wanted, manager=names.SCALER))
        except REFUSED as error:
            outcome.failures.append(f"replicas of Deployment {worker.name}: {error.message}.")
            return
        if asked != scale.replicas:
            outcome.scaled = _scaled(asked, scale)

    async def end_runs(self, reaper: Child, namespace: str) -> None:
        """Delete the active Jobs of a CronJob: concurrencyPolicy Forbid lets no other run start before they end."""
        for job in reaper.body.get("status", {}).get("active") or ():
            with suppress(NotFound, Conflict):
                await self._api.delete(names.JOB, namespace, job["name"], uid=job["uid"])

    async def delete(self, child: Child, namespace: str) -> None:
        """Delete a child by its UID: an object that has its name by now stays."""
        with suppress(NotFound, Conflict):
            await self._api.delete(child.kind, namespace, child.name, uid=child.uid)
        self._children.gone(child.kind, (namespace, child.name), ours=True)


def _scaled(before: int | None, scale: Scale) -> Scaled:
    reason = UP if before is None or scale.replicas > before else DOWN
    if scale.decision is None:
        return Scaled(reason=reason, message=f"{before} → {scale.message}")
    return Scaled(reason=reason, message=scale.message, record=recorded(scale.decision))


def _of_others(there: Object, resource: Resource) -> bool:
    """Whether no owner reference of an object names this DelayQueue."""
    owners = there["metadata"].get("ownerReferences") or ()
    return all(owner["uid"] != resource.uid for owner in owners)


def _with_replicas(change: Change, scale: Scale) -> Object:
    """Set the replicas of a worker Deployment until the scaler owns them: the API server's default is 1."""
    if change.kind is not names.DEPLOYMENT or "replicas" in change.body["spec"]:
        return change.body
    if change.live is not None and change.live.scaled:
        return change.body
    return {**change.body, "spec": {**change.body["spec"], "replicas": scale.replicas}}


def _rolled(change: Change) -> list[str]:
    """Return why applying this change replaces pods; empty if it does not."""
    if change.kind is not names.DEPLOYMENT or change.live is None:
        return []
    return changes(inputs_of(change.live.body), inputs_of(change.body))


def _respecified(change: Change) -> bool:
    """Whether the desired object differs from the last applied one; if not, another client changed the live one."""
    if change.live is None:
        return True
    return _applied(change.live.body) not in (None, _applied(change.body))


def _applied(body: Object) -> str | None:
    found: str | None = (body["metadata"].get("annotations") or {}).get(names.APPLIED)
    return found
