"""The lines that say how a run fares, as text: four, and one of the guard. Not here: how they get onto the terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from delayq.contract import DelayQueue
    from delayq.local.binary import Server
    from delayq.local.lateness import Lateness
    from delayq.protocol.results import Counts

DECIMALS_BELOW_MS, SECONDS_FROM_MS = 100, 10_000


@dataclass(frozen=True)
class Fleet:
    """Which processes there should be, and which of them work."""

    scanners: int
    scanners_up: int
    shards_led: int
    workers: int
    workers_up: int


def embedded_line(server: Server, directory: Path) -> str:
    """`embedded 6.2 (/usr/bin/redis-server), data in .delayq/ (append-only file on)`."""
    return f"embedded {server.label} ({server.path}), data in {directory}/ (append-only file on)"


def scanner_line(fleet: Fleet, shards: int, moving: str = "") -> str:
    """`1 of 1 shards led`. `moving` is what becomes of them."""
    led = ", ".join(filter(None, (f"{fleet.shards_led} of {shards} shards led", moving)))
    if fleet.scanners == 0:
        return "none: workers look for due tasks by themselves"
    return led if fleet.scanners == 1 else f"{fleet.scanners_up} of {fleet.scanners} up, {led}"


def worker_line(fleet: Fleet, queue: DelayQueue) -> str:
    """`32 slots, handler shop.orders:cancel_unpaid`."""
    slots = f"{queue.spec.worker.concurrency:,} slots"
    if fleet.workers == 0:
        return "none: tasks wait"
    if fleet.workers_up < fleet.workers:
        slots = f"{fleet.workers_up} of {fleet.workers} up, {slots}"
    elif fleet.workers > 1:
        slots = f"{fleet.workers} × {slots}"
    return f"{slots}, handler {handler(queue)}"


def guard_line(states: Sequence[str | None], repeated: int) -> str:
    """`serves · 1 seen, and not run again`, or `away: connection refused (postgresql://db/shop)`.

    `states` are those of the workers' guards: why it is away, empty while it serves, None before the first check.
    """
    away = [state for state in states if state]
    seen = f" · {repeated:,} seen, and not run again" if repeated else ""
    if away:
        return f"away: {away[0]}{seen}"
    return f"{'serves' if '' in states else 'not asked yet'}{seen}"


def handler(queue: DelayQueue) -> str:
    """Name the handler as the document does."""
    spec = queue.spec.handler
    if spec.python:
        return spec.python.callable
    return spec.http.url if spec.http else " ".join(spec.exec.command) if spec.exec else ""


def status_line(counts: Counts, lateness: Lateness | None) -> str:
    """`due 0 · scheduled 1,000 · in flight 3 · retrying 12 · dead 1 · late p50 0.8 ms p99 3.1 ms`."""
    line = (
        f"due {counts.due:,} · scheduled {counts.scheduled:,} · in flight {counts.in_flight:,}"
        f" · retrying {counts.retrying:,} · dead {counts.dead:,}"
    )
    if lateness is None:
        return line
    return f"{line} · late p50 {_ms(lateness.p50_ms)} p99 {_ms(lateness.p99_ms)}"


def _ms(value: float) -> str:
    """Three figures at most, from 0.1 ms to hours."""
    if value < DECIMALS_BELOW_MS:
        return f"{value:.1f} ms"
    return f"{value:,.0f} ms" if value < SECONDS_FROM_MS else f"{value / 1000:,.0f} s"


def block(redis: str, scanner: str, worker: str, status: str, *, guard: str | None = None) -> list[str]:
    """Line them up; without a guard, there is no line of it."""
    guarded = [] if guard is None else [f"guard    {guard}"]
    return [f"redis    {redis}", f"scanner  {scanner}", f"worker   {worker}", *guarded, f"         {status}"]
