"""Format the lines of a run's status panel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq.contract.metrics import LATENESS_BUCKETS
from delayq.scaling.sentences import counted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from delayq.contract import DelayQueue, Handler, KindHandler
    from delayq.local.binary import Server
    from delayq.local.relay import Relay
    from delayq.protocol.results import Counts
    from delayq.protocol.shard_map import ShardMap

DECIMALS_BELOW_MS, SECONDS_FROM_MS = 100, 10_000


def embedded_line(server: Server, directory: Path) -> str:
    """`embedded Redis 8.4.1 (/usr/bin/redis-server), data in .delayq/ (append-only file on)`."""
    return f"embedded {server.label} ({server.path}), data in {directory}/ (append-only file on)"


def scanner_line(scanners: Sequence[Relay], shards: int, shard_map: ShardMap, *, queue: str = "") -> str:
    """`1 of 1 shard led`. `queue`: as in Relay.led."""
    if not scanners:
        return "none: workers poll for due tasks"
    shards_led = set().union(*(each.led[queue] for each in scanners)) & set(range(shards))
    led = f"{len(shards_led)} of {counted(shards, 'shard')} led{_moving(shard_map)}"
    return led if len(scanners) == 1 else f"{_up(scanners)} of {len(scanners)} up, {led}"


def _moving(shard_map: ShardMap) -> str:
    """`, moving 3 → 6`; empty without resharding."""
    if shard_map.settled:
        return ""
    if shard_map.moves:
        return f", moving {shard_map.was} → {shard_map.target}"
    return f", about to move {shard_map.shards} → {shard_map.target}"


def worker_line(workers: Sequence[Relay], queue: DelayQueue) -> str:
    """`32 slots, handler shop.orders:cancel_unpaid`."""
    slots = counted(queue.spec.worker.concurrency, "slot")
    if not workers:
        return "none: tasks wait"
    if _up(workers) < len(workers):
        slots = f"{_up(workers)} of {len(workers)} up, {slots}"
    elif len(workers) > 1:
        slots = f"{len(workers)} × {slots}"
    hold = f", claims no tasks ({queue.spec.suspension})" if queue.spec.suspend else ""
    return f"{slots}, handler {handler(queue)}{hold}"


def _up(processes: Sequence[Relay]) -> int:
    return sum(each.port is not None for each in processes)


def api_line(api: Relay | None) -> str:
    """`http://127.0.0.1:8090`. `api`: the process of the API; None: it is not installed."""
    if api is None:
        return "none: install delayq[api]"
    return "starting" if api.port is None or api.url is None else api.url


def guard_line(workers: Sequence[Relay]) -> str:
    """`serves · 1 seen, and not run again`, or `away: connection refused (postgresql://db/shop)`."""
    states, repeated = [each.guard for each in workers], sum(each.repeated for each in workers)
    away = [state for state in states if state]
    seen = f" · {repeated:,} seen, and not run again" if repeated else ""
    if away:
        return f"away: {away[0]}{seen}"
    return f"{'serves' if '' in states else 'not checked yet'}{seen}"


def handler(queue: DelayQueue) -> str:
    """Return the handler's callable, URL or command, and those of single kinds: `shop.tasks:app, push: https://push`."""
    spec = queue.spec.handler
    kinds = ("", *(f"{kind}: " for kind in spec.kinds or ()))
    return ", ".join(kind + _target(each) for kind, each in zip(kinds, spec.each, strict=True))


def _target(spec: Handler | KindHandler) -> str:
    if spec.python:
        return spec.python.target or ""
    return spec.http.url if spec.http else " ".join(spec.exec.command) if spec.exec else ""


def status_line(counts: Counts, lateness_ms: tuple[float, float] | None) -> str:
    """`due 0 · scheduled 1,000 · in flight 3 · retrying 12 · dead 1 · late p50 0.8 ms p99 3.1 ms`."""
    line = (
        f"due {counts.due:,} · scheduled {counts.scheduled:,} · in flight {counts.in_flight:,}"
        f" · retrying {counts.retrying:,} · dead {counts.dead:,}"
    )
    if counts.parked:
        line += f" · parked {counts.parked:,}"
    if counts.suspension is not None:
        line += " · suspended by delayq suspend"
    if lateness_ms is None:
        return line
    return f"{line} · late p50 {_ms(lateness_ms[0])} p99 {_ms(lateness_ms[1])}"


def _ms(value: float) -> str:
    """`0.8 ms`, `≤ 300 s`: from 10 s on, the upper bound of a bucket."""
    if value < DECIMALS_BELOW_MS:
        return f"{value:.1f} ms"
    if value < SECONDS_FROM_MS:
        return f"{value:,.0f} ms"
    return f"> {LATENESS_BUCKETS[-1]:,.0f} s" if value == float("inf") else f"≤ {value / 1000:,.0f} s"
