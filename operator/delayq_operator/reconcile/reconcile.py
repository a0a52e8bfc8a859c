"""One reconciliation: parse → observe → decide → desired objects → apply → report. It is level-triggered."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from delayq.contract import SpecError, parse
from delayq.kube.errors import Conflict, KubernetesError, Unavailable

from delayq_operator.base import metrics, names
from delayq_operator.base.work_queue import LATER_SECONDS, SOON_SECONDS
from delayq_operator.cache.rivals import CURE, Stance, claim_in
from delayq_operator.cache.workload import POD_SECONDS, podless_run_seconds, workload
from delayq_operator.desired import desired
from delayq_operator.desired.api import trusts_accounts
from delayq_operator.desired.policy import of_namespace, of_templates
from delayq_operator.reconcile.drift import stamped
from delayq_operator.reconcile.facts import unserved
from delayq_operator.reconcile.plan import Plan, claim, plan
from delayq_operator.reconcile.redis_change import refusal
from delayq_operator.scaling import scaling
from delayq_operator.status.view import View

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delayq.contract import DelayQueue
    from delayq.kube.objects import Kind, Object

    from delayq_operator.base.names import Key
    from delayq_operator.cache.inventory import Inventory
    from delayq_operator.cache.pod import Pod
    from delayq_operator.cache.resource import Resource
    from delayq_operator.desired.facts import Facts, Setting
    from delayq_operator.polling.scanner_poller import ScannerPoller
    from delayq_operator.reconcile.apply import Applier, Outcome
    from delayq_operator.reconcile.deletion import Deletion
    from delayq_operator.reconcile.facts import FactSource
    from delayq_operator.reconcile.report import Reporter
    from delayq_operator.reconcile.scaler import Scaler
    from delayq_operator.scaling.scaling import Scale

log = logging.getLogger(__name__)

RETRY_SECONDS: Final[dict[str, float | None]] = {
    "done": None,
    "invalid": None,  # until the spec is edited
    "unavailable": SOON_SECONDS,
    "waiting": LATER_SECONDS,
    "refused": LATER_SECONDS,
    "error": LATER_SECONDS,
    "bug": LATER_SECONDS,
}
"""Result of a reconciliation → longest backoff before the next try; None: no retry."""


class Reconciler:
    """Reconciles DelayQueues."""

    def __init__(
        self,
        inventory: Inventory,
        *,
        facts: FactSource,
        applier: Applier,
        scraper: ScannerPoller,
        reporter: Reporter,
        deletion: Deletion,
        scaler: Scaler,
        setting: Setting,
    ) -> None:
        """Every part is shared by all queues."""
        self._inventory, self._queues = inventory, inventory.queues
        self._children, self._pods = inventory.children, inventory.pods
        self._facts, self._applier, self._scraper = facts, applier, scraper
        self._reporter, self._deletion, self._setting = reporter, deletion, setting
        self._scaler, self._autoscaler, self._rivals = scaler, scraper.autoscaler, inventory.rivals

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile one DelayQueue. Return the longest backoff before the next try; None if done."""
        started = time.monotonic()
        try:
            result = await self._reconcile(key)
        except (Conflict, Unavailable) as error:
            result = "unavailable"
            log.info("reconcile_deferred", extra={"fields": {"queue": str(key), "error": str(error)}})
        except KubernetesError as error:
            result = "error"
            log.warning("reconcile_failed", extra={"fields": {"queue": str(key), "error": str(error)}})
        except Exception:  # a bug must not stop the other queues
            result = "bug"
            log.exception("reconcile_crashed", extra={"fields": {"queue": str(key)}})
        metrics.RECONCILES.labels(result).inc()
        metrics.RECONCILE_SECONDS.observe(time.monotonic() - started)
        return RETRY_SECONDS[result]

    async def _reconcile(self, key: Key) -> str:
        resource = self._queues.get(key)
        if resource is None:
            await self._deletion.abandon(key)
            self._forget(key)
            await self._reporter.unserved(key, None)
            return "done"
        if self._stance(resource) is Stance.YIELD:
            return "waiting"
        return await (self._end(resource) if resource.deleting else self._make(resource))

    def _stance(self, resource: Resource) -> Stance:
        if resource.left_alone or resource.deleting:  # deletion writes no claim; two operators may advance it
            return Stance.SERVE
        key = resource.key
        child = self._children.get(key, names.CONFIG_MAP, names.config(key.name))
        found = self._rivals.stance(key, claim_in(child.body if child else None), time.time())
        fields = {"queue": str(key), "other": "", "hint": CURE}
        if other := self._rivals.yielded_to.pop(key, ""):
            log.warning("queue_yielded", extra={"fields": fields | {"other": other}})
        if other := self._rivals.claimed_by.pop(key, ""):
            log.warning("queue_contested", extra={"fields": fields | {"other": other}})
        return found

    async def _end(self, resource: Resource) -> str:
        view = await self._deletion.finalize(resource)
        if view is None:
            return "done"
        await self._reporter.report(view)
        return "refused" if view.erasing is not None and view.erasing.failed else "waiting"

    async def _make(self, resource: Resource) -> str:
        resource = await self._deletion.prepare(resource)
        if leaving := await self._deletion.stop_earlier_job(resource):
            await self._report(View(resource=resource, leaving=tuple(leaving)))
            return "waiting"
        return await self._follow(resource)

    async def _follow(self, resource: Resource) -> str:
        """Reconcile the children if the spec is valid and allowed."""
        key, policy = resource.key, self._setting.policy
        try:
            queue = parse(resource.document)
            facts = self._facts.of(resource, self._children.of(key))
            wanted = [stamped(body) for body in desired(queue, self._setting, facts)]
        except SpecError as error:
            await self._report(View(resource=resource, problems=error.problems))
            return "invalid"
        if forbidden := (*of_namespace(key.namespace, policy), *of_templates(wanted, policy)):
            return await self._keep(View(resource=resource, queue=queue, forbidden=forbidden), queue)
        served = self._children.owned(resource, names.CONFIG_MAP, names.config(key.name))
        if why := refusal(resource, queue, served, self._scraper.backlog(key)):
            await self._keep(View(resource=resource, queue=queue, redis_not_empty=why), queue)
            return "waiting"
        return await self._realise(resource, queue, facts, wanted)

    async def _keep(self, view: View, queue: DelayQueue) -> str:
        """Leave the children as they are, but scale the existing workers."""
        scale = self._scale(view.resource, queue)
        view = await self._carry_out(replace(view, scale=scale), Plan(), scale)
        return "refused" if view.failures else "invalid"

    async def _carry_out(self, view: View, todo: Plan, scale: Scale) -> View:
        """Apply the plan unless reconciliation is suspended, and report."""
        if not view.resource.left_alone:
            outcome = await self._apply(view.resource, todo, scale)
            view = replace(view, failures=tuple(outcome.failures), taken=tuple(outcome.taken))
        await self._report(view)
        return view

    def _scale(self, resource: Resource, queue: DelayQueue) -> Scale:
        worker = self._children.get(resource.key, names.DEPLOYMENT, names.worker(resource.key.name))
        current = worker.body["spec"].get("replicas") if worker else None
        decision = self._autoscaler.decision(resource.key, time.time())
        down = self._scraper.workers.seen(resource.key).guard_down
        command = self._scraper.command(resource.key)
        return scaling.scale(
            queue, current, decision, left_alone=resource.left_alone, guard_down=down, command=command
        )

    async def _realise(
        self, resource: Resource, queue: DelayQueue, facts: Facts, wanted: list[Object]
    ) -> str:
        children = self._children.of(resource.key)
        todo = plan(wanted, children, resource.uid)
        scale = self._scale(resource, queue)
        if self._rivals.claims(resource.key):
            await self._applier.apply(resource, claim(todo), scale)
            return "waiting"
        view = View(
            resource=resource,
            queue=queue,
            scale=scale,
            rival=self._rivals.seen(resource.key, time.time()),
            unserved=unserved(queue, facts),
            foreign=todo.foreign,
            leaving=tuple(f"{child.kind.kind} {child.name}" for child in todo.leaving),
        )
        view = await self._carry_out(view, todo, scale)
        await self._reporter.unserved(resource.key, queue, scanners=view.scanner.ready)
        if view.failures or view.taken:
            return "refused"
        # A new run of the reaper may have no pod yet: check again.
        starting = (self._podless_run_seconds(resource.key) or POD_SECONDS) < POD_SECONDS
        return "waiting" if view.leaving or starting else "done"

    def _podless_run_seconds(self, key: Key) -> float | None:
        reaper = self._children.get(key, names.CRON_JOB, names.reaper(key.name))
        return podless_run_seconds(reaper.body, self._pods.newest_run(key), time.time()) if reaper else None

    async def _apply(self, resource: Resource, todo: Plan, scale: Scale) -> Outcome:
        # A child without an owner may be a remainder of this DelayQueue after `kubectl delete --cascade=orphan`.
        if any(change.live is None or change.live.owner_uid is None for change in todo.changes):
            await self._deletion.confirm_exists(resource)
        outcome = await self._applier.apply(resource, todo, scale)
        worker = self._children.owned(resource, names.DEPLOYMENT, names.worker(resource.key.name))
        if worker is not None:
            await self._scaler.scale(resource, worker, scale, outcome)
        await self._end_runs(resource.key, todo, outcome)
        self._reporter.post_events(resource, outcome)
        return outcome

    async def _end_runs(self, key: Key, todo: Plan, outcome: Outcome) -> None:
        """Delete reaper runs whose pods do not start, after a change of the CronJob: they block the next run."""
        stuck = any(pod.component == "reaper" and pod.trouble for pod in self._pods.of(key))
        for change in todo.changes if stuck and not outcome.failures else ():
            if change.kind == names.CRON_JOB and change.live is not None:
                await self._applier.end_runs(change.live, key.namespace)

    async def _report(self, view: View) -> None:
        """Report with the state of children and scanners after the apply."""
        key, pods = view.resource.key, self._pods.of(view.resource.key)

        def body(kind: Kind, name: str) -> Object | None:
            child = self._children.get(key, kind, name)
            return child.body if child else None

        backlog = self._scraper.backlog(key)
        reaper = (body(names.CRON_JOB, names.reaper(key.name)) or {}).get("status") or {}
        seen = replace(
            view,
            scanner=workload(body(names.DEPLOYMENT, names.scanner(key.name))),
            worker=workload(body(names.DEPLOYMENT, names.worker(key.name))),
            api=workload(body(names.DEPLOYMENT, names.api(key.name))),
            issuer_unknown=self._issuer_unknown(view, body(names.CONFIG_MAP, names.api(key.name))),
            troubles=_troubles(pods, reaper),
            stuck_workers=sum(pod.component == "worker" and bool(pod.trouble) for pod in pods),
            waiting={pod.component: pod.waiting for pod in pods if pod.waiting},
            podless_run=(self._podless_run_seconds(key) or 0.0) >= POD_SECONDS,
            reaper=reaper,
            backlog=backlog,
            command=self._scraper.command(key),
            sharing=self._inventory.named(backlog.conflicts if backlog else (), key.namespace),
            unread=self._scraper.read_error(key),
            workers=self._scraper.workers.seen(key),
            observed=self._autoscaler.observed(key, time.time()),
        )
        await self._reporter.report(seen)

    def _issuer_unknown(self, view: View, stored: Object | None) -> str:
        needed = view.queue is not None and trusts_accounts(view.queue)
        return self._facts.issuer.error or "they were not read yet" if needed and stored is None else ""

    def _forget(self, key: Key) -> None:
        for part in (self._reporter, self._scraper, self._scaler, self._applier, self._rivals):
            part.forget(key)


def _troubles(pods: Iterable[Pod], reaper: Object) -> dict[str, str]:
    """Return component → pod trouble. A failed run of the reaper counts until a later run succeeds."""
    good = reaper.get("lastSuccessfulTime", "")
    found = {}
    for pod in pods:
        past = pod.failed and (pod.component != "reaper" or pod.created <= good)
        if pod.trouble and not past:
            found[pod.component] = pod.trouble
    return found
