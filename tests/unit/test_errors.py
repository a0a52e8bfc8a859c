"""The errors: the tree in the docstring is the tree of classes, and every message says how to go on."""

from __future__ import annotations

import copy
import inspect
import multiprocessing
import pickle
import re
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from typing import Any

import delayq
import delayq.guards
import delayq.handlers
import delayq.testing
import pytest
from delayq import SyncClient, errors
from delayq.contract.problems import Problem, SpecError
from delayq.errors import (
    ArgumentsRefused,
    Bury,
    DelayQError,
    DelayTooLong,
    EnvelopeError,
    EnvelopeTooNew,
    GuardBusy,
    GuardLost,
    GuardUnavailable,
    InvalidDocument,
    InvalidDueTime,
    InvalidTask,
    NoSuchSchedule,
    NotConfirmed,
    NotStarted,
    PayloadTooLarge,
    QueueFull,
    Refused,
    Retry,
    ScheduleRefused,
    Seen,
    TaskExists,
    TasksRefused,
    Unavailable,
    UnsupportedFormat,
)
from delayq.handlers.base import HandlerSetupError
from delayq.handlers.signature import InvalidSignatureError
from delayq.local.errors import CannotRun
from delayq.protocol.results import Scheduled
from delayq.protocol.shard_map import ShardMap, ShardMapOutdated, TaskMigrating

TEN_YEARS_MS = 10 * 365 * 86_400_000
CLASSES = {
    name: each
    for name, each in vars(errors).items()
    if inspect.isclass(each) and each.__module__ == errors.__name__
}


def drawn() -> dict[str, str]:
    """Each class in the drawing, with the one it hangs from."""
    parents, path = {}, [""]
    lines = re.findall(r"^(\w+)$|^((?:[│ ] {3})*)[├└]── (\w+)", errors.__doc__ or "", re.MULTILINE)
    for root, branch, name in lines:
        if root:
            path = [root]
            continue
        depth = len(branch) // 4 + 1
        path[depth:] = [name]
        parents[name] = path[depth - 1]
    return parents


def test_the_drawing_is_the_tree() -> None:
    """With SpecError, which is beside the parser of documents."""
    tree = {name: each.__bases__[0].__name__ for name, each in {**CLASSES, "SpecError": SpecError}.items()}
    assert {name: base for name, base in tree.items() if base != "Exception"} == drawn()


def test_every_class_is_documented_and_has_a_name_in_the_package_or_is_internal() -> None:
    assert all(inspect.getdoc(each) for each in CLASSES.values())
    assert set(CLASSES) - set(delayq.__all__) <= {
        "ArgumentsRefused",
        "EnvelopeError",
        "EnvelopeTooNew",
        "NotStarted",
    }


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (TaskExists("a"), 'task a exists already (if_exists="keep" or "replace" allows it)'),
        (
            QueueFull("a", 1000),
            (
                "the queue is full: task a does not fit into spec.limits.maxLength = 1,000 tasks; "
                "wait until tasks are done, add workers, or raise it"
            ),
        ),
        (
            QueueFull("a", 1 << 20, "bytes", shards=2),
            (
                "the queue is full: task a does not fit into spec.limits.maxBytes = 1,048,576 bytes, "
                "of which each of 2 shards takes 524,288; "
                "wait until tasks are done, purge dead letters, add workers, or raise it"
            ),
        ),
        (DelayTooLong("a", 5000), "task a is due later than maxDelaySeconds = 5 allows"),
        (
            PayloadTooLarge("a", "payload", size=2000, limit=1000),
            "payload of task a is 2,000 bytes, the limit is 1,000",
        ),
    ],
)
def test_a_refusal_names_the_task_and_the_limit(error: Refused, message: str) -> None:
    assert str(error) == message
    assert error.task_id == "a"


def test_many_refusals_tell_how_many_and_the_first() -> None:
    error = TasksRefused({3: TaskExists("a"), 7: QueueFull("b", 1)}, ["x"])
    assert str(error).startswith("2 refused, 1 scheduled; the first: task a exists already")
    assert (list(error.refused), error.scheduled) == ([3, 7], ["x"])


def test_one_except_clause_catches_all_that_delayq_raises() -> None:
    assert issubclass(InvalidDueTime, Refused)
    assert issubclass(Refused, DelayQError)
    assert issubclass(Unavailable, DelayQError)
    assert issubclass(delayq.SpecError, DelayQError)
    assert issubclass(delayq.SpecError, ValueError)
    assert not issubclass(Retry, DelayQError)


def test_an_order_to_retry_reads_well_without_a_reason() -> None:
    assert str(Retry()) == "the handler asked for a retry"
    assert (Retry().delay_ms, Retry().charge) == (None, True)
    assert str(Retry("rate limited", delay_ms=5)) == "rate limited"
    assert (Retry(delay="1m30s").delay_ms, Retry(delay=timedelta(hours=1)).delay_ms) == (90_000, 3_600_000)


