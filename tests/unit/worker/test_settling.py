"""From a handler's end to its settlement: after any exception, the slot is free and exactly one thing is settled."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest
from delayq.errors import Bury, Retry
from delayq.protocol.results import Lease
from delayq.service.counters import Buckets
from delayq.worker.settlements import of_refused
from delayq.worker.slots import Running

from tests.unit.handlers.support import a_task, document
from tests.unit.worker.support import Worker

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

    from delayq.worker.executor import HandlerCall
    from delayq.worker.slots import CancelReason, Running

DELIVERY = {"backoff": {"delaysSeconds": [7, 100, 1000]}, "handlerTimeoutSeconds": 60}
QUEUE = document({"python": {"callable": "shop:handle"}}, delivery=DELIVERY)
BACKOFF_MS = 7_000


def started(call: HandlerCall, *, failures: int = 0) -> tuple[Worker, Running]:
    """A worker that has claimed one task, whose handler has not begun."""
    worker = Worker(QUEUE, call)
    [running] = worker.claimed(Lease(a_task(), 0, b"order-7:41", failures))
    return worker, running


async def outcome(call: HandlerCall, *, failures: int = 0) -> tuple[str, tuple[object, ...]]:
    worker, _ = started(call, failures=failures)
    [settlement] = await worker.settled()
    return settlement.verb, settlement.arguments


def raising(make: Callable[[], BaseException]) -> HandlerCall:
    async def call(_: object) -> None:
        raise make()

    return call


class Hasty(Retry):
    """Forgets its base."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class Forged(Retry):
    """Sets what Retry itself would refuse."""

    def __init__(self, delay_ms: object, charge: object) -> None:
        super().__init__("soon")
        self.delay_ms, self.charge = cast("int", delay_ms), cast("bool", charge)


class Mute(Exception):
    def __str__(self) -> str:
        raise SystemExit


class MuteBury(Bury):
    def __str__(self) -> str:
        raise self.args[0]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Hasty("no base"),
        lambda: Forged(None, None),
        lambda: Forged(None, 1),
        lambda: Forged(-1, True),  # noqa: FBT003
        lambda: Forged(2.5, True),  # noqa: FBT003
        lambda: Forged(10**20, True),  # noqa: FBT003
        lambda: Retry("x", charge=cast("bool", None)),
        lambda: Retry("x", delay_ms=10**20),
        Mute,
        lambda: MuteBury(SystemExit),
    ],
)
async def test_an_exception_that_cannot_be_read_is_a_plain_failure(make: Callable[[], BaseException]) -> None:
    """Neither the slot nor the lease is lost, and the attempt is charged after the queue's own backoff."""
    verb, (delay_ms, charge, text) = await outcome(raising(make))
    assert (verb, delay_ms, charge) == ("retry", BACKOFF_MS, 1)
    assert type(text) is str
    assert text
    buried = await outcome(raising(lambda: MuteBury(RuntimeError)))
    assert buried == ("bury", ("(its message cannot be shown: RuntimeError)",))


SAID = (
    "waits for a worker that its arguments fit, for {} s of 3600 s so far, and for {} s more: order: a number"
)


@pytest.mark.parametrize(
    ("entry", "waited_s"),
    [
        ("", 0),
        (f"0 0 {SAID.format(60, 30)}", 90),
        (f"3 1 @1700000000000 ~1:41:7 {SAID.format(3000, 600)}", None),
        (f"1 0 ValueError: {SAID.format(3000, 600)}", 0),
        (f"1 0 @1700000000000 ~1:41:7 quoted: {SAID.format(3000, 600)}", 0),
    ],
)
def test_only_an_error_that_begins_so_says_for_how_long_a_task_has_waited(
    entry: str, waited_s: int | None
) -> None:
    """The exception of a handler may quote the error of another task."""
    found = of_refused(Lease(a_task(), 0, b"order-7:41", entry=entry.encode()), "why")
    assert (found is None) == (waited_s is None)
    if found is not None and waited_s is not None:
        assert found[1] == SAID.format(waited_s, max(30, waited_s)).replace("order: a number", "why")


async def test_a_bug_of_ours_costs_no_slot_either(monkeypatch: pytest.MonkeyPatch) -> None:
    worker, _ = started(raising(ValueError))
    monkeypatch.setattr(Buckets, "observe", broken)
    [settlement] = await worker.settled()
    assert settlement.verb == "retry"


