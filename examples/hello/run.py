"""1,000 orders, 1,000 delayed tasks, a real Redis: `make run`. Ends with 0 only if every order is accounted for.

Early and late are by Redis' clock. The handler notes the time as its first act; Redis runs on this machine and tells
its time from the same kernel clock, which is checked below, so the two may be compared to the microsecond.
"""

from __future__ import annotations

import random
import shutil
import sys
import time

import ledger  # type: ignore[import-not-found]  # beside this file: not where mypy looks
from delayq import NewTask, SyncClient
from runner import DATA, NotRunningError, Runner  # type: ignore[import-not-found]  # the same

ORDERS = range(1, 1001)
LONGEST_DELAY_MS = 10_000
PATIENCE_SECONDS = 60
LOOK_SECONDS = 0.1


def main() -> int:
    """Run the example; return the exit code."""
    print(
        "A shop cancels orders that are not paid in time. 1,000 orders, each with a task due within 10 s.\n"
        "100 are paid before that, 100 meet a payment gateway that is down once, 20 have a damaged card.\n"
    )
    ledger.write(ORDERS)
    shutil.rmtree(DATA, ignore_errors=True)  # each run of the example begins with an empty queue
    try:
        with Runner() as runner, SyncClient(runner.url, queue="orders") as queue:
            check_clock(queue)
            schedule(queue)
            settled = wait_until_settled(queue, runner)
            dead = {row.id for row in queue.dlq_list()}
    except NotRunningError as error:
        print(f"delayq run did not work:\n{error}", file=sys.stderr)
        return 1
    return report(ledger.account(ORDERS), dead, settled=settled)


def check_clock(queue: SyncClient) -> None:
    """Make sure that Redis' clock is ours, or what is measured means nothing."""
    before_ms = time.time_ns() // 1_000_000
    redis_ms = queue.counts().now_ms
    if not before_ms <= redis_ms <= time.time_ns() // 1_000_000:
        raise NotRunningError("Redis' clock is not this machine's, or it was set just now: run me again")


def schedule(queue: SyncClient) -> None:
    """Give every order its task."""
    dice = random.Random(7)
    queue.schedule_many(
        NewTask({"order": n}, delay_ms=dice.randint(0, LONGEST_DELAY_MS), task_id=ledger.task_id(n))
        for n in ORDERS
    )


def wait_until_settled(queue: SyncClient, runner: Runner) -> bool:
    """Wait until no task is left but dead letters."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline and runner.alive:
        counts = queue.counts()
        if counts.waiting + counts.retrying + counts.in_flight == 0:
            return True
        time.sleep(LOOK_SECONDS)
    return False


def report(found: ledger.Account, dead: set[str], *, settled: bool) -> int:
    """Say what came of it, in words and in one line for scripts."""
    for line in found.wrong[:10]:
        print(f"wrong: {line}", file=sys.stderr)
    if dead != found.dead:
        print(f"wrong: dead letters differ in {sorted(dead ^ found.dead)[:10]}", file=sys.stderr)
    good = settled and not found.wrong and not found.early and dead == found.dead
    print(AGREES.format(dead=len(dead)) if good else DISAGREES)
    print(
        f"handled={found.handled} retried={found.retried} dead={len(dead)} early={found.early} "
        f"p50_ms={found.quantile_ms(50):.1f} p99_ms={found.quantile_ms(99):.1f}"
    )
    return 0 if good else 1


DISAGREES = "\nThe shop's database does not agree with what was scheduled: see above.\n"
AGREES = """
The shop's database agrees: every order was handled exactly as it should be, {dead} of them are dead letters,
and no run started before it was due. handled counts orders, retried counts runs after the first, and p50 and p99
are how late runs started.

Next: run the queue, and talk to it from a second terminal. The dead letters of this run are still there.
  .venv/bin/delayq run examples/hello/queue.yaml
  .venv/bin/delayq status examples/hello/queue.yaml
  .venv/bin/delayq dlq groups examples/hello/queue.yaml
  .venv/bin/delayq schedule examples/hello/queue.yaml '{{"order": 1}}' --in 3s
"""

if __name__ == "__main__":
    sys.exit(main())
