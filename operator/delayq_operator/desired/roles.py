"""The kinds of pods of a queue: what each runs and reads, which part of the document configures it, how it is probed.

With spec.recovery.check.python, scanners and reapers call the user's code for expired leases. They then run the
workers' image with the workers' pull settings. They get nothing else of the workers' template: put variables, volumes
and sidecars for the check into scanner.template and reaper.template.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from delayq_operator.base import names
from delayq_operator.base.objects import mapping, mappings
from delayq_operator.desired import pod, token
from delayq_operator.desired.api import trusts_accounts
from delayq_operator.desired.pod import Role

if TYPE_CHECKING:
    from delayq.contract import DelayQueue
    from delayq.contract.queue import Spec
    from delayq.kube.objects import Object

    from delayq_operator.base.names import Component
    from delayq_operator.desired.facts import Setting

GRACE_SECONDS: Final = 10  # time to hand over leadership: one round trip; after 10 s it has expired anyway
YOUNG_SECONDS: Final = 2
"""Delay of SIGTERM. Process 1 of a container ignores SIGTERM until Python has set a handler.

A pod that is deleted while it starts would otherwise claim until it is killed. The worker keeps claiming during the
delay.
"""
LEAVE_SECONDS: Final = 5
"""Delay of SIGTERM for the API: until then, nodes may still send it new connections of its Service."""
API_GRACE_SECONDS: Final = 45  # the delay, and requests in progress
PLACEMENT: Final = (
    *("affinity", "dnsConfig", "dnsPolicy", "hostAliases", "imagePullSecrets", "nodeSelector"),
    *("priorityClassName", "runtimeClassName", "schedulerName", "securityContext", "tolerations"),
)
"""Fields of the scanners' pods that say where and how a pod runs, and not what."""
PERIOD_SECONDS: Final = 10
PATIENCE: Final = 6
# A handler that blocks the event loop delays the probe. After a minute, 6 × 10 s, leases of the default
# leaseDurationSeconds have expired: a restart loses nothing.


def scanner(queue: DelayQueue, setting: Setting) -> Role:
    """Return the role of leaders and standbys. To watch DelaySchedules, they have an account of their own, and a token.

    The account is none that the template names: others may use that one, and would get its rights.
    """
    found = _with_check(
        queue,
        setting,
        "scanner",
        mounted=(queue.spec.redis, *_read_by_check(queue.spec)),
        template=queue.spec.scanner.template,
        probes=_of_server(queue),
        # No argument: a check runs in the user's image, whose version may not have it.
        container={"env": [{"name": names.HORIZONS_VARIABLE, "value": str(names.HORIZONS_PORT)}]},
        pod={"topologySpreadConstraints": _spread(queue.metadata.name, "scanner")},
    )
    if queue.spec.schedules is None:
        return found
    fixed = dict.fromkeys(token.PROTECTED, "cannot be set with spec.schedules")
    return replace(found, under=token.template(names.scanner(queue.metadata.name)), protected=fixed)


def worker(queue: DelayQueue, setting: Setting) -> Role:
    """Return the role of workers."""
    spec, section = queue.spec, queue.spec.worker
    # The hook waits only if the grace period leaves time for it after spec.worker.drainTimeoutSeconds.
    waits = section.termination_grace_period_seconds - section.drain_timeout_seconds > YOUNG_SECONDS
    return Role(
        component="worker",
        image=section.image or setting.worker_image,
        resources=pod.OF_CODE,
        grace_seconds=section.termination_grace_period_seconds,
        mounted=(spec.redis, spec.handler, spec.guard),
        template=section.template,
        probes=_of_server(queue),
        container={"lifecycle": {"preStop": {"sleep": {"seconds": YOUNG_SECONDS}}}} if waits else {},
        protected={
            "terminationGracePeriodSeconds": "has a field of its own, spec.worker.terminationGracePeriodSeconds"
        },
    )


def api(queue: DelayQueue, setting: Setting) -> Role:
    """Return the role of API pods. They run where scanners may run: the template of scanners says so for both.

    They run no code of users, so of that template they get no container and no volume.
    """
    spec = queue.spec
    template = mapping(spec.scanner.template)
    placed = {field: value for field, value in mapping(template.get("spec")).items() if field in PLACEMENT}
    under = {"metadata": mapping(template.get("metadata")), "spec": placed}
    port = {"name": names.API_PORT_NAME, "containerPort": names.API_PORT, "protocol": "TCP"}
    return Role(
        component="api",
        image=setting.worker_image,
        resources=pod.OF_API,
        grace_seconds=API_GRACE_SECONDS,
        mounted=(spec.redis, spec.api),
        issuer=trusts_accounts(queue),
        template=None,
        probes=_of_server(queue),
        options=("--api-host", pod.HOST, "--api-port", str(names.API_PORT)),
        under={field: value for field, value in under.items() if value},
        under_of="scanner",
        pod={"topologySpreadConstraints": _spread(queue.metadata.name, "api")},
        container={"lifecycle": {"preStop": {"sleep": {"seconds": LEAVE_SECONDS}}}},
        ports=(port,),
    )