def broken(*_: object) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("begun", [True, False], ids=["", "before its first step"])
@pytest.mark.parametrize(
    ("reason", "raised", "verb", "text"),
    [
        ("drain", ValueError("closing"), "release", None),
        ("drain", SystemExit(1), "release", None),
        ("drain", asyncio.CancelledError(), "release", None),
        ("drain", None, "release", None),
        ("drain", Mute(), "release", None),
        ("drain", Forged(-1, None), "release", None),
        ("drain", Retry("half done"), "retry", "half done"),
        ("drain", Bury("never"), "bury", "never"),
        ("lease_lost", ValueError("closing"), None, None),
        ("lease_lost", Retry("half done"), None, None),
        ("lease_lost", None, None, None),
        ("timeout", ValueError("closing"), "retry", "handlerTimeoutSeconds (60)"),
        ("timeout", Retry("half done", charge=False), "retry", "handlerTimeoutSeconds (60)"),
        ("timeout", None, "retry", "handlerTimeoutSeconds (60)"),
    ],
)
async def test_the_reason_of_a_cancellation_decides_not_the_handlers_reaction(
    *,
    reason: CancelReason,
    raised: BaseException | None,
    verb: str | None,
    text: str | None,
    begun: bool,
) -> None:
    """A drain charges no attempt unless the handler itself says so."""
    began = asyncio.Event()

    async def call(_: object) -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if raised is not None:
                raise raised from None

    worker, running = started(call)
    if begun:
        await began.wait()
    elif reason == "drain":
        verb, text = "release", None
    running.cancel(reason)
    settlements = await worker.settled()
    assert [each.verb for each in settlements] == ([verb] if verb else [])
    if text:
        assert text in str(settlements[0].arguments[-1])
    if reason == "timeout":
        assert settlements[0].arguments[:2] == (BACKOFF_MS, 1)


def places(record: logging.LogRecord) -> list[str]:
    """The innermost frame of each exception in a logged traceback."""
    return [each["frames"][-1] for each in vars(record)["fields"].get("traceback", [])]


async def looks_up(_: object) -> None:
    raise LookupError("no such order")


async def asks_again(_: object) -> None:
    raise Retry("not yet")


async def gives_up(_: object) -> None:
    try:
        await looks_up(None)
    except LookupError as error:
        raise Bury("never") from error


@pytest.mark.parametrize(
    ("call", "event", "found"),
    [
        (looks_up, "handler_failed", ["looks_up"]),
        (gives_up, "handler_buried", ["looks_up"]),
        (asks_again, "handler_failed", []),
    ],
)
async def test_the_log_says_where_a_handler_failed(
    caplog: pytest.LogCaptureFixture, call: HandlerCall, event: str, found: list[str]
) -> None:
    """Retry and Bury are what the handler wants: only what led to them has a traceback."""
    await outcome(call)
    [record] = caplog.records
    assert record.message == event
    assert [place.partition(":")[2].split()[0] for place in places(record)] == found


async def test_the_log_says_where_a_handler_was_that_ran_too_long(caplog: pytest.LogCaptureFixture) -> None:
    began = asyncio.Event()

    async def call(_: object) -> None:
        began.set()
        await asyncio.sleep(60)  # here

    worker, running = started(call)
    await began.wait()
    running.cancel("timeout")
    await worker.settled()
    frames = [frame for each in vars(caplog.records[0])["fields"]["traceback"] for frame in each["frames"]]
    assert any("# here" in frame for frame in frames)


async def test_the_last_attempt_is_logged_as_such_and_its_dead_letter_says_where_it_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Attempts before keep no frames, which would cost memory. Backoff grows with failures, and not with crashes."""
    last = QUEUE.spec.delivery.max_attempts - 1
    kept = [str((await outcome(looks_up, failures=failures))[1][-1]) for failures in (last - 1, last)]
    before, after = (vars(record)["fields"] for record in caplog.records)
    assert [(await outcome(raising(ValueError), failures=each))[1][0] for each in (0, 1)] == [
        BACKOFF_MS,
        100_000,
    ]
    assert ("retry_in_ms" in before, "last_attempt" in before) == (True, False)
    assert ("retry_in_ms" in after, "last_attempt" in after) == (False, True)
    assert kept[1].splitlines()[0] == kept[0]
    assert kept[1].endswith('raise LookupError("no such order")')


@pytest.mark.parametrize("draining", [False, True])
async def test_the_lateness_of_a_released_task_is_not_counted(*, draining: bool) -> None:
    """It is counted with the claim that starts the task; the objective would count the task twice."""

    async def call(_: object) -> None: ...

    worker = Worker(QUEUE, call)
    worker.slots.draining = draining
    starting = 0 if draining else worker.slots.total
    count = worker.slots.total + 2
    leases = [Lease(a_task(task_id=f"order-{n}"), 0, b"order-%d:41" % n, 0) for n in range(count)]
    assert len(worker.claimed(*leases, now_ms=leases[0].task.due_ms + 250)) == starting
    settled = await worker.settled()
    assert (sum(worker.counters.due_to_claimed.counts), worker.counters.claimed) == (starting, count)
    assert sum(each.verb == "release" for each in settled) == count - starting
