"""What clients, workers and scanners do in a run: each an endless, seeded sequence of calls on few tasks.

They use the product's own code: `Client`, and for calls that a worker or scanner makes only after a fault, `Commands`
over their connection. services.py has whole workers and scanners.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from delayq import Client, SyncClient
from delayq.connection import AsyncConnection
from delayq.errors import DelayQError
from delayq.protocol.commands import Commands
from delayq.protocol.results import LostTask, Verdict
from delayq.worker.claim_tickets import ClaimTickets

from tests.histories.plan import (
    INDEXES,
    KNOWN,
    MAX_ATTEMPTS,
    MAX_CRASHES,
    QUEUE,
    TIMEOUT_SECONDS,
    Act,
    Plan,
    acting,
)

if TYPE_CHECKING:
    from delayq.protocol.commands import Call
    from delayq.protocol.results import Claimed


THREADED: Final = frozenset(
    {
        *("schedule", "get", "cancel", "reschedule", "dlq_redrive", "dlq_purge"),
        *("cancel_many", "count_many", "reschedule_many"),
    }
)


class InThreads(SyncClient):
    """The client for code without an event loop, whose calls run in threads here."""

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401
        found = super().__getattribute__(name)
        return partial(asyncio.to_thread, found) if name in THREADED else found

    async def __aenter__(self) -> Self:
        return self.open()

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)


class Caller:
    """Calls a client's methods."""

    verbs: Final = (
        *("schedule",) * 8,
        *("get", "get", "cancel", "reschedule", "reschedule", "redrive", "purge"),
        *("cancel_many", "count_many", "reschedule_many"),
    )

    def __init__(self, plan: Plan, name: str, *, blocking: bool = False) -> None:
        self.plan, self.random, self.name, self.count = plan, plan.random(name), name, 0
        self.client: Any = (InThreads if blocking else Client)(plan.address, queue=QUEUE)

    async def run(self) -> None:
        async with self.client:
            await acting(self.plan, self.random, self.act)

    async def act(self) -> object:  # noqa: PLR0911 -- one for each verb
        task_id, kind, slot = self.plan.pick(self.random)
        verb = self.random.choice(self.plan.verbs or self.verbs)
        client, random = self.client, self.random
        match verb.partition(" ")[0]:
            case "schedule":
                return await self.schedule(task_id, kind, slot, verb.partition(" ")[2])
            case "cancel":
                return await client.cancel(task_id, running=random.random() < 0.5)
            case "cancel_running":
                return await client.cancel(task_id, running=True)
            case "reschedule":
                return await client.reschedule(task_id, **self.moment())
            case "redrive":
                return await client.dlq_redrive([task_id], rate_per_second=random.choice((None, 5)))
            case "purge":
                return await client.dlq_purge([task_id])
            case "cancel_many" | "count_many":
                return await getattr(client, verb)(tag=task_id)
            case "reschedule_many":
                return await client.reschedule_many(tag=task_id, shift_ms=random.choice((-200, 50, 300)))
        return await getattr(client, verb)(task_id)

    async def schedule(self, task_id: str, kind: str | None, slot: int, mode: str) -> object:
        self.count += 1
        random = self.random
        mode = mode or random.choice(("reject", "keep", "replace", "replace", "debounce"))
        fate = random.choice(("done", "done", "fails", "slow", "buried"))
        return await self.client.schedule(
            {"n": f"{self.name}.{self.count}", "fate": fate},
            **self.moment(),
            task_id=task_id,
            if_exists=mode,
            kind=kind,
            deadline_ms=400 if slot % 5 == 2 else None,
            debounce_ms=random.randrange(50, 500) if mode == "debounce" else None,
            tags=[task_id],
        )

    def moment(self) -> dict[str, Any]:
        random, now = (
            self.random,
            int(time.monotonic() * 1000 + self.plan.ahead_ms),
        )  # not by a clock that is wrong
        delays = [{"delay_ms": 0}, {"delay_ms": random.randrange(400)}, {"delay_ms": random.randrange(2000)}]
        return random.choice([*delays, *delays, {"due_ms": now + random.randrange(-500, 800)}])