def reaper(queue: DelayQueue, setting: Setting) -> Role:
    """Return the role of reapers, which also delete old rows from the guard's database."""
    ledger = None if queue.spec.guard is None else queue.spec.guard.sql
    return _with_check(
        queue,
        setting,
        "reaper",
        mounted=(queue.spec.redis, ledger, *_read_by_check(queue.spec)),
        template=queue.spec.reaper.template,
        probes=_of_run(queue),
        container={"env": [{"name": names.REAPER_VARIABLE, "value": "1"}]},
        pod={"restartPolicy": "Never"},
    )


def erase(queue: DelayQueue, setting: Setting) -> Role:
    """Return the role of the Job that erases the tasks. Its pod uses the reaper's template."""
    return replace(
        reaper(queue, setting),
        image=setting.worker_image,  # only a Secret of Redis can block the deletion, not user code
        resources=pod.SMALL,
        mounted=(queue.spec.redis,),
        under={},
        container={},
        document=names.DOCUMENT,
        process="erase",
        options=("--yes",),
        probes={},
    )


def _with_check(queue: DelayQueue, setting: Setting, component: Component, **more: Any) -> Role:  # noqa: ANN401
    """Return the common part of scanners and reapers; user code gets more resources. `more`: further fields."""
    check = queue.spec.recovery.check
    calls_code = check is not None and check.python is not None
    image = queue.spec.worker.image if calls_code else None
    return Role(
        component=component,
        image=image or setting.worker_image,
        resources=pod.OF_CODE if calls_code else pod.SMALL,
        grace_seconds=GRACE_SECONDS,
        under=_pulled(queue, component) if image else {},
        **more,
    )


def _pulled(queue: DelayQueue, component: Component) -> Object:
    """Return the image pull settings of the workers' template, for pods of a component."""
    spec = mapping(mapping(queue.spec.worker.template).get("spec"))
    workers = (each for each in mappings(spec.get("containers")) if each.get("name") == "worker")
    policies = [policy for each in workers if (policy := each.get("imagePullPolicy"))]
    found: Object = {"imagePullSecrets": spec["imagePullSecrets"]} if spec.get("imagePullSecrets") else {}
    if policies:
        found["containers"] = [{"name": component, "imagePullPolicy": policies[-1]}]
    return {"spec": found} if found else {}


def _read_by_check(spec: Spec) -> tuple[object, ...]:
    """Return the parts of the document that the check of expired leases needs."""
    check = spec.recovery.check
    return (check, spec.guard) if check is not None and check.guard is not None else (check,)


def _spread(name: str, component: Component) -> list[Object]:
    """Spread pods over nodes and zones if possible (ScheduleAnyway).

    A constraint replaces the scheduler's defaults, so both are named. Pods of the old revision do not count: else the
    last new pod could share a node with another new one.
    """
    selector = {"matchLabels": names.selector(name, component)}
    return [
        {
            "topologyKey": key,
            "maxSkew": 1,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": selector,
            "matchLabelKeys": ["pod-template-hash"],
        }
        for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
    ]


def _of_server(queue: DelayQueue) -> Object:
    """Return the probes of a long-running process: it is ready while every loop works, which needs Redis."""
    return {**_of_run(queue), "readinessProbe": _probe("/readyz", period=5, timeout=3, failures=2)}


def _of_run(queue: DelayQueue) -> Object:
    """Return the probes of a process that ends by itself.

    The startup probe allows five minutes for imports, such as machine-learning libraries. Its period is one second, so
    that a worker becomes ready without delay.

    The liveness probe restarts a process that hangs: without Redis, /healthz stays healthy. It fails when a step takes
    a minute. A step that waits for Redis takes up to timeoutSeconds, at most 300: the probe allows for that, so that
    an outage does not restart pods.
    """
    waiting = -(-queue.spec.redis.timeout_seconds // PERIOD_SECONDS)
    return {
        "startupProbe": _probe("/healthz", period=1, timeout=2, failures=300),
        "livenessProbe": _probe("/healthz", period=PERIOD_SECONDS, timeout=5, failures=PATIENCE + waiting),
    }


def _probe(path: str, *, period: int, timeout: int, failures: int) -> Object:
    return {
        "httpGet": {"path": path, "port": names.METRICS_PORT_NAME, "scheme": "HTTP"},
        "periodSeconds": period,
        "timeoutSeconds": timeout,
        "failureThreshold": failures,
    }
