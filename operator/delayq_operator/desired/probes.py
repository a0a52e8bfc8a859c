"""When Kubernetes restarts a container, and when it calls a pod ready."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delayq_operator.base import names

if TYPE_CHECKING:
    from delayq.contract import DelayQueue

    from delayq_operator.desired.child import Object

_PERIOD_SECONDS: Final = 10
_PATIENCE: Final = 6
# A handler that blocks the event loop keeps the probe waiting. A minute of that, 6 × 10 s, and the leases of a
# queue with the default leaseDurationSeconds ran out long ago: nothing is lost by a restart.


def of_server(queue: DelayQueue) -> Object:
    """Probes of what runs until it is stopped."""
    return {
        "startupProbe": startup(),
        "livenessProbe": liveness(queue),
        "readinessProbe": readiness(),
    }


def of_run(queue: DelayQueue) -> Object:
    """Probes of a process that ends by itself, without readiness."""
    return {"startupProbe": startup(), "livenessProbe": liveness(queue)}


def startup() -> Object:
    """Allow five minutes for imports: a handler with a machine-learning library takes its time.

    Asked every second, so that a worker started just in time is used just in time.
    """
    return {**_get("/healthz"), "periodSeconds": 1, "timeoutSeconds": 2, "failureThreshold": 300}


def liveness(queue: DelayQueue) -> Object:
    """Restart what hangs, and only that: without Redis, /healthz stays good.

    It turns bad when a step takes a minute, and a step that waits for Redis takes up to timeoutSeconds, at most 300:
    the probe waits that much longer, so that an outage does not restart pods.
    """
    waiting = -(-queue.spec.redis.connection.timeout_seconds // _PERIOD_SECONDS)
    return {
        **_get("/healthz"),
        "periodSeconds": _PERIOD_SECONDS,
        "timeoutSeconds": 5,
        "failureThreshold": _PATIENCE + waiting,
    }


def readiness() -> Object:
    """Call a pod ready while every loop works, which takes Redis."""
    return {**_get("/readyz"), "periodSeconds": 5, "timeoutSeconds": 3, "failureThreshold": 2}


def _get(path: str) -> Object:
    return {"httpGet": {"path": path, "port": names.METRICS_PORT_NAME, "scheme": "HTTP"}}
