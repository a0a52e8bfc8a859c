"""Each condition takes each of its reasons when it should, and stands for one status with each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from delayq.contract import Problem
from delayq.contract.metrics import DURABILITY_RISKS
from delayq.contract.metrics import OUTAGES as OUTAGES_THERE_ARE
from delayq.scaling import Sample
from delayq_operator.base.words import OUTAGES, RISKS
from delayq_operator.cache.workload import Workload
from delayq_operator.scaling import scaling
from delayq_operator.scaling.capacity_forecast import Rush
from delayq_operator.scaling.scaling import Learnt, Scale
from delayq_operator.scrape.shards import Down, ShardMap, Shards
from delayq_operator.status import readiness
from delayq_operator.status.reasons import REASONS
from delayq_operator.status.view import Begun, Erasing, Guarding

from tests.unit.operator.queues import queue
from tests.unit.operator.views import HEALTHY, NOW, RUNNING, decided, resource, scaled, view

if TYPE_CHECKING:
    from delayq_operator.scrape.backlog import Backlog
    from delayq_operator.status.reasons import Condition
    from delayq_operator.status.view import View

PROBLEM = (Problem("spec.worker.concurrency", "expected a whole number from 1 to 10000"),)
NOTHING = Workload()
ASLEEP = Workload(exists=True, current=True)
STARTING = Workload(exists=True, wanted=2, pods=2, updated=2, current=True, complete=False)
ROLLING = Workload(exists=True, wanted=2, pods=3, updated=1, ready=2, current=True)
STUCK = replace(ROLLING, stuck='ReplicaSet "orders-worker-1" has timed out progressing.')
PAUSED = resource(annotations={"delayq.dev/paused": "true"})
UNREACHED = replace(HEALTHY, redis_up=False, whole=False)
HALF = replace(HEALTHY, whole=False)
LATE = replace(HEALTHY, due=2_000, oldest_due_at=NOW - 9)
EXTERNAL = queue(autoscaling={"mode": "External"}, worker={"replicas": 0})
BY_OTHERS = Scale(replicas=0, reason="ExternalAutoscaler", message="0 workers")
GUARDED = queue(guard={"sqlUnique": {"databaseSecretRef": {"name": "shop-db"}}})
GUARD_DOWN = Guarding(unable=3)
ERASING = Erasing(message="Job orders-erase erases the tasks.")
LATE_AT_WORK = replace(LATE, in_flight=8)
IDLE = Sample(ready=1)
RUSH = Sample(overdue=5_000, ready=1)
FALLBACK = {"failureThreshold": 1, "replicas": 4}
SLOWLY = {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}
SLOW_DOWN = decided(
    IDLE,
    replicas=9,
    cooldownSeconds=0,
    behavior={"scaleDown": {**SLOWLY, "stabilizationWindowSeconds": 0}},
)
FOUR = queue(shards=4)
DOWN = (Down(1, "timeout", "10.0.0.7:6379"), Down(3, "cluster_down", ""))
PARTLY = replace(
    HEALTHY,
    whole=False,
    whole_at=NOW - 5,
    shards=Shards(shard_map=ShardMap(1, 4, 4, 4), down=DOWN, unled=(2,)),
)
COMING = Rush(at=NOW + 600, needed=63, late_seconds=660)


def limited(by: Any) -> dict[str, Any]:  # noqa: ANN401 -- decision.Limit
    """What a view shows of a decision that one of spec.limits has limited."""
    made = scaled(decided(RUSH))
    decision = replace(made["scale"].decision, limited_by=by)
    return made | {"scale": replace(made["scale"], decision=decision)}


def moving(shard_map: ShardMap, whole_at: float = NOW, **seen: Any) -> Backlog:  # noqa: ANN401 -- fields of Shards
    """What scanners say while tasks change shards; some are missing since `whole_at`."""
    shards = Shards(shard_map=shard_map, **seen)
    return replace(HEALTHY, whole=not seen, whole_at=whole_at, shards=shards)


CASES: list[tuple[str, str, View]] = [
    ("Ready", "AsExpected", view()),
    ("Ready", "AsExpected", view(worker=ASLEEP, queue=EXTERNAL, scale=BY_OTHERS)),  # an HPA may want none
    ("Ready", "NoWorkers", view(worker=ASLEEP)),  # nobody would scale from there
    ("Ready", "AsExpected", view(worker=ROLLING)),  # the old ones still work
    (
        "Ready",
        "AsExpected",
        view(backlog=None),
    ),  # nobody could tell, but scanners are ready, which takes Redis
    ("Ready", "Deleting", view(erasing=ERASING)),
    ("Ready", "InvalidSpec", view(problems=PROBLEM)),
    ("Ready", "PolicyViolation", view(forbidden=PROBLEM)),
    ("Ready", "RedisNotEmpty", view(stranding="the old one holds tasks")),
    ("Ready", "ReferenceNotFound", view(missing=("Secret shop-db",))),
    ("Ready", "Unreachable", view(backlog=UNREACHED)),
    ("Ready", "PartiallyUnreachable", view(backlog=PARTLY, queue=FOUR)),
    ("Ready", "AsExpected", view(queue=FOUR)),  # tasks run, wherever they are
    ("Ready", "ScannersNotReady", view(scanner=STARTING)),
    ("Ready", "ScannersNotReady", view(scanner=NOTHING)),
    ("Ready", "ClaimsSuspended", view(queue=queue(stopPolicy="Hold"))),
    ("Ready", "ClaimsSuspended", view(queue=queue(stopPolicy="HoldAndDrain"), worker=ASLEEP)),
    ("Ready", "WorkersNotReady", view(worker=STARTING)),
    ("Ready", "WorkersNotReady", view(worker=NOTHING)),
    ("Accepted", "InvalidSpec", view(problems=PROBLEM, missing=("Secret shop-db",))),
    ("Accepted", "RedisNotEmpty", view(stranding="the old one holds tasks")),
    ("Accepted", "PolicyViolation", view(forbidden=PROBLEM, missing=("Secret shop-db",))),
    ("Accepted", "ReferenceNotFound", view(missing=("Secret shop-db",))),
    ("Accepted", "Valid", view(unserved=("PodMonitor",))),
    ("BackendAvailable", "Connected", view()),
    ("BackendAvailable", "Connected", view(backlog=HALF)),  # a shard without a leader is not Redis' fault
    ("BackendAvailable", "PartiallyUnreachable", view(backlog=PARTLY, queue=FOUR)),
    ("BackendAvailable", "Unreachable", view(backlog=UNREACHED)),
    ("BackendAvailable", "ScannersReady", view(backlog=None, unread="no route")),
    ("BackendAvailable", "NoScanners", view(backlog=None, scanner=ASLEEP)),
    ("BackendAvailable", "MetricsUnavailable", view(backlog=None, scanner=STARTING)),
    ("BackendAvailable", "MetricsUnavailable", view(backlog=None, scanner=NOTHING)),
    *[
        ("DurabilityAtRisk", reason, view(backlog=replace(HEALTHY, risks=(risk,))))
        for risk, (reason, _) in RISKS.items()
    ],
    (
        "DurabilityAtRisk",
        "AppendOnlyOff",
        view(backlog=replace(HEALTHY, risks=("evicts", "append_only_off"))),
    ),
    ("DurabilityAtRisk", "Evicts", view(backlog=replace(HEALTHY, risks=("evicts", "unknown")))),
    ("DurabilityAtRisk", "Durable", view()),
    ("DurabilityAtRisk", "DurabilityUnknown", view(backlog=replace(HEALTHY, risks=("unknown",)))),
    ("DurabilityAtRisk", "FsyncUnknown", view(backlog=replace(HEALTHY, risks=("fsync_unknown",)))),
    ("DurabilityAtRisk", "Evicts", view(backlog=replace(HEALTHY, risks=("evicts", "fsync_unknown")))),
    ("DurabilityAtRisk", "MetricsUnavailable", view(backlog=None)),
    (
        "DurabilityAtRisk",
        "MetricsUnavailable",
        view(backlog=UNREACHED),
    ),  # no sample is not the same as no risk
    ("ReshardingComplete", "Complete", view(queue=FOUR, backlog=moving(ShardMap(1, 4, 4, 4)))),
    (
        "ReshardingComplete",
        "Complete",
        view(queue=FOUR, backlog=PARTLY),
    ),  # where they are is known all the same
    ("ReshardingComplete", "Pending", view(queue=FOUR)),
    ("ReshardingComplete", "Preparing", view(queue=FOUR, backlog=moving(ShardMap(2, 1, 1, 4)))),
    ("ReshardingComplete", "Migrating", view(queue=FOUR, backlog=moving(ShardMap(3, 4, 1, 4)))),
    (
        "ReshardingComplete",
        "Migrating",
        view(queue=FOUR, backlog=moving(ShardMap(3, 4, 1, 4), NOW - 19, unled=(1,))),
    ),
    (
        "ReshardingComplete",
        "ReshardingStalled",
        view(backlog=moving(ShardMap(3, 4, 1, 4), NOW - 20, unled=(1,))),
    ),
    (
        "ReshardingComplete",
        "ReshardingStalled",
        view(backlog=moving(ShardMap(2, 1, 1, 4), NOW - 20, down=DOWN)),
    ),
    ("ReshardingComplete", "NoScanners", view(queue=FOUR, backlog=None, scanner=ASLEEP)),
    ("ReshardingComplete", "MetricsUnavailable", view(queue=FOUR, backlog=None)),
    (
        "ReshardingComplete",
        "MetricsUnavailable",
        view(queue=FOUR, backlog=replace(HEALTHY, shards=Shards())),
    ),  # an older scanner
    ("GuardAvailable", "Connected", view(queue=GUARDED, guarding=Guarding(able=2))),
    ("GuardAvailable", "PartiallyUnreachable", view(queue=GUARDED, guarding=Guarding(able=2, unable=1))),
    ("GuardAvailable", "Unreachable", view(queue=GUARDED, guarding=GUARD_DOWN)),
    ("GuardAvailable", "NoWorkers", view(queue=GUARDED, worker=ASLEEP)),
    ("GuardAvailable", "MetricsUnavailable", view(queue=GUARDED)),
    ("Ready", "GuardUnreachable", view(queue=GUARDED, guarding=GUARD_DOWN)),
    ("Ready", "AsExpected", view(queue=GUARDED, guarding=Guarding(able=2, unable=1))),
    ("Ready", "AsExpected", view(queue=GUARDED)),
    ("ObjectiveMet", "GuardUnreachable", view(queue=GUARDED, guarding=GUARD_DOWN, backlog=LATE)),
    ("Progressing", "NewReplicaSetAvailable", view()),
    ("Progressing", "NewReplicaSetAvailable", view(worker=ASLEEP)),
    ("Progressing", "ReplicaSetUpdated", view(worker=ROLLING)),
    ("Progressing", "ReplicaSetUpdated", view(scanner=replace(RUNNING, current=False))),
    ("Progressing", "WaitingForDeletion", view(leaving=("Deployment orders-worker",))),
    ("Progressing", "Erasing", view(erasing=ERASING)),
    ("Progressing", "DeploymentPaused", view(worker=replace(RUNNING, paused=True))),
    ("Progressing", "ProgressDeadlineExceeded", view(scanner=ROLLING, worker=STUCK)),
    ("Progressing", "DeploymentNotFound", view(scanner=NOTHING, worker=NOTHING, problems=PROBLEM)),
    ("Degraded", "AsExpected", view()),
    ("Degraded", "QueueConflict", view(sharing=("shop/orders2",))),
    ("Degraded", "OperatorConflict", view(rival="tools/delayq-operator")),
    ("Degraded", "PodsRejected", view(worker=replace(RUNNING, refused="exceeded quota: pods"))),
    ("Degraded", "PodsRejected", view(runless=True)),
    ("Degraded", "RolloutPaused", view(worker=replace(RUNNING, paused=True))),
    ("Degraded", "PodsFailing", view(troubles={"worker": "orders-worker-1: CrashLoopBackOff: no module"})),
    ("Progressing", "ReplicaSetUpdated", view(worker=STARTING)),
    ("Degraded", "AsExpected", view(erasing=ERASING)),
    ("Degraded", "EraseFailed", view(erasing=replace(ERASING, failed=True))),
    ("Degraded", "NameConflict", view(taken=("Deployment orders-worker",), foreign=("container a",))),
    ("Degraded", "ApplyFailed", view(failures=("CronJob orders-reaper: no.",), foreign=("container a",))),
    ("Degraded", "UnmanagedFields", view(foreign=("container proxy of Deployment orders-worker",))),
    *[
        ("ScalingActive", reason, view(scale=Scale(replicas=1, reason=reason, message="why")))
        for reason in scaling.REASONS
    ],
    ("ScalingActive", "NotEvaluated", view(scale=None, problems=PROBLEM)),
    ("ScalingActive", "ValidMetricsFound", view(**scaled(decided(IDLE)))),
    ("ScalingActive", "MetricsUnavailable", view(**scaled(decided(None)))),
    ("ScalingActive", "NotEvaluated", view(scale=Scale(replicas=1, reason="NotEvaluated", message="why"))),
    ("ScalingLimited", "DesiredWithinRange", view()),
    ("ScalingLimited", "DesiredWithinRange", view(**scaled(decided(RUSH, maxReplicas=1000)))),
    ("ScalingLimited", "MaxReplicas", view(**scaled(decided(RUSH)))),
    ("ScalingLimited", "MinReplicas", view(**scaled(decided(IDLE, minReplicas=1)))),
    ("ScalingLimited", "ScaleUpPolicy", view(**scaled(decided(RUSH, behavior={"scaleUp": SLOWLY})))),
    ("ScalingLimited", "ScaleDownPolicy", view(**scaled(SLOW_DOWN))),
    ("ScalingLimited", "MaxInFlight", view(**limited("MaxInFlight"))),
    ("ScalingLimited", "RatePerSecond", view(**limited("RatePerSecond"))),
    ("FallbackActive", "MetricsUnavailable", view(**scaled(decided(None, fallback=FALLBACK)))),
    ("CapacityShortfallExpected", "MaxReplicas", view(learnt=Learnt(rush=COMING))),
    ("ObjectiveMet", "WithinObjective", view()),
    (
        "ObjectiveMet",
        "WithinObjective",
        view(backlog=LATE, queue=queue(objective={"latenessMilliseconds": 10000})),
    ),
    ("ObjectiveMet", "TasksLate", view(backlog=LATE_AT_WORK)),
    ("ObjectiveMet", "TasksLate", view(backlog=replace(LATE_AT_WORK, oldest_due_at=None, late_at=NOW - 11))),
    (
        "ObjectiveMet",
        "WithinObjective",
        view(backlog=replace(LATE_AT_WORK, oldest_due_at=None, late_at=NOW - 12)),
    ),
    ("ObjectiveMet", "WithinObjective", view(begun=Begun(200, 2))),
    ("ObjectiveMet", "TasksLate", view(begun=Begun(200, 2.5))),
    (
        "ObjectiveMet",
        "WithinObjective",
        view(begun=Begun(200, 20), queue=queue(objective={"percentile": "90"})),
    ),
    ("ObjectiveMet", "TasksLate", view(begun=Begun(200, 20), queue=queue(objective={"percentile": "91"}))),
    (
        "ObjectiveMet",
        "WithinObjective",
        view(begun=Begun(1000, 1), queue=queue(objective={"percentile": "99.9"})),
    ),
    ("ObjectiveMet", "TasksLate", view(begun=Begun(1000, 2), queue=queue(objective={"percentile": "99.9"}))),
    ("ObjectiveMet", "WithinObjective", view(begun=Begun(10_000_000), backlog=LATE_AT_WORK)),
    ("ObjectiveMet", "WorkersNotReady", view(backlog=LATE_AT_WORK, worker=STARTING)),
    ("ObjectiveMet", "NoTasksClaimed", view(backlog=LATE)),
    ("ObjectiveMet", "MaxInFlight", view(backlog=LATE_AT_WORK, queue=queue(limits={"maxInFlight": 8}))),
    ("ObjectiveMet", "TasksLate", view(backlog=LATE_AT_WORK, queue=queue(limits={"maxInFlight": 9}))),
    ("ObjectiveMet", "RatePerSecond", view(backlog=LATE, queue=queue(limits={"ratePerSecond": 5}))),
    (
        "ObjectiveMet",
        "WorkersNotReady",
        view(backlog=LATE, worker=STARTING, queue=queue(limits={"ratePerSecond": 5})),
    ),
    ("ObjectiveMet", "MaxReplicas", view(backlog=LATE_AT_WORK, **scaled(decided(RUSH)))),
    (
        "ObjectiveMet",
        "ScaleUpPolicy",
        view(backlog=LATE_AT_WORK, **scaled(decided(RUSH, behavior={"scaleUp": SLOWLY}))),
    ),
    ("Ready", "AsExpected", view(worker=ASLEEP, **scaled(decided(IDLE, replicas=0)))),
    ("Ready", "AsExpected", view(worker=STARTING, learnt=Learnt(waking=True))),
    (
        "Ready",
        "WorkersNotReady",
        view(worker=STARTING, learnt=Learnt(waking=True), troubles={"worker": "w-1: no such image"}),
    ),
    ("ObjectiveMet", "MetricsUnavailable", view(backlog=None)),
    ("ObjectiveMet", "MetricsUnavailable", view(backlog=replace(LATE, whole=False))),
    ("Paused", "PausedByAnnotation", view(resource=PAUSED)),
    ("Paused", "InvalidAnnotation", view(resource=resource(annotations={"delayq.dev/paused": "yes"}))),
    ("Paused", "InvalidAnnotation", view(resource=resource(annotations={"delayq.dev/paused": ""}))),
]


ABSENT = [
    ("Accepted", view()),
    ("ReshardingComplete", view()),
    ("ReshardingComplete", view(queue=None, problems=PROBLEM)),
    ("ReshardingComplete", view(backlog=None)),
    ("GuardAvailable", view()),
    ("GuardAvailable", view(queue=None, problems=PROBLEM)),
    ("FallbackActive", view()),
    ("FallbackActive", view(**scaled(decided(None)))),
    ("CapacityShortfallExpected", view()),
    ("CapacityShortfallExpected", view(**scaled(decided(IDLE)))),
    ("ObjectiveMet", view(queue=None, problems=PROBLEM)),
    ("Paused", view()),
    ("Paused", view(resource=resource(annotations={"delayq.dev/paused": "false"}))),
]


def told(seen: View, kind: str) -> Condition:
    return next(each for each in readiness.everything(seen) if each.type == kind)


@pytest.mark.parametrize(
    ("kind", "reason", "seen"), CASES, ids=[f"{kind}-{reason}" for kind, reason, _ in CASES]
)
def test_a_condition_has_the_reason_that_the_view_calls_for(kind: str, reason: str, seen: View) -> None:
    found = told(seen, kind)
    assert (found.reason, found.status) == (reason, REASONS[kind][reason])


def test_every_reason_can_be_reached() -> None:
    """A reason that nothing leads to would be documented for nobody."""
    every = {(kind, reason) for kind, reasons in REASONS.items() for reason in reasons}
    assert {(kind, reason) for kind, reason, _ in CASES} == every


@pytest.mark.parametrize(("kind", "seen"), ABSENT)
def test_a_condition_that_does_not_apply_is_absent(kind: str, seen: View) -> None:
    assert kind not in {each.type for each in readiness.everything(seen)}


def test_shards_that_moved_a_moment_ago_are_not_forgotten_while_no_scanner_answers() -> None:
    seen = view(backlog=None, resource=resource(status={"resharding": {"fromShards": 4, "toShards": 1}}))
    assert told(seen, "ReshardingComplete").status == "Unknown"


def test_some_conditions_are_there_on_every_visit_and_all_in_the_same_order() -> None:
    always = ["Ready", "BackendAvailable", "DurabilityAtRisk", "Progressing", "Degraded", "ScalingActive"]
    for seen in (view(), view(problems=PROBLEM, scale=None, backlog=None), view(erasing=ERASING, scale=None)):
        there = [each.type for each in readiness.everything(seen)]
        assert there == [kind for kind in REASONS if kind in there]
        assert {*always, "ScalingLimited"} <= set(there)


@pytest.mark.parametrize(
    ("kind", "reason", "seen"), CASES, ids=[f"{kind}-{reason}" for kind, reason, _ in CASES]
)
def test_a_message_is_a_sentence(kind: str, reason: str, seen: View) -> None:
    message = told(seen, kind).message
    assert message.strip() == message
    assert message.endswith((".", "?"))
    assert "None" not in message, reason


def test_what_is_unknown_now_may_have_been_known_before() -> None:
    """Redis, scanners or workers that were there and are away; pods that run on after a Secret was deleted."""
    for kind, reason, seen in CASES:
        if reason in {"MetricsUnavailable", "ReferenceNotFound"}:
            message = told(seen, kind).message
            assert "yet" not in message, kind
            assert "Pods start" not in message, kind


def test_not_degraded_claims_no_more_than_it_knows() -> None:
    assert "Nothing" not in told(view(backlog=UNREACHED), "Degraded").message


READY_ASKS_IN_THIS_ORDER = (
    ("Deleting", {"erasing": ERASING}),
    ("InvalidSpec", {"problems": PROBLEM}),
    ("ReferenceNotFound", {"missing": ("Secret shop-db",)}),
    ("Unreachable", {"backlog": UNREACHED}),
    ("PartiallyUnreachable", {"backlog": PARTLY}),
    ("ScannersNotReady", {"scanner": STARTING}),
    ("ClaimsSuspended", {"queue": replace(GUARDED, spec=replace(GUARDED.spec, stop_policy="Hold"))}),
    ("GuardUnreachable", {"guarding": GUARD_DOWN, "queue": GUARDED}),
    ("WorkersNotReady", {"worker": STARTING}),
)


def test_ready_names_the_first_cause_and_not_what_follows_from_it() -> None:
    """Without Redis neither scanners nor workers are ready: saying so would send people to the wrong place."""
    for first in range(len(READY_ASKS_IN_THIS_ORDER)):
        everything_after = {
            name: value
            for _, seen in reversed(READY_ASKS_IN_THIS_ORDER[first:])
            for name, value in seen.items()
        }
        assert told(view(**everything_after), "Ready").reason == READY_ASKS_IN_THIS_ORDER[first][0]


def test_ready_repeats_the_words_of_the_condition_it_sums_up() -> None:
    for kind, seen in (
        ("Accepted", view(problems=PROBLEM)),
        ("BackendAvailable", view(backlog=UNREACHED)),
        ("GuardAvailable", view(queue=GUARDED, guarding=GUARD_DOWN)),
    ):
        assert told(seen, "Ready").message == told(seen, kind).message


def test_what_keeps_pods_from_starting_is_in_ready() -> None:
    trouble = "orders-worker-1: ImagePullBackOff: no such image"
    assert trouble in told(view(worker=STARTING, troubles={"worker": trouble}), "Ready").message


def test_ready_says_why_there_is_no_ready_worker() -> None:
    """The last words of a pod first, then what keeps pods from being made, then what a running one waits for."""
    quota = replace(STARTING, refused="exceeded quota: compute")
    waiting = {"worker": "orders-worker-1 runs and waits until Redis answers it"}
    assert "exceeded quota: compute." in told(view(worker=quota, waiting=waiting), "Ready").message
    assert waiting["worker"] in told(view(worker=STARTING, waiting=waiting), "Ready").message
    none = told(view(worker=replace(STARTING, pods=0, updated=0)), "Ready").message
    assert "kubectl describe deployment orders-worker" in none
    rush = told(view(worker=quota, learnt=Learnt(waking=True), **scaled(decided())), "Ready")
    assert rush.status == "False"


def test_why_scanners_could_not_be_read_is_in_the_message() -> None:
    unread = view(backlog=None, unread="orders-scanner-1: no route")
    assert "cannot be read: orders-scanner-1: no route." in told(unread, "BackendAvailable").message
    assert "cannot be read: not yet." in told(view(backlog=None), "BackendAvailable").message


def test_shards_that_redis_does_not_serve_are_counted_and_named_with_their_server_and_what_to_look_at() -> (
    None
):
    message = told(view(queue=FOUR, backlog=PARTLY), "BackendAvailable").message
    assert message == (
        f"Redis does not serve 2 of 4 shards: shard 1 at 10.0.0.7:6379 ({OUTAGES['timeout']});"
        f" shard 3 ({OUTAGES['cluster_down']}). Their tasks wait; all others run."
    )


def test_of_many_servers_that_are_down_a_few_are_named() -> None:
    down = tuple(Down(shard, "refused", f"redis-{shard % 5}:6379") for shard in range(20))
    seen = replace(PARTLY, shards=Shards(shard_map=ShardMap(1, 32, 32, 32), down=down))
    message = told(view(backlog=seen), "BackendAvailable").message
    assert "20 of 32 shards" in message
    assert "shard 0, 5, 10, 15 at redis-0:6379" in message
    assert "and those of 2 more servers" in message


def test_what_a_change_of_shards_waits_for_is_told() -> None:
    def awaited(**seen: Any) -> str:  # noqa: ANN401 -- the fields of View
        return told(view(queue=FOUR, **seen), "ReshardingComplete").message

    assert awaited().startswith("Tasks are in 1 shard, spec.shards is 4: the first scanner")
    assert "the annotation delayq.dev/paused" in awaited(resource=PAUSED)
    assert "timed out progressing" in awaited(scanner=STUCK)
    down = (Down(0, "refused", "redis-0:6379"),)
    assert "shard 0 at redis-0:6379" in awaited(backlog=moving(ShardMap(1, 1, 1, 1), NOW - 60, down=down))


def test_what_keeps_tasks_from_moving_on_is_told() -> None:
    def stalled(**missing: Any) -> str:  # noqa: ANN401 -- the fields of Shards
        seen = moving(ShardMap(3, 4, 1, 4), NOW - 60, **missing)
        return told(view(queue=queue(shards=8), backlog=seen), "ReshardingComplete").message

    begin = "Tasks move from 1 shard to 4, and then to 8. Resharding cannot continue: "
    assert stalled(unled=(2,)) == f"{begin}no scanner is the leader of shard 2, or it cannot be read."
    assert stalled(down=DOWN[:1], unled=(2,)) == (
        f"{begin}Redis does not serve shard 1 at 10.0.0.7:6379 ({OUTAGES['timeout']})."
    )


def test_there_is_something_to_do_for_every_cause_of_an_outage() -> None:
    assert tuple(OUTAGES) == OUTAGES_THERE_ARE
    for cause, words in OUTAGES.items():
        found = told(view(backlog=replace(UNREACHED, outage=cause)), "BackendAvailable")
        assert (found.reason, found.message.endswith(f": {words}.")) == ("Unreachable", True)


@pytest.mark.parametrize(
    ("guard", "where"),
    [
        ({"redisLock": {}}, "the queue's Redis;"),
        ({"redlock": {"urlsSecretRef": {"name": "locks"}}}, "the Redis servers that Secret locks names;"),
        (
            {"sqlOptimistic": {"databaseSecretRef": {"name": "shop-db"}}},
            "the database that Secret shop-db names;",
        ),
    ],
)
def test_how_many_cannot_use_the_guard_is_told_and_where_to_look(
    guard: dict[str, object], where: str
) -> None:
    all_of_them = told(view(queue=queue(guard=guard), guarding=GUARD_DOWN), "GuardAvailable").message
    some = told(view(queue=queue(guard=guard), guarding=Guarding(able=2, unable=1)), "GuardAvailable").message
    assert all_of_them.startswith("0 of 3 workers can use the guard")
    assert some.startswith("1 of 3 workers cannot use the guard")
    for message in (all_of_them, some):
        assert where in message
        assert "guard_breaker_opened" in message


def test_what_pauses_is_quoted_when_it_does_not_pause() -> None:
    asked = resource(annotations={"delayq.dev/paused": "True"})
    assert told(view(resource=asked), "Paused").message == (
        'The annotation delayq.dev/paused is "True", neither true nor false: children follow the spec.'
    )


def test_a_monitor_that_is_asked_for_in_vain_is_no_error_and_is_told() -> None:
    found = told(view(unserved=("PodMonitor",)), "Accepted")
    assert (found.status, found.reason) == ("True", "Valid")
    assert found.message.endswith("not served by this cluster, or not to this operator: PodMonitor.")


def test_workers_that_do_not_find_their_code_are_told_of_the_image() -> None:
    """The operator's image may have the code, or a volume of the template: only a failure tells."""
    trouble = {"worker": 'orders-worker-1: Error: spec.handler.python.callable: no module "shop" in /'}
    cure = "set spec.worker.image."
    for kind in ("Ready", "Degraded"):
        assert told(view(worker=STARTING, troubles=trouble), kind).message.endswith(cure)
        theirs = view(queue=queue(worker={"image": "shop:1"}), worker=STARTING, troubles=trouble)
        assert cure not in told(theirs, kind).message
        other = view(worker=STARTING, troubles={"worker": "orders-worker-1: OOMKilled"})
        assert cure not in told(other, kind).message


def test_every_problem_of_a_spec_is_named_with_its_path() -> None:
    two = (*PROBLEM, Problem("spec.redis", "required"))
    assert told(view(problems=two), "Accepted").message == (
        "spec.worker.concurrency: expected a whole number from 1 to 10000; spec.redis: required."
        " Nothing was changed; correct the spec."
    )


def test_all_known_risks_are_explained_and_the_gravest_is_the_reason() -> None:
    found = told(view(backlog=replace(HEALTHY, risks=("append_only_off", "evicts"))), "DurabilityAtRisk")
    assert found.reason == "AppendOnlyOff"
    assert "appendonly yes" in found.message
    assert "noeviction" in found.message


def test_every_risk_that_scanners_tell_of_has_words() -> None:
    assert {*RISKS, "fsync_unknown", "unknown"} == set(DURABILITY_RISKS)


def test_a_shortfall_says_when_how_many_and_how_late() -> None:
    found = told(view(learnt=Learnt(rush=COMING)), "CapacityShortfallExpected").message
    assert "From 2027-01-15 08:10:00 UTC on" in found
    assert "11 min late" in found
    assert "63 workers" in found
