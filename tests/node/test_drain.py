"""Workers that have to go while they have work: a drained node, and fewer replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delayq_operator.base import names

if TYPE_CHECKING:
    from tests.node.world import NodeWorld, Payload

DRAIN: Final = ("--delete-emptydir-data", "--ignore-daemonsets", "--timeout=15s")


def test_a_drain_stops_at_the_budget_and_all_comes_back_after_it(world: NodeWorld) -> None:
    """The node is the only one there is, so nothing can start elsewhere: one worker and one scanner stay, and work.

    Who drains waits for another node, or gives up and uncordons.
    """
    node = world.node.node_name
    world.begin(worker={"replicas": 2}, scanner={"replicas": 2})
    world.wait_running(2)
    world.wait_running(2, "scanner")
    selector = f"--pod-selector={names.QUEUE_LABEL}=orders"
    try:
        drain = world.cluster.kubectl("drain", node, selector, *DRAIN, check=False)
        assert drain.returncode != 0
        assert "violate the pod's disruption budget" in drain.stderr
        assert [len(world.running(component)) for component in ("worker", "scanner")] == [1, 1]
        world.reported("unschedulable")
        world.until("Ready", "True")
        world.schedule({f"t{nth}": None for nth in range(100)})
        world.account()
    finally:
        world.cluster.kubectl("uncordon", node)
    world.wait_running(2, "scanner")
    world.recovered(2)


def test_scaling_in_under_load_hands_back_what_does_not_end_in_time(world: NodeWorld) -> None:
    """From three workers to one, all slots busy, and no handler ends before its pod's grace period does.

    What can be cancelled is handed back, and not charged. Handlers that are deaf to that are killed with their pod:
    their leases run out, and that is a crash.
    """
    brief = {"drainTimeoutSeconds": 1, "terminationGracePeriodSeconds": 20}
    world.begin(worker={"replicas": 3, "concurrency": 10, **brief})
    tasks: dict[str, Payload] = {f"t{nth}": {"do": "deaf" if nth % 5 == 0 else "hold"} for nth in range(30)}
    world.schedule(tasks)
    started = world.wait_entries("start", tasks)
    assert len({entry.pod for entry in started}) == 3
    world.edit(worker={"replicas": 1})
    world.event("ScaledDown", "1")
    (left,) = [pod["metadata"]["name"] for pod in world.wait_running(1)]
    gone = [entry for entry in started if entry.pod != left]
    assert len(gone) == 20
    deaf = {entry.id for entry in gone if tasks[entry.id] == {"do": "deaf"}}
    handed_back = {entry.id for entry in gone} - deaf
    assert world.stats["released"] == len(handed_back), world.snapshot
    with world.client as client:
        views = [client.get(task) for task in handed_back]
    assert {(view.failed.failures, view.failed.crashes) for view in views if view} == {(0, 0)}
    world.let_go()
    stats = world.account(crashes=dict.fromkeys(deaf, 1))
    assert stats["released"] == len(handed_back)