class Holder:
    """Claims and settles as a worker does, keeps leases for too long, and settles with leases that it lost."""

    settles: Final = (
        *("ack",) * 5,
        *("extend",) * 3,
        "retry",
        "retry",
        "bury",
        "release",
        "park",
        "forget",
        "end_cancelled",
    )

    def __init__(self, plan: Plan, name: str) -> None:
        self.plan, self.random = plan, plan.random(name)
        self.commands, self.connection = Commands(QUEUE), AsyncConnection(plan.address)
        self.tickets, self.held = ClaimTickets(), deque[tuple[bytes, int]](maxlen=12)
        self.lease_ms = self.random.randrange(*plan.lease_ms)

    async def run(self) -> None:
        await acting(self.plan, self.random, self.act)
        await self.connection.close()

    async def act(self) -> object:
        claims = not self.held or self.random.random() < 0.5
        step: Act = self.unclaim if self.tickets.lost else self.claim if claims else self.settle
        return await step()

    async def unclaim(self) -> None:
        call = self.commands.unclaim(0, self.tickets.claimer, self.tickets.lost[0], self.lease_ms)
        await self.connection.one(call)
        self.tickets.returned(0)

    async def claim(self) -> None:
        sent, random = time.monotonic(), self.random
        ticket = self.tickets.ticket(sent, TIMEOUT_SECONDS / 2)
        verb = self.commands.isolate if random.random() < 0.4 else self.commands.claim
        try:
            claimed: Claimed = await self.connection.one(
                verb(0, random.randrange(1, 4), self.lease_ms, ticket=ticket)
            )
        except DelayQError:
            self.tickets.failed(0, ticket)
            raise
        self.tickets.replied(claimed.now_ms, sent)
        self.held.extend((lease.member, lease.task.due_ms) for lease in claimed.leases)

    async def settle(self) -> object:
        """Mostly the lease that was claimed last; else any of the last ones."""
        random, held = self.random, self.held
        at = random.randrange(len(held)) if random.random() < 0.4 else len(held) - 1
        member, due = held[at]
        verb = random.choice(self.plan.settles or self.settles)
        held.rotate(1)
        match verb:
            case "forget":
                return None
            case "extend":
                return await self.connection.one(self.commands.extend(0, [member], self.lease_ms))
            case "ack":
                return await self.connection.one(self.commands.ack(0, [member]))
            case "end_cancelled":
                return await self.connection.one(self.commands.end_cancelled(0, [member]))
        more: dict[str, tuple[Any, ...]] = {
            "retry": (random.choice((0, 50, 300)), random.choice((1, 1, 0)), f"e{random.randrange(1000)}"),
            "bury": (f"b{random.randrange(1000)}",),
            "release": (due,),
            "park": ("",),
        }
        settles = [member, *more[verb]]
        if verb == "retry":
            return await self.connection.one(self.commands.retry(0, settles, max_attempts=MAX_ATTEMPTS))
        call: Call[Any] = getattr(self.commands, verb)(0, settles)
        return await self.connection.one(call)


class Keeper:
    """Does what scanners and reapers do, without their patience."""

    keeps: Final = (
        *("reclaim", "reclaim", "expire", "wake", "unpark", "unpark_all", "recover"),
        *("audit_size", "reconcile", "reconcile"),
    )

    def __init__(self, plan: Plan, name: str) -> None:
        self.plan, self.random, self.name = plan, plan.random(name), name
        self.commands, self.connection = Commands(QUEUE), AsyncConnection(plan.address)

    async def run(self) -> None:
        await acting(self.plan, self.random, self.act)
        await self.connection.close()

    async def act(self) -> None:
        one, commands, (_, kind, _) = self.connection.one, self.commands, self.plan.pick(self.random)
        match self.random.choice(self.plan.keeps or self.keeps):
            case "reclaim":
                await one(commands.reclaim(0, max_crashes=MAX_CRASHES))
            case "unpark":
                await one(commands.unpark(0, [(kind or KNOWN, None)]))
            case "unpark_all":
                await one(commands.unpark(0, None))
            case "recover":
                await self.recover()
            case "reconcile":
                await self.reconcile()
            case verb:
                call: Call[Any] = getattr(commands, verb)(0)
                await one(call)

    async def recover(self) -> None:
        """As a recovery check does whose answer takes a while."""
        one, commands, random = self.connection.one, self.commands, self.random
        page = await one(commands.expired(0, offset=0, limit=4))
        for member in page.members[:1]:
            task_id = member.rpartition(b":")[0].decode()
            locked = await one(commands.lock(task_id, self.name, 500, lock="recovery_lock"))
            seen = None if locked else await one(commands.examine(0, member))
            await asyncio.sleep(random.random() * 0.1)
            if seen:
                options: dict[str, str | int] = {"reason": "why", "wait_ms": 200, "failed": 0}
                options |= {"expiry_ms": seen.expiry_ms, "max_crashes": MAX_CRASHES}
                call = commands.recover(0, member, self.name, random.choice(list(Verdict)), **options)
                await one(call)

    async def reconcile(self) -> None:
        """The repair of indexes, which has nothing to repair."""
        page = await self.connection.one(self.commands.reconcile(0, self.random.choice(INDEXES)))
        if page.homeless:
            lost = [LostTask(raw) for raw in page.homeless]
            await self.connection.one(self.commands.restore_orphans(0, lost))
