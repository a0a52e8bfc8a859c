"""Deletion of a DelayQueue.

With deletionPolicy Retain, Kubernetes deletes it and then its children. With Delete, a finalizer keeps it: the operator
stops all pods that can write tasks, then a Job erases the tasks, then the operator removes the finalizer.

Setting deletionPolicy to Retain removes the finalizer at any time, also without Redis. The finalizer does not block the
deletion of a namespace either, because no Job can run there.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from delayq.contract import SpecError, parse
from delayq.contract.outages import remedy
from delayq.kube.errors import Conflict, NotFound, Unavailable
from delayq.kube.objects import name_of
from delayq.scaling.sentences import counted

from delayq_operator.base import names
from delayq_operator.base.phrases import listed
from delayq_operator.cache.resource import Resource
from delayq_operator.cache.workload import POD_SECONDS, podless_seconds
from delayq_operator.desired import erase_job
from delayq_operator.desired.policy import of_namespace, of_templates
from delayq_operator.reconcile.apply import REFUSED
from delayq_operator.reconcile.drift import stamped
from delayq_operator.reconcile.redis_change import left
from delayq_operator.status.view import Erasing, View

if TYPE_CHECKING:
    from delayq.contract import DelayQueue
    from delayq.kube.objects import Object

    from delayq_operator.base.names import Key
    from delayq_operator.cache.children import Child
    from delayq_operator.cache.inventory import Inventory
    from delayq_operator.desired.facts import Setting
    from delayq_operator.kube.api import Api
    from delayq_operator.polling.scanner_poller import ScannerPoller
    from delayq_operator.reconcile.apply import Applier
    from delayq_operator.reconcile.facts import FactSource
    from delayq_operator.scrape.backlog import Backlog
    from delayq_operator.status.events import Recorder

log = logging.getLogger(__name__)

USERS: Final = ("scanner", "worker", "reaper", "api")
WAY_OUT: Final = (
    "To delete it without erasing: kubectl patch dq {name} -n {namespace} --type merge -p '{patch}'"
)
SKIPPED: Final = (
    "its namespace is being deleted, where no Job can run: its tasks stay in Redis. To erase them, run delayq erase "
    "with its document"
)
ELSEWHERE: Final = (
    "Nothing is erased: the tasks are in the Redis that spec.redis named before. Name that one again, or abandon them: "
    "kubectl annotate dq {name} -n {namespace} " + f"{names.ABANDON_TASKS}={{address}}."
)
RELEASE_TRIES: Final = 5
RETAIN: Final = '{"spec":{"deletionPolicy":"Retain"}}'


class Deletion:
    """Sets and removes finalizers, and erases tasks."""

    def __init__(
        self,
        api: Api,
        *,
        inventory: Inventory,
        scraper: ScannerPoller,
        applier: Applier,
        facts: FactSource,
        recorder: Recorder,
        setting: Setting,
    ) -> None:
        """Every part is shared with reconciliation."""
        self._api, self._setting, self._inventory = api, setting, inventory
        self._queues, self._children, self._pods = inventory.queues, inventory.children, inventory.pods
        self._applier, self._facts, self._recorder = applier, facts, recorder
        self._scraper = scraper

    async def prepare(self, resource: Resource) -> Resource:
        """Set the finalizer while deletionPolicy is Delete, else remove it. Return the updated DelayQueue."""
        has = names.ERASE_FINALIZER in resource.finalizers
        if has == resource.erases or (not has and await self._api.terminating(resource.key.namespace)):
            return resource
        return await self._set(resource, present=resource.erases)

    async def stop_earlier_job(self, resource: Resource) -> list[str]:
        """Delete the erase Job of an earlier DelayQueue of this name. Return its pods that have yet to stop."""
        await self.abandon(resource.key)
        pods = [pod for pod in self._pods.of(resource.key) if pod.component == "erase" and not pod.failed]
        return [f"Pod {pod.name}" for pod in pods]

    async def abandon(self, key: Key) -> None:
        """Delete the Job that erases a queue, if there is one."""
        job = self._children.get(key, names.JOB, names.erase(key.name))
        if job is not None and job.ours:
            await self._applier.delete(job, key.namespace)

    async def confirm_exists(self, resource: Resource) -> None:
        """Read the DelayQueue before children are created: the watch may have missed its deletion."""
        try:
            there = await self._api.get(names.DELAY_QUEUE, resource.key.namespace, resource.key.name)
        except NotFound:
            self._inventory.ended(names.DELAY_QUEUE, name_of(resource.body), resource.uid)
            raise Unavailable("the DelayQueue is gone") from None
        if there["metadata"]["uid"] != resource.uid or "deletionTimestamp" in there["metadata"]:
            self._inventory.seen(names.DELAY_QUEUE, there)
            raise Unavailable("the DelayQueue was deleted meanwhile")

    async def finalize(self, resource: Resource) -> View | None:
        """Advance the deletion of a DelayQueue. Return the view to report; None once the finalizer is removed."""
        if names.ERASE_FINALIZER not in resource.finalizers:
            return None
        if resource.erases:
            view = await self._erase(resource)
            if view.erasing is not None and view.erasing.done:
                self._recorder.post(resource, "Erased", "all tasks are erased")
            elif await self._api.terminating(resource.key.namespace):
                log.warning("erase_skipped", extra={"fields": {"queue": str(resource.key), "hint": SKIPPED}})
            else:
                return view
        await self.abandon(resource.key)  # the Job has no owner: delete it before the finalizer
        await self._set(resource, present=False)
        return None

    async def release(self, namespace: str) -> None:
        """Remove the finalizers in the operator's namespace if it is being deleted; called on shutdown.

        Kubernetes deletes pods before DelayQueues: no operator will run there later.
        """
        here = [key for key in self._queues.keys() if key.namespace == namespace]  # noqa: SIM118 -- a method
        found = [resource for key in here if (resource := self._queues.get(key)) is not None]
        kept = [each.key for each in found if names.ERASE_FINALIZER in each.finalizers]
        if kept and await self._api.terminating(namespace):
            for key in kept:
                log.warning("erase_skipped", extra={"fields": {"queue": str(key), "hint": SKIPPED}})
                await self._release(key)

    async def _release(self, key: Key) -> None:
        """Read the DelayQueue first: watches have stopped."""
        for _ in range(RELEASE_TRIES):
            with suppress(Conflict, NotFound):
                found = await self._api.get(names.DELAY_QUEUE, key.namespace, key.name)
                await self._set(Resource(found), present=False)
                return

    async def _erase(self, resource: Resource) -> View:
        if forbidden := of_namespace(resource.key.namespace, self._setting.policy):
            # The Job would mount Secrets and run containers that the author of the DelayQueue names.
            erasing = _failed(resource, f"Nothing is erased: the namespace {forbidden[0].message}.")
            return View(resource=resource, erasing=erasing, forbidden=forbidden)
        served = self._children.owned(resource, names.CONFIG_MAP, names.config(resource.key.name))
        if old := left(resource, served):
            why = ELSEWHERE.format(name=resource.key.name, namespace=resource.key.namespace, address=old)
            return View(resource=resource, erasing=_failed(resource, why))
        try:
            queue = parse(resource.document)
            facts = self._facts.of(resource, self._children.of(resource.key))
            job = stamped(erase_job(queue, self._setting, facts))
            if forbidden := of_templates([job], self._setting.policy):
                raise SpecError(forbidden)  # noqa: TRY301 -- the same end as a template that cannot be merged
        except SpecError as error:
            erasing = _failed(resource, "The spec is invalid, so the tasks cannot be erased: correct it.")
            return View(resource=resource, erasing=erasing, problems=error.problems)
        erasing = await self._advance(resource, queue, job)
        return View(resource=resource, erasing=erasing)

    async def _advance(self, resource: Resource, queue: DelayQueue, wanted: Object) -> Erasing:
        key = resource.key
        backlog = self._scraper.backlog(key)
        if others := self._inventory.named(backlog.conflicts if backlog else (), key.namespace):
            # By the scanners, while they run; then by the Job, which refuses.
            what = f"Nothing is erased: the same tasks belong to {listed(others)}, too."
            return _failed(resource, what)
        for child in self._children.of(key).values():
            if child.kind in (names.DEPLOYMENT, names.CRON_JOB) and child.belongs_to(resource.uid):
                await self._applier.delete(child, key.namespace)
        stopping = [pod.name for pod in self._pods.of(key) if pod.component in USERS and not pod.failed]
        if stopping:  # a stopping worker releases its tasks, which must happen before the erasure
            message = (
                f"Waiting until {listed(stopping)} stopped. If the node is lost: kubectl delete pod --force."
            )
            return Erasing(message=message)
        job = self._children.get(key, names.JOB, names.erase(key.name))
        if job is None:
            return await self._start(resource, wanted)
        if not job.belongs_to(resource.uid):
            what = f"Job {job.name} exists and is not managed by the operator: rename or delete it."
            return _failed(resource, what)
        if (job.body["metadata"].get("annotations") or {}).get(names.OWNER_UID) == resource.uid:
            return self._progress(resource, queue, job)
        # The Job belongs to an earlier DelayQueue of this name.
        await self._applier.delete(job, key.namespace)
        return Erasing(message=f"Waiting until an earlier Job {job.name} is gone.")

    async def _start(self, resource: Resource, job: Object) -> Erasing:
        try:
            self._inventory.seen(names.JOB, await self._api.apply(names.JOB, job, manager=names.OPERATOR))
        except REFUSED as error:
            return _failed(
                resource,
                f"The API server rejects the Job that erases the tasks: {error.message.rstrip('.')}.",
            )
        self._recorder.post(resource, "Erasing", f"Job {job['metadata']['name']} erases all tasks")
        return Erasing(message=f"Job {job['metadata']['name']} erases the tasks.")

    def _progress(self, resource: Resource, queue: DelayQueue, job: Child) -> Erasing:
        outcome, erased = _outcome(job), self._scraper.erased_shards(resource.key)
        if outcome == "Complete":
            return Erasing(done=True)
        shards = max(queue.spec.shards, erased)  # resharding may have left tasks in more shards
        made = Erasing(
            message=f"Job {job.name} erases the tasks: {erased} of {counted(shards, 'shard')} done."
        )
        troubles = [
            pod.trouble for pod in self._pods.of(resource.key) if pod.component == "erase" and pod.trouble
        ]
        trouble = _trouble(job, outcome, f"{troubles[-1]}." if troubles else "")
        backlog = self._scraper.backlog(resource.key)
        if not trouble and (outage := outage_of(job, backlog)):
            trouble = f"Job {job.name} cannot reach Redis, and tries again: {remedy(outage)}."
        if backlog is not None and backlog.missing:
            trouble = (
                f"Job {job.name} waits for {listed([str(each) for each in backlog.missing])}: create it."
            )
        if trouble:
            made = _failed(resource, trouble)
        return replace(made, erased_shards=erased, shards=shards)

    async def _set(self, resource: Resource, *, present: bool) -> Resource:
        try:
            there = await self._whole(resource)
            others = [name for name in there.finalizers if name != names.ERASE_FINALIZER]
            wanted = [*others, names.ERASE_FINALIZER] if present else others
            patch: Object = {
                "metadata": {"uid": resource.uid, "resourceVersion": there.version, "finalizers": wanted}
            }
            body = await self._api.merge(names.DELAY_QUEUE, resource.key.namespace, resource.key.name, patch)
        except NotFound:
            self._inventory.ended(names.DELAY_QUEUE, name_of(resource.body), resource.uid)
            return resource
        self._inventory.wrote(body)
        if resource.deleting and not wanted:
            # It is deleted: do not finalize it again before its watch event arrives.
            self._inventory.ended(names.DELAY_QUEUE, name_of(resource.body), resource.uid)
        return self._queues.get(resource.key) or resource

    async def _whole(self, resource: Resource) -> Resource:
        """Return a DelayQueue with all its finalizers: an outline lacks those of others."""
        if not resource.outline:
            return resource
        return Resource(await self._api.get(names.DELAY_QUEUE, resource.key.namespace, resource.key.name))


def _outcome(job: Child) -> str:
    """Return Complete or Failed; empty while the Job runs."""
    for condition in job.body.get("status", {}).get("conditions") or ():
        if condition["status"] == "True" and condition["type"] in ("Complete", "Failed"):
            return str(condition["type"])
    return ""


def outage_of(job: Child, backlog: Backlog | None) -> str:
    """Return why a Job does not reach Redis, as its pod reports: older readings are of scanners, which have stopped."""
    created = datetime.fromisoformat(job.body["metadata"]["creationTimestamp"]).timestamp()  # whole seconds
    return backlog.outage if backlog is not None and backlog.read_at >= created + 1 else ""


def _trouble(job: Child, outcome: str, pod_trouble: str) -> str:
    """Return what keeps a Job from erasing; empty if nothing does. `pod_trouble` is the last message of its pod."""
    if outcome == "Failed":
        return f"Job {job.name} could not erase the tasks. {pod_trouble} Delete the Job to try again."
    if tries := job.body.get("status", {}).get("failed", 0):
        return f"Job {job.name} failed {counted(tries, 'time')} and tries again. {pod_trouble}"
    if pod_trouble:
        return f"The pod of Job {job.name} does not run. {pod_trouble}"
    if (podless_seconds(job.body, time.time()) or 0.0) >= POD_SECONDS:
        return (
            f"Job {job.name} has no pod: the API server rejects it. kubectl describe job {job.name} says why."
        )
    return ""


def _failed(resource: Resource, what: str) -> Erasing:
    way_out = WAY_OUT.format(name=resource.key.name, namespace=resource.key.namespace, patch=RETAIN)
    return Erasing(failed=True, message=f"{what} {way_out}")
