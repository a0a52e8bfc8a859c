"""Startup, readiness and liveness probes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delayq_operator.base import names

if TYPE_CHECKING:
    from delayq.contract import DelayQueue

    from delayq_operator.desired.child import Object

_PERIOD_SECONDS: Final = 10
_PATIENCE: Final = 6
# A handler that blocks the event loop delays the probe. After a minute, 6 × 10 s, leases of the default
# leaseDurationSeconds have expired: a restart loses nothing.


def of_server(queue: DelayQueue) -> Object:
    """Return the probes of a long-running process: it is ready while every loop works, which needs Redis."""
    return {**of_run(queue), "readinessProbe": _get("/readyz", period=5, timeout=3, failures=2)}


def of_run(queue: DelayQueue) -> Object:
    """Return the probes of a process that ends by itself.

    The startup probe allows five minutes for imports, such as machine-learning libraries. Its period is one second, so
    that a worker becomes ready without delay.

    The liveness probe restarts a process that hangs: without Redis, /healthz stays healthy. It fails when a step takes
    a minute. A step that waits for Redis takes up to timeoutSeconds, at most 300: the probe allows for that, so that
    an outage does not restart pods.
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
