"""Which Secrets and ConfigMaps of the document each process reads: only those that it uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq_operator.desired.mounts import mounted_keys

if TYPE_CHECKING:
    from delayq.contract.queue import Spec

    from delayq_operator.base.names import Component
    from delayq_operator.desired.mounts import Keys


def by_scanner(spec: Spec) -> Keys:
    """Name what it takes to reach Redis, and to ask about tasks whose leases ran out."""
    return mounted_keys(spec.redis, *_to_ask(spec))


def by_reaper(spec: Spec) -> Keys:
    """Name the same, and the guard's database: finished tasks are forgotten there."""
    ledger = None if spec.guard is None else spec.guard.sql
    return mounted_keys(spec.redis, ledger, *_to_ask(spec))


def by_erase(spec: Spec) -> Keys:
    """Name what it takes to reach Redis."""
    return mounted_keys(spec.redis)


def by_worker(spec: Spec) -> Keys:
    """Name what it takes to reach Redis, to call the handler, and to guard it."""
    return mounted_keys(spec.redis, spec.handler, spec.guard)


def at_start_by(component: Component, spec: Spec) -> Keys:
    """Name what a process reads once, when it starts. All others are read again, and rotate under running pods.

    Those of spec.redis are read at each connect, and signing keys and a database's URL when their file has changed.
    """
    return mounted_keys(None if component != "worker" or spec.guard is None else spec.guard.redlock)


def by_anybody(spec: Spec) -> Keys:
    """Name everything that pods of the queue need."""
    return mounted_keys(spec.redis, spec.handler, spec.guard, spec.recovery.check)


def _to_ask(spec: Spec) -> tuple[object, ...]:
    check = spec.recovery.check
    if check is None:
        return ()
    return (check,) if check.guard is None else (check, spec.guard)
