"""F: what a scanner and a worker cost while nothing is due, with 100,000 tasks pending.

INFO commandstats cannot tell who sent what, so the commands are counted by MONITOR, which names the client of each and
marks those that a script called. At a command a second that costs nothing.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from delayq import NewTask

from benchmarks.figures import Figure, at_most
from benchmarks.stage import PAYLOAD, cpu_seconds

if TYPE_CHECKING:
    from benchmarks.stage import Stage

PENDING, DAY_MS = 100_000, 86_400_000
SECONDS = 30.0
SETTLE_SECONDS = 1.0  # for what processes do once, at their start
PER_30_SECONDS, PER_SECOND = 0.05, 1.0  # the promises


async def run(stage: Stage) -> list[Figure]:
    """Let both idle, and count."""
    stage.empty()
    seconds = SECONDS / 5 if stage.quick else SECONDS
    document = stage.document("noop")
    async with stage.client() as client:
        await client.schedule_many(NewTask(PAYLOAD, delay_ms=DAY_MS + at) for at in range(PENDING))
    with stage.server.client() as redis, stage.running("scanner", document) as scanner:
        await asyncio.sleep(SETTLE_SECONDS)
        scanners = _addresses(redis)
        with stage.running("worker", document) as worker:
            await asyncio.sleep(SETTLE_SECONDS)
            before = cpu_seconds(scanner), cpu_seconds(worker)
            sent = await _watch(redis, seconds)
            cpu = cpu_seconds(scanner) - before[0], cpu_seconds(worker) - before[1]
    by_scanner = sum(count for client, count in sent.items() if client in scanners)
    by_worker = sum(count for client, count in sent.items() if client not in scanners and client != "lua")
    return [
        _cpu("scanner", cpu[0] * SECONDS / seconds),
        _cpu("worker", cpu[1] * SECONDS / seconds),
        _sent("commands of the scanner", by_scanner / seconds, promised=True),
        _sent("commands of the worker", by_worker / seconds, promised=True),
        _sent("commands inside scripts", sent["lua"] / seconds, promised=False),
    ]


def _addresses(redis: Any) -> set[str]:  # noqa: ANN401 -- its stubs mix in async
    return {client["addr"] for client in redis.client_list()}


async def _watch(redis: Any, seconds: float) -> Counter[str]:  # noqa: ANN401 -- as above
    """Count commands by the address of their client; those of scripts have the address `lua`."""
    sent: Counter[str] = Counter()
    with redis.monitor() as monitor:
        listener = threading.Thread(target=_listen, args=(monitor, sent), daemon=True)
        listener.start()
        await asyncio.sleep(seconds)
        seen = sent.copy()
        monitor.connection.disconnect()
    return seen


def _listen(monitor: Any, sent: Counter[str]) -> None:  # noqa: ANN401 -- as above
    try:
        for command in monitor.listen():
            if command["client_type"] == "lua":
                sent["lua"] += 1
            else:
                sent[f"{command['client_address']}:{command['client_port']}"] += 1
    except Exception:  # noqa: BLE001, S110 -- closed under our feet is how the listening ends
        pass


def _cpu(process: str, seconds: float) -> Figure:
    return Figure(
        bench="F",
        name=f"CPU of the {process} in 30 s",
        unit="CPU-s",
        runs=(seconds,),
        target=at_most(PER_30_SECONDS),
    )


def _sent(name: str, per_second: float, *, promised: bool) -> Figure:
    target = at_most(PER_SECOND) if promised else None
    return Figure(bench="F", name=name, unit="1/s", runs=(per_second,), target=target)
