"""Which changes of a status people are told of."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delayq.contract import Problem
from delayq_operator.report import turned
from delayq_operator.status import status
from delayq_operator.workload import Workload

from tests.unit.operator.views import HEALTHY, NOW, RUNNING, resource, view

if TYPE_CHECKING:
    from delayq_operator.view import View

DOWN = replace(HEALTHY, redis_up=False, whole=False)
STARTING = Workload(exists=True, wanted=1, pods=1, updated=1, current=True)
PROBLEM = (Problem("spec.redis", "required"),)


def events(*views: View) -> list[list[str]]:
    """Reasons of the events that each view brings after the one before."""
    story: list[list[str]] = []
    previous: dict[str, Any] = {}
    for seen in views:
        made = status(seen, previous, NOW)
        story.append([reason for reason, _ in turned(previous, made)])
        previous = made
    return story


def test_a_queue_that_starts_is_ready_once() -> None:
    starting = view(scanner=STARTING, worker=STARTING, backlog=None)
    assert events(starting, starting, view(), view()) == [[], [], ["Ready"], []]


def test_redis_goes_and_comes_back() -> None:
    assert events(view(), view(backlog=DOWN), view(backlog=DOWN), view()) == [
        ["Ready"],
        ["NotReady", "Unreachable"],
        [],
        ["Ready"],
    ]


def test_a_redis_that_was_never_reached_is_not_news_of_a_change() -> None:
    """The condition says it; an event would come with each new queue whose Redis starts a little later."""
    assert events(view(backlog=DOWN)) == [[]]


def test_pausing_and_resuming() -> None:
    paused = view(resource=resource(annotations={"delayq.dev/paused": "true"}))
    assert events(view(), paused, view()) == [["Ready"], ["Paused"], ["Resumed"]]


def test_a_spec_that_is_refused_and_corrected() -> None:
    broken = view(problems=PROBLEM, scale=None)
    assert events(view(), broken, broken, view()) == [
        ["Ready"],
        ["NotReady", "InvalidSpec"],
        [],
        ["Ready"],
    ]


def test_a_secret_that_is_missing_from_the_beginning() -> None:
    assert events(view(missing=("Secret shop-db",))) == [["ReferenceNotFound"]]


def test_one_reason_after_another_is_told_each_time() -> None:
    assert events(
        view(taken=("ConfigMap orders-config",)),
        view(failures=("CronJob orders-reaper: no.",)),
        view(foreign=("container proxy",)),
        view(),
    ) == [["Ready", "NameTaken"], ["ApplyFailed"], ["ForeignContainers"], []]


def test_risks_and_rollouts_that_hang() -> None:
    assert events(
        view(),
        view(backlog=replace(HEALTHY, risks=("evicts",))),
        view(backlog=replace(HEALTHY, risks=("append_only_off",))),
        view(worker=replace(RUNNING, updated=0, stuck="timed out")),
    ) == [["Ready"], ["DurabilityAtRisk"], [], ["ProgressDeadlineExceeded"]]


def test_a_message_says_why() -> None:
    previous = status(view(), {}, NOW)
    told = dict(turned(previous, status(view(backlog=DOWN), previous, NOW)))
    assert told["NotReady"].startswith("Unreachable: Scanners run but cannot reach Redis")
