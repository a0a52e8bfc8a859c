"""The number of workers follows the work on a real node: to zero and back, down under load, and blind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.cluster.harness.waiting import eventually, lenient
from tests.node.ledger import of
from tests.node.scaled import Scaled

if TYPE_CHECKING:
    from tests.node.scaled import Diary
    from tests.node.world import NodeWorld, Payload

LOOKS: Final = "delayq_operator_decision_seconds_count"
COOLDOWN: Final = 15


def wait_looks(world: NodeWorld, count: int) -> None:
    """Until the operator has decided that often."""
    before = world.operator.metric(LOOKS)
    eventually(
        lambda: world.operator.metric(LOOKS) >= before + count,
        timeout_s=20 + 4 * count,
        every_s=0.5,
        what="more decisions",
    )


@pytest.mark.full
def test_the_last_worker_stays_while_a_lease_is_held_and_then_for_the_cool_down(world: NodeWorld) -> None:
    """A handler that takes many leases and two cool-downs is not disturbed; after it, the number goes to zero."""
    orders = Scaled.begin(world, concurrency=10, autoscaling={"cooldownSeconds": COOLDOWN})
    orders.until_none()
    with orders.diary() as diary:
        world.schedule({"long": {"do": "hold"}})
        world.wait_entries("start", ["long"])
        wait_looks(world, COOLDOWN)  # two seconds each
        assert [number for _, number in diary.numbers if number] == [1]
        assert orders.number == 1
        world.let_go()
        (end,) = world.wait_entries("end", ["long"])
        orders.until_none()
    (_, none), (_, one), (zero_at, zero) = diary.numbers
    assert (none, one, zero) == (0, 1, 0)
    assert zero_at - end.at_ms / 1000 >= COOLDOWN - lenient(2.5), "the last look that saw it is a period old"
    assert len(of("start", world.ledger)["long"]) == 1
    world.account()


@pytest.mark.full
def test_fewer_workers_under_load_lose_nothing_and_charge_no_attempt(world: NodeWorld) -> None:
    """A load that falls, with handlers that outlive the drain: all are handed back, but for one that will not stop.

    Which workers go is for the load to say: the one that is deaf is killed with its worker if that is among them.
    """
    orders = Scaled.begin(
        world,
        concurrency=10,
        worker={"drainTimeoutSeconds": 2, "terminationGracePeriodSeconds": 20},
        autoscaling={"minReplicas": 4, "maxReplicas": 4},
    )
    world.wait_running(4)
    # All slots of all four are full, and a share of each is taken for long.
    tasks: dict[str, Payload] = {f"short-{nth}": {"do": "sleep", "seconds": 4} for nth in range(40)}
    tasks = {
        task: {"do": "hold"} if nth % 4 == 1 else payload for nth, (task, payload) in enumerate(tasks.items())
    }
    tasks["short-1"] = {"do": "deaf"}
    stubborn = [task for task, payload in tasks.items() if payload != tasks["short-0"]]
    flow = {f"flow-{nth}": {"do": "sleep", "seconds": 0.3} for nth in range(200)}
    gaps = iter([*(6000 + 30 * nth for nth in range(150)), *(10_500 + 300 * nth for nth in range(50))])
    with orders.diary() as diary:
        orders.schedule_at(orders.now_ms, tasks)
        world.wait_entries("start", tasks)
        began = {entry.id: entry.pod for entry in world.wait_entries("start", stubborn)}
        assert len(set(began.values())) == 4, began
        world.schedule(dict(flow), lambda: next(gaps))
        world.edit(autoscaling={"minReplicas": 0})
        moved = eventually(lambda: moving(began, diary), timeout_s=60, what="a worker goes that has tasks")
        # What was killed is a suspect, which waits for a worker that runs nothing else.
        world.wait_entries("start", moved - {"short-1"}, nth=2)
        world.wait_entries("end", flow, timeout_s=90)
        deaf = diary.lives[began["short-1"]]  # let go before it is killed, it would be handed back, too
        eventually(lambda: deaf.gone_at or not deaf.leaving_at, timeout_s=60, what="it is killed, or stays")
        world.let_go()
        eventually(world.drained, timeout_s=90, what="all tasks are done")
        crashes = len(of("start", world.ledger)["short-1"]) - 1
        stats = world.account(crashes={"short-1": crashes})
        orders.until_none()
    assert stats["released"] >= len(moved - {"short-1"})
    assert {task for task, runs in of("start", world.ledger).items() if len(runs) > 1} >= moved


def moving(began: dict[str, str], diary: Diary) -> set[str]:
    """The tasks that some worker has to let go."""
    gone = {name for name, life in diary.lives.items() if life.leaving_at}
    return {task for task, pod in began.items() if pod in gone}


@pytest.mark.full
def test_a_number_that_cannot_be_decided_is_held_and_then_falls_back(world: NodeWorld) -> None:
    """Without scanners nobody can tell what is due: no worker goes; with a fallback there are as many as it says."""
    orders = Scaled.begin(world, concurrency=10, autoscaling={"maxReplicas": 3})
    world.schedule({f"task-{nth}": {"do": "hold"} for nth in range(20)})
    world.wait_entries("start", world.payloads)
    orders.until_number(lambda number: number == 2)
    world.wait_running(2)
    world.edit(scanner={"replicas": 0})
    world.until("ScalingActive", "False", "MetricsUnavailable", timeout_s=60)
    world.let_go()
    world.account()
    wait_looks(world, 10)
    assert orders.number == 2, "held: nobody knows that nothing is left"
    world.until("FallbackActive", "False")
    world.edit(autoscaling={"fallback": {"failureThreshold": 3, "replicas": 3}})
    world.wait_running(3)
    world.until("FallbackActive", "True", "MetricsUnavailable")
    assert orders.told["consecutiveFailures"] >= 3
    world.edit(scanner={"replicas": 1})
    world.until("FallbackActive", "False", timeout_s=60)
    world.until("ScalingActive", "True", "ValidMetricsFound")
    orders.until_none()
