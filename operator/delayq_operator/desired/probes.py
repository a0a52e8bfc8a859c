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
    """Probes of what runs until it is stopped: it is ready while every loop works, which takes Redis."""
    return {**of_run(queue), "readinessProbe": _get("/readyz", period=5, timeout=3, failures=2)}


def of_run(queue: DelayQueue) -> Object:
    """Probes of a process that ends by itself.

    Startup allows five minutes for imports: a handler with a machine-learning library takes its time. It is asked every
    second, so that a worker started just in time is used just in time.

    Liveness restarts what hangs, and only that: without Redis, /healthz stays good. It turns bad when a step takes a
    minute, and a step that waits for Redis takes up to timeoutSeconds, at most 300: the probe waits that much longer,
    so that an outage does not restart pods.
    """
    waiting = -(-queue.spec.redis.connection.timeout_seconds // _PERIOD_SECONDS)
    return {
        "startupProbe": _get("/healthz", period=1, timeout=2, failures=300),
        "livenessProbe": _get("/healthz", period=_PERIOD_SECONDS, timeout=5, failures=_PATIENCE + waiting),
    }


def _get(path: str, *, period: int, timeout: int, failures: int) -> Object:
    return {
        "httpGet": {"path": path, "port": names.METRICS_PORT_NAME, "scheme": "HTTP"},
        "periodSeconds": period,
        "timeoutSeconds": timeout,
        "failureThreshold": failures,
    }
