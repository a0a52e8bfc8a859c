"""Kinds of task and the history, which version 0.2 does not know, in a rolling update from it and a rollback to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from delayq import NewTask
from delayq.protocol.results import State

from tests.process.fleet import check_runs, until, wait_said
from tests.process.test_upgrade import SPEC, Both, both, from_0_2, stop

if TYPE_CHECKING:
    from delayq import SyncClient

    from tests.process.fleet import NewFleet

__all__ = ["both"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.full,
]  # test_upgrade.py has short cases of fields that 0.2 does not know

EACH = 10


@from_0_2
def test_tasks_of_kinds_survive_workers_that_do_not_know_them(both: Both, new_fleet: NewFleet) -> None:
    """Older workers put them back, newer ones without the App park them, an older reaper does not touch them."""
    plain = both.fleet
    shop = new_fleet(SPEC | {"handler": {"python": {"app": "kinds_recorder:app"}}}, server=plain.server)
    old = both.start("old")
    with plain.client() as client:
        client.take_only(None)  # its document names no kind
        first = schedule(client, "first")
        until(lambda: {f"first-{n}" for n in range(EACH)} <= plain.ended(), "tasks without a kind are done")
        until(lambda: states(client, first) == {State.RETRYING}, "the older workers put the others back")
        workers = [shop.start("worker")]
        until(lambda: done(client, first), "the App takes them from among older workers", timeout_s=90)
        stop([*old, *workers])

        second = schedule(client, "second")
        with both.of("new"):
            workers = [plain.start("worker")]
        until(lambda: states(client, second) == {State.PARKED}, "a worker without the App parks them")
        stop(workers)
        old = both.start("old")
        wait_said(old[-1], "shard_refused")
        assert states(client, second) == {State.PARKED}
        workers = [shop.start("worker")]
        until(lambda: done(client, second), "the App finds them again", timeout_s=90)
        stop([*old, *workers])
    check_runs(shop.starts())
    runs = {task: [run.attempt for run in runs] for task, runs in shop.starts().items()}
    assert runs == {task: [1] for task in first + second}
    assert not set(first + second) & plain.starts().keys()


def schedule(client: SyncClient, batch: str) -> list[str]:
    """Schedule tasks of a kind, and as many without one; return the IDs of the former."""
    ids = [f"report:{batch}-{n}" for n in range(EACH)]
    for n, task in enumerate(ids):
        client.schedule({}, task_id=task, delay_ms=0, kind="report", version=1)
        client.schedule({}, task_id=f"{batch}-{n}", delay_ms=0)
    return ids


def states(client: SyncClient, ids: list[str]) -> set[State]:
    """The states of those that are not done; none of them was charged for anything."""
    views = [view for task in ids if (view := client.get(task)) is not None]
    assert [view for view in views if view.failed.failures or view.failed.crashes] == []
    return {view.state for view in views}


def done(client: SyncClient, ids: list[str]) -> bool:
    """Whether all are; those that were put back are due again at once."""
    for task in ids:
        view = client.get(task)
        if view is not None and view.state is State.RETRYING:
            client.reschedule(task, delay_ms=0)
    return not states(client, ids)


@from_0_2
def test_the_history_has_what_newer_workers_did_beside_older_ones(both: Both, new_fleet: NewFleet) -> None:
    """And an older build neither needs it nor loses it."""
    plain = both.fleet
    kept = new_fleet(
        SPEC | {"retention": {"finished": {"seconds": 3600, "count": 10_000}}}, server=plain.server
    )
    old, new = both.start("old"), [kept.start("worker")]
    ids: list[str] = []
    with kept.client() as client:

        def both_work() -> bool:
            some = [NewTask({"do": "sleep", "seconds": 0.2}, delay_ms=0)] * EACH
            ids.extend(stored.id for stored in client.schedule_many(some))
            return bool(plain.ended() and kept.ended())

        def ended() -> bool:
            return all(is_done(client, task) for task in ids)

        until(both_work, "both builds run tasks")
        until(ended, "all are done")
        stop([*old, *new])
        assert {task for task in ids if client.get(task)} == kept.ended()
        old = both.start("old")
        ids.append(client.schedule({}, delay_ms=0).id)
        until(ended, "the older build goes on")
        stop(old)
        assert {task for task in ids if client.get(task)} == kept.ended()
    assert kept.ended() | plain.ended() == set(ids)
    assert {len(runs) for fleet in (plain, kept) for runs in fleet.starts().values()} == {1}


def is_done(client: SyncClient, task: str) -> bool:
    view = client.get(task)
    return view is None or view.state is State.DONE
