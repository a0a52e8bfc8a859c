"""Each condition takes each of its reasons when it should, and stands for one status with each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from delayq.contract import Problem
from delayq.contract.files import Reference
from delayq.contract.metrics import DURABILITY_RISKS
from delayq.contract.outages import REMEDIES
from delayq.scaling import Sample
from delayq_operator.base.names import SUSPEND_RECONCILIATION, worker
from delayq_operator.base.phrases import RISKS, timestamp
from delayq_operator.cache.workload import Workload
from delayq_operator.scaling.capacity_forecast import Rush
from delayq_operator.scaling.scaling import Observed, Scale
from delayq_operator.scrape.backlog import SuspendCommand, UnknownKind
from delayq_operator.scrape.lateness import StartedTasks
from delayq_operator.scrape.shards import Down, ShardMap, Shards
from delayq_operator.scrape.worker_reports import GuardCounts, Seen
from delayq_operator.status import readiness
from delayq_operator.status.reasons import REASONS
from delayq_operator.status.view import Erasing

from tests.unit.operator.queues import queue
from tests.unit.operator.views import HEALTHY, NOW, RUNNING, decided, resource, scaled, view

if TYPE_CHECKING:
    from delayq_operator.scrape.backlog import Backlog
    from delayq_operator.status.reasons import Condition
    from delayq_operator.status.view import View

PROBLEM = (Problem("spec.worker.concurrency", "expected a whole number from 1 to 10000"),)
NOTHING = Workload()
ASLEEP = Workload(exists=True, current=True)
HELD = SuspendCommand(NOW - 60)
DRAINED = HELD._replace(drains=True)
STARTING = Workload(exists=True, wanted=2, pods=2, updated=2, current=True, complete=False)
ROLLING = Workload(exists=True, wanted=2, pods=3, updated=1, ready=2, current=True)
STUCK = replace(ROLLING, stuck='ReplicaSet "orders-worker-1" has timed out progressing.')
MISSPELT = resource(annotations={SUSPEND_RECONCILIATION: "yes"})
LEFT_ALONE = resource(annotations={SUSPEND_RECONCILIATION: "true"})
UNREACHED = replace(HEALTHY, redis_up=False, whole=False)
HALF = replace(HEALTHY, whole=False)
LATE = replace(HEALTHY, due=2_000, oldest_due_at=NOW - 9)
EXTERNAL = queue(autoscaling={"mode": "External"}, worker={"replicas": 0})
BY_OTHERS = Scale(replicas=0, reason="ExternalAutoscaler", message="0 workers")
GUARDED = queue(guard={"sqlUnique": {"databaseSecretRef": {"name": "shop-db"}}})
WEB = {"serviceAccount": {"namespace": "web", "name": "shop"}, "verbs": ["schedule"]}
WITH_API = queue(api={"allowPlainHttp": True, "access": [WEB]})
GUARD_DOWN = GuardCounts(unable=3)
HTTP = {"url": "https://shop/", "secretHeaders": {"Authorization": {"name": "shop", "key": "token"}}}
TOKEN, PASSWORD = Reference("Secret", "shop", "token"), Reference("Secret", "login", "password")
UNBEGUN = replace(UNREACHED, missing=(PASSWORD,), begun=False)
"""What scanners say that cannot begin without a key."""
AWAITS_A_KEY: dict[str, Any] = {
    "queue": queue(recovery={"check": {"http": HTTP}}),
    "backlog": replace(HEALTHY, missing=(TOKEN,)),
}
ERASING = Erasing(message="Job orders-erase erases the tasks.")
LATE_AT_WORK = replace(LATE, in_flight=8)
IDLE = Sample(ready=1)
RUSH = Sample(overdue=5_000, ready=1)
FALLBACK = {"afterSeconds": 10, "replicas": 4}
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
    shards=Shards(shard_map=ShardMap(1, 4, 4, 4), down=DOWN, leaderless=(2,)),
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


PARKED = replace(
    HEALTHY,
    parked=12_345,
    unknown_kinds=(
        UnknownKind("push", 2, 12_340, NOW - 3600),
        UnknownKind("", 0, 4, None),
        UnknownKind("refund", 1, 1, NOW),
    ),
)

OBSTACLES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("Deleting", {"erasing": ERASING}),
    ("InvalidSpec", {"problems": PROBLEM}),
    ("ReferenceNotFound", {"backlog": UNBEGUN, "scanner": STARTING}),
    ("Unreachable", {"backlog": UNREACHED}),
    ("PartiallyUnreachable", {"backlog": PARTLY}),
    ("ScannersNotReady", {"scanner": STARTING}),
    ("GuardUnreachable", {"workers": Seen(guard=GUARD_DOWN), "queue": GUARDED}),
    ("WorkersNotReady", {"worker": STARTING}),
)
"""Reason of Ready, and what leads to it: causes come before their effects."""

SEEN: dict[str, list[tuple[str, View]]] = {
    "Ready": [
        *[(reason, view(**seen)) for reason, seen in OBSTACLES],
        ("AsExpected", view()),
        ("AsExpected", view(worker=ASLEEP, queue=EXTERNAL, scale=BY_OTHERS)),  # an HPA may want none
        ("NoWorkers", view(worker=ASLEEP)),  # a fixed number stays there
        ("AsExpected", view(worker=ROLLING)),  # the old ones still work
        ("ReferenceNotFound", view(workers=Seen(missing=(TOKEN,)), worker=STARTING)),
        ("AsExpected", view(workers=Seen(missing=(TOKEN,)))),  # of a rollout: old workers run
        ("AsExpected", view(**AWAITS_A_KEY)),  # a check is asked after a crash only
        ("AsExpected", view(backlog=None)),  # unknown, but scanners are ready, which takes Redis
        ("PolicyViolation", view(forbidden=PROBLEM)),
        ("RedisNotEmpty", view(redis_not_empty="the old one holds tasks")),
        ("Suspended", view(queue=queue(suspend=True))),
        ("Suspended", view(queue=queue(suspend=True, suspendPolicy="Drain"), worker=ASLEEP)),
        ("Suspended", view(command=HELD)),
        ("Suspended", view(command=DRAINED, worker=ASLEEP)),
        ("Unreachable", view(queue=queue(suspend=True), backlog=UNREACHED)),  # a stop hides no fault
        ("WorkersNotReady", view(queue=queue(suspend=True), worker=STARTING)),
        ("AsExpected", view(queue=GUARDED, workers=Seen(guard=GuardCounts(able=2, unable=1)))),
        ("AsExpected", view(worker=ASLEEP, **scaled(decided(IDLE, replicas=0)))),
        ("AsExpected", view(worker=STARTING, observed=Observed(waking=True))),
        *[
            (
                "AsExpected" if stuck < 2 else "WorkersNotReady",
                view(
                    worker=Workload(exists=True, wanted=3, pods=pods, refused=refused),
                    observed=Observed(waking=True),
                    troubles={"worker": "w-1: Unschedulable"},
                    stuck_workers=stuck,
                ),
            )
            # Of three, or of the two that a quota admits, at least one still starts.
            for pods, refused, stuck in ((3, "", 1), (3, "", 3), (2, "exceeded quota", 1), (2, "quota", 2))
        ],
        (
            "WorkersNotReady",
            view(worker=replace(STARTING, pods=0, refused="quota"), observed=Observed(waking=True)),
        ),
    ],
    "Accepted": [
        ("InvalidSpec", view(problems=PROBLEM)),
        ("RedisNotEmpty", view(redis_not_empty="the old one holds tasks")),
        ("PolicyViolation", view(forbidden=PROBLEM)),
        ("Valid", view(unserved=("PodMonitor",))),
    ],
    "BackendAvailable": [
        ("Connected", view()),
        ("Connected", view(backlog=HALF)),  # a shard without a leader is not Redis' fault
        ("PartiallyUnreachable", view(backlog=PARTLY, queue=FOUR)),
        ("Unreachable", view(backlog=UNREACHED)),
        ("ScannersReady", view(backlog=None, unread="no route")),
        ("NoScanners", view(backlog=None, scanner=ASLEEP)),
        ("MetricsUnavailable", view(backlog=None, scanner=STARTING)),
        ("MetricsUnavailable", view(backlog=UNBEGUN, scanner=STARTING)),
    ],
    "DurabilityMet": [
        *[(reason, view(backlog=replace(HEALTHY, risks=(risk,)))) for risk, (reason, _) in RISKS.items()],
        ("Evicts", view(backlog=replace(HEALTHY, risks=("evicts", "unknown")))),
        ("NoRiskFound", view()),
        ("DurabilityUnknown", view(backlog=replace(HEALTHY, risks=("unknown",)))),
        ("FsyncUnknown", view(backlog=replace(HEALTHY, risks=("fsync_unknown",)))),
        ("MetricsUnavailable", view(backlog=None)),
        ("MetricsUnavailable", view(backlog=UNREACHED)),  # no sample is not the same as no risk
    ],
    "ReshardingComplete": [
        ("Complete", view(queue=FOUR, backlog=moving(ShardMap(1, 4, 4, 4)))),
        ("Complete", view(queue=FOUR, backlog=PARTLY)),  # where they are is known all the same
        ("Pending", view(queue=FOUR)),
        ("Preparing", view(queue=FOUR, backlog=moving(ShardMap(2, 1, 1, 4)))),
        ("Migrating", view(queue=FOUR, backlog=moving(ShardMap(3, 4, 1, 4)))),
        ("Migrating", view(queue=FOUR, backlog=moving(ShardMap(3, 4, 1, 4), NOW - 19, leaderless=(1,)))),
        ("ReshardingStalled", view(backlog=moving(ShardMap(3, 4, 1, 4), NOW - 20, leaderless=(1,)))),
        ("ReshardingStalled", view(backlog=moving(ShardMap(2, 1, 1, 4), NOW - 20, down=DOWN))),
        ("NoScanners", view(queue=FOUR, backlog=None, scanner=ASLEEP)),
        ("MetricsUnavailable", view(queue=FOUR, backlog=None)),
        # Tasks moved a moment ago.
        ("MetricsUnavailable", view(backlog=None, resource=resource(status={"resharding": {"toShards": 1}}))),
        # an older scanner
        ("MetricsUnavailable", view(queue=FOUR, backlog=replace(HEALTHY, shards=Shards()))),
    ],
    "GuardAvailable": [
        ("Connected", view(queue=GUARDED, workers=Seen(guard=GuardCounts(able=2)))),
        ("PartiallyUnreachable", view(queue=GUARDED, workers=Seen(guard=GuardCounts(able=2, unable=1)))),
        ("Unreachable", view(queue=GUARDED, workers=Seen(guard=GUARD_DOWN))),
        ("NoWorkers", view(queue=GUARDED, worker=ASLEEP)),
        ("MetricsUnavailable", view(queue=GUARDED)),
    ],
    "ObjectiveMet": [
        ("GuardUnreachable", view(queue=GUARDED, workers=Seen(guard=GUARD_DOWN), backlog=LATE)),
        ("WithinObjective", view()),
        ("Suspended", view(backlog=LATE, queue=queue(suspend=True))),
        ("Suspended", view(backlog=LATE, command=HELD)),
        ("Suspended", view(backlog=LATE, queue=queue(suspend=True, suspendPolicy="Drain"), worker=STARTING)),
        ("TasksLate", view(backlog=LATE_AT_WORK)),
        ("TasksLate", view(backlog=replace(LATE_AT_WORK, oldest_due_at=None, late_at=NOW - 11))),
        ("WithinObjective", view(backlog=replace(LATE_AT_WORK, oldest_due_at=None, late_at=NOW - 12))),
        (
            "WithinObjective",
            view(workers=Seen(started=StartedTasks(1000, 1)), queue=queue(objective={"percentile": "99.9"})),
        ),
        (
            "TasksLate",
            view(workers=Seen(started=StartedTasks(1000, 2)), queue=queue(objective={"percentile": "99.9"})),
        ),
        ("WithinObjective", view(workers=Seen(started=StartedTasks(10_000_000)), backlog=LATE_AT_WORK)),
        ("WorkersNotReady", view(backlog=LATE_AT_WORK, worker=STARTING)),
        ("NoTasksClaimed", view(backlog=LATE)),
        ("WithinObjective", view(backlog=LATE, queue=queue(objective={"latenessMilliseconds": 10_000}))),
        ("MaxInFlight", view(backlog=LATE_AT_WORK, queue=queue(limits={"maxInFlight": 8}))),
        ("TasksLate", view(backlog=LATE_AT_WORK, queue=queue(limits={"maxInFlight": 9}))),
        ("RatePerSecond", view(backlog=LATE, queue=queue(limits={"ratePerSecond": 5}))),
        ("WorkersNotReady", view(backlog=LATE, worker=STARTING, queue=queue(limits={"ratePerSecond": 5}))),
        ("MaxReplicas", view(backlog=LATE_AT_WORK, **scaled(decided(RUSH)))),
        ("ScaleUpPolicy", view(backlog=LATE_AT_WORK, **scaled(decided(RUSH, behavior={"scaleUp": SLOWLY})))),
        ("MetricsUnavailable", view(backlog=None)),
        ("MetricsUnavailable", view(backlog=replace(LATE, whole=False))),
    ],
    "ApiAvailable": [
        ("PodsReady", view(queue=WITH_API, api=RUNNING)),
        ("NoReplicas", view(queue=WITH_API, api=ASLEEP)),
        ("PodsNotReady", view(queue=WITH_API)),
        ("PodsNotReady", view(queue=WITH_API, api=STARTING)),
        (
            "IssuerKeysNotFound",
            view(queue=WITH_API, api=RUNNING, issuer_unknown="Forbidden: /openid/v1/jwks"),
        ),
    ],
    "Progressing": [
        ("NewReplicaSetAvailable", view()),
        ("ReplicaSetUpdated", view(worker=ROLLING)),
        ("ReplicaSetUpdated", view(scanner=replace(RUNNING, current=False))),
        ("WaitingForDeletion", view(leaving=("Deployment orders-worker",))),
        ("Erasing", view(erasing=ERASING)),
        ("ReconciliationSuspended", view(resource=LEFT_ALONE, worker=ROLLING)),
        ("DeploymentPaused", view(worker=replace(RUNNING, paused=True))),
        ("ProgressDeadlineExceeded", view(scanner=ROLLING, worker=STUCK)),
        ("DeploymentNotFound", view(scanner=NOTHING, worker=NOTHING, problems=PROBLEM)),
    ],
    "Degraded": [
        ("AsExpected", view()),
        ("QueueConflict", view(sharing=("shop/orders2",))),
        ("OperatorConflict", view(rival="tools/delayq-operator")),
        ("PodsRejected", view(worker=replace(RUNNING, refused="exceeded quota: pods"))),
        ("PodsRejected", view(podless_run=True)),
        ("RolloutPaused", view(worker=replace(RUNNING, paused=True))),
        ("PodsFailing", view(troubles={"worker": "orders-worker-1: CrashLoopBackOff: no module"})),
        ("ReferenceNotFound", view(**AWAITS_A_KEY)),
        ("ReferenceNotFound", view(**AWAITS_A_KEY, troubles={"reaper": "orders-reaper-1: DeadlineExceeded"})),
        ("AsExpected", view(erasing=ERASING)),
        ("EraseFailed", view(erasing=replace(ERASING, failed=True))),
        ("NameConflict", view(taken=("Deployment orders-worker",), foreign=("container a",))),
        ("ApplyFailed", view(failures=("CronJob orders-reaper: no.",), foreign=("container a",))),
        ("UnmanagedFields", view(foreign=("container proxy of Deployment orders-worker",))),
        ("InvalidAnnotation", view(resource=MISSPELT, backlog=PARKED, long_parked=True)),
        ("TasksParked", view(backlog=PARKED, long_parked=True)),
        ("AsExpected", view(backlog=PARKED)),  # a rollout parks tasks for a moment
    ],
    "ScalingActive": [
        *[
            (reason, view(scale=Scale(replicas=1, reason=reason, message="why")))
            for reason in sorted(REASONS["ScalingActive"].keys() - {"NotEvaluated"})
        ],
        ("NotEvaluated", view(scale=None, problems=PROBLEM)),
        ("ValidMetricFound", view(**scaled(decided(IDLE)))),
        ("MetricsUnavailable", view(**scaled(decided(None)))),
        ("FallbackActive", view(**scaled(decided(None, fallback=FALLBACK)))),
    ],
    "ScalingLimited": [
        ("DesiredWithinRange", view()),
        ("MaxReplicas", view(**scaled(decided(RUSH)))),
        ("MinReplicas", view(**scaled(decided(IDLE, minReplicas=1)))),
        ("ScaleUpPolicy", view(**scaled(decided(RUSH, behavior={"scaleUp": SLOWLY})))),
        ("ScaleDownPolicy", view(**scaled(SLOW_DOWN))),
        ("MaxInFlight", view(**limited("MaxInFlight"))),
        ("RatePerSecond", view(**limited("RatePerSecond"))),
    ],
    "CapacityShortfallExpected": [
        ("MaxReplicas", view(observed=Observed(rush=COMING))),
    ],
    "Suspended": [
        ("NotSuspended", view()),
        ("Holding", view(queue=queue(suspend=True))),
        ("Draining", view(queue=queue(suspend=True, suspendPolicy="Drain"), worker=ROLLING)),
        ("Drained", view(queue=queue(suspend=True, suspendPolicy="Drain"), worker=ASLEEP)),
        ("Holding", view(command=HELD)),
        ("Draining", view(command=DRAINED, worker=ROLLING)),
        ("Drained", view(command=DRAINED, worker=ASLEEP)),
        ("InvalidSpec", view(queue=None, problems=PROBLEM, command=HELD)),
    ],
}
CASES = [(kind, reason, seen) for kind, cases in SEEN.items() for reason, seen in cases]

ABSENT = [
    ("ReshardingComplete", view()),
    ("ReshardingComplete", view(backlog=None)),
    ("GuardAvailable", view()),
    ("ApiAvailable", view()),
    ("ApiAvailable", view(queue=None, problems=PROBLEM)),
    ("CapacityShortfallExpected", view(**scaled(decided(IDLE)))),
    ("ObjectiveMet", view(queue=None, problems=PROBLEM)),
]


def reported(seen: View, kind: str) -> Condition:
    return next(each for each in readiness.everything(seen) if each.type == kind)


@pytest.mark.parametrize(
    ("kind", "reason", "seen"), CASES, ids=[f"{kind}-{reason}" for kind, reason, _ in CASES]
)
def test_a_condition_has_the_reason_that_the_view_calls_for_and_a_sentence(
    kind: str, reason: str, seen: View
) -> None:
    found = reported(seen, kind)
    assert (found.reason, found.status) == (reason, REASONS[kind][reason])
    assert found.message.strip() == found.message
    assert found.message.endswith((".", "?"))
    assert "None" not in found.message
    if reason in ("MetricsUnavailable", "ReferenceNotFound"):
        assert " yet" not in found.message, "it may have been known before"


def test_every_reason_can_be_reached() -> None:
    """A reason that nothing leads to would be documented in vain."""
    every = {(kind, reason) for kind, reasons in REASONS.items() for reason in reasons}
    assert {(kind, reason) for kind, reason, _ in CASES} == every


@pytest.mark.parametrize(("kind", "seen"), ABSENT)
def test_a_condition_that_does_not_apply_is_absent(kind: str, seen: View) -> None:
    assert kind not in {each.type for each in readiness.everything(seen)}


def test_ready_names_the_first_cause_and_not_what_follows_from_it() -> None:
    """Without Redis neither scanners nor workers are ready: saying so would send people to the wrong place."""
    for first, (reason, _) in enumerate(OBSTACLES):
        after = [seen for _, seen in reversed(OBSTACLES[first:])]
        made = view(**{name: value for seen in after for name, value in seen.items()})
        assert reported(made, "Ready").reason == reason


# --- What messages say.

NO_IMAGE = {"worker": "orders-worker-1: ImagePullBackOff: no such image"}
NO_CODE = {"worker": 'orders-worker-1: Error: spec.handler.python.callable: no module "shop" in /'}
ROUTED = {"exec": {"command": ["true"]}, "kinds": {"push": {"python": {"callable": "shop:push"}}}}
SET_IMAGE = "set spec.worker.image."
QUOTA = replace(STARTING, refused="exceeded quota: compute")
WAITING = {"worker": "orders-worker-1 runs and waits for Redis or for a Secret"}
MANY_DOWN = tuple(Down(shard, "refused", f"redis-{shard % 5}:6379") for shard in range(20))
ON_MANY = replace(PARTLY, shards=Shards(shard_map=ShardMap(1, 32, 32, 32), down=MANY_DOWN))
REDIS_0 = (Down(0, "refused", "redis-0:6379"),)
EIGHT = queue(shards=8)
STALLED = "Tasks move from 1 shard to 4, and then to 8. Resharding cannot continue: "


def stalled(**missing: Any) -> View:  # noqa: ANN401 -- the fields of Shards
    return view(queue=EIGHT, backlog=moving(ShardMap(3, 4, 1, 4), NOW - 60, **missing))


def guarded(guard: dict[str, object]) -> View:
    return view(queue=queue(guard=guard), workers=Seen(guard=GuardCounts(able=2, unable=1)))


LONG = "orders." * 10 + "eu"

MESSAGES: list[tuple[str, View, str]] = [
    *[
        ("Ready", view(backlog=replace(UNREACHED, outage=cause)), f"cannot reach Redis: {REMEDIES[known]}.")
        for cause, known in (("timeout", "timeout"), ("of a newer scanner", "other"))
    ],
    # The last words of a pod first, then what keeps pods from being made, then what a running one waits for.
    ("Ready", view(worker=QUOTA, troubles=NO_IMAGE), NO_IMAGE["worker"]),
    ("Ready", view(worker=QUOTA, waiting=WAITING), "exceeded quota: compute."),
    ("Ready", view(worker=STARTING, waiting=WAITING), WAITING["worker"]),
    (
        "ObjectiveMet",
        view(backlog=LATE, worker=STARTING, waiting=WAITING),
        f"are ready: {WAITING['worker']}.",
    ),
    ("ObjectiveMet", view(backlog=LATE, queue=queue(suspend=True)), "spec.suspend is true: no task"),
    (
        "Suspended",
        view(command=HELD),
        "delayq suspend is in effect since 2027-01-15T07:59:00Z: no task is claimed.",
    ),
    (
        "Suspended",
        view(command=DRAINED, queue=queue(suspend=True)),
        "spec.suspend is true and delayq suspend is in",
    ),
    (
        "ScalingActive",
        view(unread="no route", **scaled(decided(None, fallback=FALLBACK))),
        "Last error: no route.",
    ),
    # The name of a Deployment is shortened.
    (
        "Ready",
        view(worker=replace(STARTING, pods=0), resource=resource(name=LONG)),
        f"kubectl describe deployment {worker(LONG)}.",
    ),
    (
        "Degraded",
        view(worker=replace(RUNNING, paused=True), resource=resource(name=LONG)),
        f"kubectl rollout resume deployment/{worker(LONG)} --namespace",
    ),
    ("Ready", view(worker=STARTING, troubles=NO_CODE), SET_IMAGE),
    (
        "Degraded",
        view(backlog=PARKED, long_parked=True),
        f"of 12,000 tasks: push version 2 (12,000 tasks, the oldest due {timestamp(NOW - 3600)}), without a kind (4",
    ),
    ("Ready", view(queue=queue(handler=ROUTED), worker=STARTING, troubles=NO_CODE), SET_IMAGE),
    ("BackendAvailable", view(backlog=ON_MANY), "20 of 32 shards: shard 0, 5, 10, 15 at redis-0:6379"),
    (
        "ReshardingComplete",
        view(queue=FOUR, backlog=moving(ShardMap(1, 1, 1, 1), NOW - 60, down=REDIS_0)),
        "shard 0 at redis-0:6379",
    ),
    (
        "ReshardingComplete",
        stalled(leaderless=(2,)),
        f"{STALLED}no scanner is the leader of shard 2, or it cannot be read.",
    ),
    (
        "ReshardingComplete",
        stalled(down=DOWN[:1], leaderless=(2,)),
        f"{STALLED}Redis does not serve shard 1 at",
    ),
    ("GuardAvailable", guarded({"redisLock": {}}), "the queue's Redis;"),
    (
        "GuardAvailable",
        guarded({"redlock": {"urlsSecretRef": {"name": "locks"}}}),
        "the Redis servers that Secret locks names;",
    ),
    # All known risks are explained.
    ("DurabilityMet", view(backlog=replace(HEALTHY, risks=("append_only_off", "evicts"))), "noeviction"),
    (
        "CapacityShortfallExpected",
        view(observed=Observed(rush=COMING)),
        "From 2027-01-15 08:10:00 UTC on tasks start up to 11 min late, even with maxReplicas: 63 workers",
    ),
]


@pytest.mark.parametrize(("kind", "seen", "words"), MESSAGES)
def test_a_message_says_what_is_wrong_and_what_helps(kind: str, seen: View, words: str) -> None:
    assert words in reported(seen, kind).message


@pytest.mark.parametrize("kind", ["Ready", "Degraded"])
def test_an_image_is_asked_for_only_where_code_is_missing_and_none_was_given(kind: str) -> None:
    """The operator's image may have the code, or a volume of the template: only a failure tells."""
    theirs = view(queue=queue(worker={"image": "shop:1"}), worker=STARTING, troubles=NO_CODE)
    for seen in (theirs, view(worker=STARTING, troubles={"worker": "orders-worker-1: OOMKilled"})):
        assert SET_IMAGE not in reported(seen, kind).message


def test_there_are_words_for_every_risk_that_scanners_tell_of() -> None:
    assert {*RISKS, "fsync_unknown", "unknown"} == set(DURABILITY_RISKS)


def test_a_check_without_its_key_is_named_with_what_decides_meanwhile_and_what_to_do() -> None:
    [reported] = [each for each in readiness.everything(view(**AWAITS_A_KEY)) if each.type == "Degraded"]
    assert reported.message == (
        "key token of Secret shop not found, or not usable, in namespace shop. Create or correct it: the pods that "
        "wait for it read it within two minutes, without a restart. spec.recovery.check cannot be called without it: "
        "until then, onFailure (Wait) decides about each task whose lease expires."
    )
