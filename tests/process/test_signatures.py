"""A rolling update to a function with other arguments: each task runs where its arguments fit, uncharged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq import NewTask
from delayq.protocol.results import State

from tests.process.fleet import until, wait_said

if TYPE_CHECKING:
    from delayq import SyncClient

    from tests.process.fleet import NewFleet

EACH = 10


def tasks(name: str, **arguments: object) -> list[NewTask]:
    return [
        NewTask({"order": n} | arguments, delay_ms=0, task_id=f"{name}-{n}", kind="remind")
        for n in range(EACH)
    ]


def done(client: SyncClient) -> bool:
    """Whether all are; those that wait for the other worker are due again at once, maybe for the same one."""
    for row in client.list(State.RETRYING):
        assert (row.failed.failures, row.failed.crashes) == (0, 0)
        client.reschedule(row.id, delay_ms=0)
    counts = client.counts()
    return not counts.waiting and not counts.in_flight


def test_tasks_with_new_arguments_wait_for_new_workers_and_those_with_old_ones_for_old_workers(
    new_fleet: NewFleet,
) -> None:
    old = new_fleet({"handler": {"python": {"app": "signatures:old"}}})
    new = new_fleet({"handler": {"python": {"app": "signatures:new"}}}, server=old.server)
    first = old.start("worker")
    with old.client() as client:
        client.schedule_many(tasks("new", channel="mail"))
        refused = wait_said(first, "arguments_refused")
        assert (refused["kind"], refused["retry_in_ms"]) == ("remind", 30_000)
        assert "channel" in refused["error"]
        until(lambda: client.counts().retrying == EACH, "the old worker refuses them")
        new.start("worker")
        client.schedule_many(tasks("old"))
        until(lambda: done(client), "all have run")
        assert client.counts().dead == 0
    runs = sorted((run.event, run.id, run.attempt) for run in (*old.ledger(), *new.ledger()))
    assert runs == sorted((name, f"remind:{name}-{n}", 1) for name in ("old", "new") for n in range(EACH))
