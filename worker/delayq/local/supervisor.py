"""Start Redis and then all processes of a run; at a signal or a fatal error, stop them in reverse order."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING

from delayq.client.aio import Client
from delayq.errors import DelayQError, InvalidDocument, Unavailable
from delayq.local import listening
from delayq.local.app_schedules import AppSchedules, NotRead, read
from delayq.local.datadir import DataDir, published
from delayq.local.display import display
from delayq.local.embedded import Embedded
from delayq.local.ending import HURRY_SECONDS, end, first, signals
from delayq.local.keeper import Keeper
from delayq.local.plan import SPEC
from delayq.local.relay import Relay
from delayq.local.reload import Reloader
from delayq.local.store import External
from delayq.local.watch import Watch
from delayq.protocol.alarm import Alarm
from delayq.schedules.record import APP, FILE
from delayq.service.counters import ProcessCounters
from delayq.service.loop import Loop

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from delayq.client.recurring import ScheduleChange
    from delayq.local.display import Plain
    from delayq.local.ending import Urgency
    from delayq.local.plan import Plan, Served
    from delayq.local.process import Command
    from delayq.local.reload import Sources

    Store = External | Embedded

log = logging.getLogger(__name__)

LED_SECONDS = 1.0  # for scanners to lead their shards before the event `ready`
PLAIN_SECONDS = 5.0  # for processes to start before the panel's first lines
LAST_LOOK_SECONDS = 2.0
AGAIN_SECONDS = 1.0  # until schedules are written again to a Redis that did not answer
REFUSED_SECONDS = 10.0  # the same after some of them were refused
EXPLAIN_SECONDS = 1.0  # for workers without running handlers to end
HELPERS_SECONDS = 10.0  # for scanners and the reaper to end


def run(plan: Plan, reload: Sources | None = None) -> bool:
    """Run until SIGTERM or Ctrl-C. Return False if a process had to be killed.

    `reload`: start all processes but Redis again when these change.
    """
    shown = display(plan.log_format, plan.log_level)
    listening.addresses(plan.host)  # CannotRun before anything starts
    if plan.redis_url is not None:
        # Each queue has its own login with spec.redis.
        queues = plan.queues if plan.redis_url == SPEC else plan.queues[:1]
        stores = [External(plan.redis_url, each.queue) for each in queues]
        with ExitStack() as stack:
            for path in plan.directories:
                if stores[0].url is not None:
                    stack.enter_context(published(path, stores[0].url))
            return asyncio.run(_run(plan, stores, shown, reload))
    [path] = plan.directories
    directory = DataDir.take(path)
    try:
        return asyncio.run(_run(plan, [Embedded(directory, plan.host)], shown, reload))
    finally:
        directory.release()


async def _run(plan: Plan, stores: Sequence[Store], shown: Plain, reload: Sources | None) -> bool:
    with signals() as urgency:
        try:
            opening = asyncio.ensure_future(asyncio.gather(*(store.open() for store in stores)))
            await first(asyncio.wait({opening}), urgency.stop.wait())
            if not opening.done():
                opening.cancel()
                return True
            redis = list(dict.fromkeys(opening.result()))
            listening.warn(plan.host, stores[0].exposed)
            begin = partial(Run, store=stores[0], shown=shown, urgency=urgency)
            clean = await (_reloading(plan, reload, begin, redis) if reload else begin(plan).serve(redis))
        finally:
            clean_stores = [await store.close(urgency) for store in stores]
        return clean and all(clean_stores)


async def _reloading(
    plan: Plan, sources: Sources, begin: Callable[[Plan], Run], redis: Sequence[str]
) -> bool:
    """Run the processes, and again after each change of the sources after which they can start."""
    run, is_first, clean = begin(plan), True, True
    async with Reloader(sources, run.say) as reloader:
        while True:
            changing = asyncio.create_task(reloader.next_plan(run.url))
            try:
                clean = await run.serve(redis, changing) and clean
            except InvalidDocument as error:  # of a change after the check
                if is_first:
                    raise
                run.say(f"{error}\nnothing runs until the next change")
                await run.until(changing)
            finally:
                changing.cancel()
                await asyncio.gather(changing, return_exceptions=True)
            if run.stops or changing.cancelled():
                return clean
            run, is_first = begin(changing.result()), False


class Run:
    """The processes of one run, all but Redis."""

    def __init__(self, plan: Plan, *, store: Store, shown: Plain, urgency: Urgency) -> None:
        """Prepare the processes without starting them. `store`: the embedded Redis, or any other."""
        self._plan, self._store, self._shown, self._urgency = plan, store, shown, urgency
        self._leaders_changed = Alarm()
        self._relays: dict[str, Relay] = {}
        self._keepers: dict[str, Keeper] = {}
        for name, command in plan.commands(store.url):
            self._add(name, command)

    def _add(self, name: str, command: Command) -> None:
        self._relays[name] = Relay(name, self._shown.write_line, self._leaders_changed.ring)
        self._keepers[name] = Keeper(lambda: command, name, self._relays[name], command.every_seconds)

    @property
    def url(self) -> str | None:
        """The URL of Redis; None: spec.redis."""
        return self._store.url

    @property
    def stops(self) -> bool:
        """Whether a signal ends the run."""
        return self._urgency.stop.is_set()

    def say(self, text: str) -> None:
        """Print lines of the run itself."""
        for line in text.splitlines():
            self._shown.write_line("run", line)

    async def until(self, changing: asyncio.Task[Plan]) -> None:
        """Wait for a signal or a new plan."""
        await first(self._urgency.stop.wait(), asyncio.wait({changing}))

    async def serve(self, redis: Sequence[str], changing: asyncio.Task[Plan] | None = None) -> bool:
        """Run all processes until a signal, a new plan or a fatal error, which is raised.

        `redis` describes each Redis.
        """
        clients = [Client.from_document(each.queue, url=self._store.url) for each in self._plan.queues]
        watch = Watch(self._plan, redis, self._relays, clients=clients, display=self._shown)
        tasks = [keeper.start() for keeper in self._keepers.values()]
        with self._shown:
            async with AsyncExitStack() as stack:
                for client in clients:
                    await stack.enter_async_context(client)
                applying = asyncio.create_task(self._apply_schedules(clients))
                showing = asyncio.create_task(self._show(watch))
                await self._until_ended(tasks, changing)
                explaining = asyncio.create_task(self._explain_wait(changing))
                clean = await self._end(workers=True)
                for helping in (applying, explaining, showing):
                    helping.cancel()
                await asyncio.gather(applying, showing, return_exceptions=True)
                with suppress(TimeoutError):  # Redis may have ended
                    await asyncio.wait_for(watch.step(), LAST_LOOK_SECONDS)
                await watch.close()
                clean = await self._end(workers=False) and clean
        for task in tasks:
            task.result()
        return clean

    async def _apply_schedules(self, clients: Sequence[Client]) -> None:
        """Write the schedules of the files, and those of Apps, and delete what earlier runs wrote and is gone."""
        queues = [*zip(self._plan.queues, clients, strict=True)]
        of_files = (
            self._apply_to(served, client, AppSchedules(FILE, [*served.schedules]), served.source)
            for served, client in queues
        )
        await asyncio.gather(*of_files, *(self._apply_app(served, client) for served, client in queues))

    async def _apply_app(self, served: Served, client: Client) -> None:
        command, name = self._plan.app_command(served, self._store.url), served.document.name
        if command is None:
            return
        try:
            found = await read(command)
        except (NotRead, OSError) as error:
            self.say(f"{name}: the schedules of its App are not stored: {error}")
            return
        done = await self._apply_to(served, client, found)
        if done:
            changes = "; ".join(f"{schedule} {change}" for schedule, change in done.items())
            self.say(f"{name}: schedules of {found.owner.removeprefix(APP)}: {changes}")

    async def _apply_to(
        self, served: Served, client: Client, found: AppSchedules, source: str = ""
    ) -> dict[str, ScheduleChange]:
        """Try until it is done: a full queue has room later, and the owner of a schedule may delete it."""
        said = ""
        while True:
            try:
                return await client.sync_schedules(found.schedules, owner=found.owner, source=source)
            except Unavailable:
                await asyncio.sleep(AGAIN_SECONDS)
            except DelayQError as error:
                if str(error) != said:
                    self.say(f"{served.document.name}: {error}")
                said = str(error)
                await asyncio.sleep(REFUSED_SECONDS)

    async def _until_ended(
        self, tasks: list[asyncio.Task[None]], changing: asyncio.Task[Plan] | None
    ) -> None:
        """Wait for a signal, a new plan, or a process (or Redis) that cannot be restarted."""
        kept = [*tasks, changing, *([self._store.keeper.task] if isinstance(self._store, Embedded) else [])]
        await first(self._urgency.stop.wait(), *(asyncio.wait({task}) for task in kept if task))

    async def _explain_wait(self, changing: asyncio.Task[Plan] | None) -> None:
        """Say what the run waits for, unless the workers end at once."""
        await asyncio.sleep(EXPLAIN_SECONDS)
        waits = f"waits for running handlers, at most {self._plan.drain_seconds:,} s"
        if self.stops and not self._urgency.hurry.is_set():
            self.say(f"stopping: {waits}; Ctrl-C again hands their tasks back")
        elif not self.stops and changing is not None and changing.done():
            self.say(f"reloading: {waits}; Ctrl-C ends the run")

    async def _show(self, watch: Watch) -> None:
        ready = asyncio.create_task(self._ready())
        await asyncio.wait({ready}, timeout=0 if self._shown.live else PLAIN_SECONDS)
        await Loop(watch, ProcessCounters("run", self._plan.name)).run()

    async def _ready(self) -> None:
        """Log `ready` when every process is ready."""
        await asyncio.gather(*(keeper.started.wait() for keeper in self._keepers.values()))
        shards = sum(each.queue.spec.shards for each in self._plan.queues)
        with suppress(TimeoutError):
            async with asyncio.timeout(LED_SECONDS):
                while self._plan.scanners and self._led() < shards:
                    await self._leaders_changed.wait(LED_SECONDS)
        log.info("ready", extra={"fields": {"processes": len(self._keepers)}})

    def _led(self) -> int:
        led = {
            (number, queue, shard)
            for number, helpers in enumerate(self._plan.helpers)
            for name in helpers.scanner_names
            for queue, shards in self._relays[name].led.items()
            for shard in shards
        }
        return len(led)

    async def _end(self, *, workers: bool) -> bool:
        """Stop workers first, so that scanners wake other workers for released tasks. run() stops Redis last."""
        drain_seconds = self._plan.drain_seconds + HURRY_SECONDS
        names = self._plan.workers
        these = [keeper for name, keeper in self._keepers.items() if (name in names) is workers]
        return await end(these, drain_seconds if workers else HELPERS_SECONDS, self._urgency)