@pytest.mark.parametrize(
    ("order", "error"),
    [
        *(({"charge": charge}, TypeError) for charge in (None, 0, 1, "no")),
        *(({"delay_ms": delay_ms}, TypeError) for delay_ms in (True, 2.5, "5")),
        *(({"delay_ms": delay_ms}, ValueError) for delay_ms in (-1, TEN_YEARS_MS + 1, 10**20)),
        *(({"delay": delay}, ValueError) for delay in (5, "5", "-1s", timedelta(seconds=-1), ["1s"])),
    ],
)
def test_an_order_to_retry_is_charged_or_not_and_waits_whole_milliseconds_up_to_ten_years(
    order: dict[str, Any], error: type[Exception]
) -> None:
    [name] = order
    with pytest.raises(error, match=rf"Retry\({name}=…\)"):
        Retry(**order)
    assert Retry(delay_ms=TEN_YEARS_MS).delay_ms == TEN_YEARS_MS
    with pytest.raises(ValueError, match="at most one of delay and delay_ms, got both"):
        Retry(delay="1s", delay_ms=1000)


STORED = Scheduled("b", 5)
EXAMPLES = [
    DelayQError("NOPERM this user has no permissions"),
    Refused("a", "no"),
    InvalidTask("a", "no"),
    InvalidDueTime("a", "no"),
    PayloadTooLarge("a", "payload", size=2, limit=1),
    TaskExists("a"),
    QueueFull("a", 1, "bytes", shards=2),
    DelayTooLong("a", 5000),
    ScheduleRefused("schedule nightly belongs to a client", "NameConflict"),
    NoSuchSchedule("nightly"),
    TasksRefused({3: TaskExists("a"), 7: QueueFull("b", 1)}, [STORED]),
    NotConfirmed(
        *("late",),
        scheduled=[STORED],
        unconfirmed=[STORED],
        refused={1: TaskExists("a")},
        confirmed=0,
        wanted=1,
    ),
    InvalidDocument("queue.yaml: spec.redis: required, but missing"),
    HandlerSetupError("spec.handler.python.callable", "no module shop"),
    UnsupportedFormat("orders", 0, found=9, known=8),
    Unavailable("redis:6379", "NOAUTH", answered=True, outage="auth"),
    EnvelopeError("expected at least 7 bytes, got 3"),
    EnvelopeTooNew("envelope version 9, this delayq reads up to 2"),
    CannotRun("no port", "free one"),
    ShardMapOutdated(ShardMap.first(2)),
    TaskMigrating("a"),
    Retry("later", delay_ms=5, charge=False),
    GuardBusy("busy"),
    GuardLost("lost", delay_ms=7),
    GuardUnavailable("db:5432", "refused"),
    ArgumentsRefused("task push: to: missing argument"),
    NotStarted("no thread"),
    Bury("no such customer"),
    Seen(),
    Seen("charged before"),
    InvalidSignatureError("no secret made the signature"),
    SpecError((Problem("spec.x", "expected 1"), Problem("spec.y", "expected 2"))),
]


def facts(error: BaseException) -> object:
    """The type, the message and the attributes of an error, also of those in its attributes."""
    shown = {
        name: [facts(each) for each in value.values()] if name == "refused" else value
        for name, value in vars(error).items()
    }
    return type(error), str(error), error.args, shown


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_pickle_and_copy_keep_the_type_the_message_and_the_facts_of_an_error(error: Exception) -> None:
    error.add_note("seen by the caller")
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert facts(pickle.loads(pickle.dumps(error, protocol))) == facts(error)  # noqa: S301 -- our own bytes
    assert facts(copy.copy(error)) == facts(copy.deepcopy(error)) == facts(error)


def test_every_public_error_has_an_example() -> None:
    modules = (errors, delayq, delayq.guards, delayq.handlers, delayq.testing)
    public = {
        each
        for module in modules
        for name in {*vars(module), *getattr(module, "__all__", ())}
        if inspect.isclass(each := getattr(module, name)) and issubclass(each, Exception)
    }
    assert public <= {type(error) for error in EXAMPLES}


def schedule_without_redis(port: int) -> None:
    with SyncClient(f"redis://127.0.0.1:{port}/0", queue="q") as client:
        client.schedule(1, delay_ms=1)


def test_the_parent_of_a_pool_of_processes_receives_the_error_of_a_client() -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        error = pool.submit(schedule_without_redis, 1).exception()
        assert isinstance(error, Unavailable)
        assert (error.where, error.outage) == ("127.0.0.1:1", "refused")
        assert pool.submit(len, "the pool is not broken").result() == len("the pool is not broken")
