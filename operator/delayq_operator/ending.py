"""How a DelayQueue ends.

With deletionPolicy Retain it just goes, and its children after it. With Delete, a finalizer keeps it until a Job has
erased its tasks: first those who could add to them stop, then the Job runs.

The finalizer never holds the DelayQueue for want of Redis: setting deletionPolicy to Retain lets it go at any time, and
the condition says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delayq.contract import SpecError, parse

from delayq_operator import names
from delayq_operator.desired.purge import purge_job
from delayq_operator.drift import stamped
from delayq_operator.errors import Invalid, NotFound, Unavailable
from delayq_operator.view import Erasing, View
from delayq_operator.words import listed

if TYPE_CHECKING:
    from delayq_operator.api import Api
    from delayq_operator.apply import Applier
    from delayq_operator.desired.facts import Setting
    from delayq_operator.events import Recorder
    from delayq_operator.facts import Referees
    from delayq_operator.inventory import Child, Children, Pods, Queues
    from delayq_operator.objects import Object
    from delayq_operator.resource import Resource

USERS: Final = ("scanner", "worker", "reaper")
WAY_OUT: Final = "To let it go without: kubectl patch dq {name} -n {namespace} --type merge -p '{patch}'"
RETAIN: Final = '{"spec":{"deletionPolicy":"Retain"}}'


class Ending:
    """Sees to finalizers, and to what they stand for."""

    def __init__(
        self,
        api: Api,
        *,
        queues: Queues,
        children: Children,
        pods: Pods,
        applier: Applier,
        referees: Referees,
        recorder: Recorder,
        setting: Setting,
    ) -> None:
        """Every part is shared with reconciliation."""
        self._api, self._queues, self._children, self._pods = api, queues, children, pods
        self._applier, self._referees, self._recorder = applier, referees, recorder
        self._setting = setting

    async def prepare(self, resource: Resource) -> Resource:
        """Have the finalizer exactly while deletionPolicy is Delete; the DelayQueue as it is then."""
        has = names.PURGE_FINALIZER in resource.finalizers
        if has == resource.erases:
            return resource
        return await self._set(resource, present=resource.erases)

    async def still_there(self, resource: Resource) -> None:
        """Make sure of the DelayQueue before children are made for it: a watch may have missed that it went."""
        try:
            there = await self._api.get(names.DELAY_QUEUE, resource.key.namespace, resource.key.name)
        except NotFound:
            self._queues.gone(resource.key, resource.uid)
            raise Unavailable("the DelayQueue is gone") from None
        if there["metadata"]["uid"] != resource.uid or "deletionTimestamp" in there["metadata"]:
            self._queues.seen(there)
            raise Unavailable("the DelayQueue was deleted meanwhile")

    async def end(self, resource: Resource) -> View | None:
        """Bring the end of a deleted DelayQueue forward; what there is to report, None when it may go."""
        if names.PURGE_FINALIZER not in resource.finalizers:
            return None
        if not resource.erases:
            await self._set(resource, present=False)
            return None
        erasing = await self._erase(resource)
        if erasing.done:
            self._recorder.post(resource, "Erased", "all tasks are erased")
            await self._set(resource, present=False)
            return None
        return View(resource=resource, erasing=erasing)

    async def _erase(self, resource: Resource) -> Erasing:
        try:
            queue = parse(resource.document)
        except SpecError:
            return _failed(resource, "The spec is invalid, so nobody knows which tasks to erase.")
        children = self._children.of(resource.key)
        users = [child for child in children.values() if child.kind in (names.DEPLOYMENT, names.CRON_JOB)]
        for child in users:
            await self._applier.delete(child, resource.key.namespace)
        stopping = [pod.name for pod in self._pods.of(resource.key) if pod.component in USERS]
        if stopping:  # a worker that stops hands its tasks back, and must not do so after the erasing
            return Erasing(message=f"Waiting until {listed(stopping)} stopped.")
        facts = await self._referees.facts(resource, queue, children)
        job = children.get(("Job", names.purge(resource.key.name)))
        if job is not None:
            return _progress(resource, job)
        return await self._start(resource, stamped(purge_job(queue, self._setting, facts)))

    async def _start(self, resource: Resource, job: Object) -> Erasing:
        try:
            made = await self._api.apply(names.JOB, job, manager=names.OPERATOR)
        except Invalid as error:
            return _failed(resource, f"The Job that erases the tasks was refused: {error.message}.")
        self._children.seen(names.JOB, made)
        self._recorder.post(resource, "Erasing", f"Job {job['metadata']['name']} erases all tasks")
        return Erasing(message=f"Job {job['metadata']['name']} erases the tasks.")

    async def _set(self, resource: Resource, *, present: bool) -> Resource:
        others = [name for name in resource.finalizers if name != names.PURGE_FINALIZER]
        wanted = [*others, names.PURGE_FINALIZER] if present else others
        patch: Object = {"metadata": {"resourceVersion": resource.version, "finalizers": wanted}}
        try:
            body = await self._api.merge(names.DELAY_QUEUE, resource.key.namespace, resource.key.name, patch)
        except NotFound:
            return resource
        if not resource.deleting:
            self._queues.seen(body, ours=True)
        return self._queues.get(resource.key) or resource


def _progress(resource: Resource, job: Child) -> Erasing:
    status, name = job.body.get("status", {}), job.name
    for condition in status.get("conditions") or ():
        if condition["status"] == "True" and condition["type"] == "Complete":
            return Erasing(done=True)
        if condition["status"] == "True" and condition["type"] == "Failed":
            why = condition.get("message") or condition.get("reason", "")
            return _failed(
                resource, f"Job {name} could not erase the tasks: {why}. Delete the Job to try again."
            )
    tries = status.get("failed", 0)
    if tries:
        return _failed(
            resource, f"Job {name} failed {tries} times and tries again; see kubectl logs job/{name}."
        )
    return Erasing(message=f"Job {name} erases the tasks.")


def _failed(resource: Resource, what: str) -> Erasing:
    way_out = WAY_OUT.format(name=resource.key.name, namespace=resource.key.namespace, patch=RETAIN)
    return Erasing(failed=True, message=f"{what} {way_out}")
