"""What is measured, one function a phase; each returns its lines of the table."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from delayq_operator.status.lasting import START_SECONDS

from benchmarks.figures import Figure, once, percentile
from benchmarks.operator.stage import KINDS, NAMESPACE, PER_QUEUE
from tests.cluster.operator import QUEUES, queue

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.operator.stage import Stage

EDITS: Final = 100
CREATORS: Final = 4
LONGEST_S: Final = 1800.0
DEADLINE_S: Final = 600.0
"""After it Kubernetes says of a Deployment whose pods stay Pending that it makes no progress, which is news."""
RSS_MIB: Final = 200


def created(stage: Stage, count: int, say: Callable[[str], None]) -> list[Figure]:
    """Create all queues at once, and wait until every child exists."""
    before, mark = stage.children(), stage.plane.audit_mark()
    wanted = {kind: before[kind] + count * PER_QUEUE.get(kind, 1) for kind in KINDS}
    began = time.monotonic()
    with ThreadPoolExecutor(CREATORS) as creators:
        list(creators.map(lambda number: _create(stage, number), range(count)))
    submitted_s = time.monotonic() - began
    while (there := stage.children()) != wanted:
        say(f"{_more(before, there):,} of {_more(before, wanted):,} children")
        if time.monotonic() - began > LONGEST_S:
            raise TimeoutError(f"children after {LONGEST_S:g} s: {there}, wanted {wanted}")
        time.sleep(1)
    took_s = time.monotonic() - began
    say("waiting until nothing is written any more")
    if took_s > DEADLINE_S / 4:  # else the other phases are over before the first Deployment reaches it
        time.sleep(DEADLINE_S)
    stage.settled(quiet_s=START_SECONDS + 10)  # no pod runs: each queue has an event NotReady after a minute
    writes = stage.writes(mark)
    about_children = [event for event in writes if event.resource in _PLURALS]
    status = [event for event in writes if event.subresource == "status"]
    return [
        once("A", f"create {count:,} queues until all children exist", "s", took_s),
        once("A", "  of which the API server took to accept them", "s", submitted_s),
        once("A", "  writes per queue: children", "", len(about_children) / count),
        once("A", "  writes per queue: status", "", len(status) / count),
        once(
            "A", "  writes per queue: events", "", (len(writes) - len(about_children) - len(status)) / count
        ),
        once("A", "operator RSS, everything settled", "MiB", stage.rss_mib, most=RSS_MIB),
        once("A", "operator RSS, at most so far", "MiB", stage.peak_rss_mib, most=RSS_MIB),
    ]


def _more(before: dict[str, int], there: dict[str, int]) -> int:
    return sum(there.values()) - sum(before.values())


_PLURALS: Final = frozenset(path.rpartition("/")[2] for path in KINDS.values())


def _create(stage: Stage, number: int) -> None:
    """A run of a reaper is news, which the operator reports."""
    body = queue(f"queue-{number:04}", reaper={"suspend": True})
    stage.plane.rest.create(QUEUES.format(namespace=NAMESPACE), body)


def idle(stage: Stage, seconds: float, say: Callable[[str], None]) -> list[Figure]:
    """Do nothing, and see that the operator does nothing either."""
    say(f"idle for {seconds:.0f} s")
    mark, cpu = stage.plane.audit_mark(), stage.cpu_seconds
    time.sleep(seconds)
    used, writes = stage.cpu_seconds - cpu, stage.writes(mark)
    for what, count in Counter((each.verb, each.resource, each.subresource) for each in writes).items():
        say(f"{count} × {' '.join(what)}")
    return [
        once("B", f"idle for {seconds:.0f} s: API writes", "", len(writes), most=0),
        once("B", "  CPU", "%", 100 * used / seconds),
    ]


def edits(stage: Stage, count: int, say: Callable[[str], None]) -> list[Figure]:
    """Edit one queue after another, and wait until its Deployment says the same."""
    say(f"{EDITS} edits, one after another")
    took_ms = [_edit(stage, number * count // EDITS, number) for number in range(EDITS)]
    return [
        once("C", "edit until applied, p50", "ms", percentile(took_ms, 50)),
        once("C", "edit until applied, p99", "ms", percentile(took_ms, 99), most=250),
    ]


def _edit(stage: Stage, number: int, salt: int) -> float:
    """Milliseconds from the answer to an edit until the child has changed; the watch is open before."""
    name, rest = f"queue-{number:04}", stage.plane.rest
    schedule = f"{salt % 60} * * * *"
    path = KINDS["CronJob"]
    version = rest.get(path, limit="1")["metadata"]["resourceVersion"]  # an object's own may be too old
    rest.patch(f"{QUEUES.format(namespace=NAMESPACE)}/{name}", {"spec": {"reaper": {"schedule": schedule}}})
    began = time.monotonic()
    for _, body in rest.watch(path, since=version):
        if body["metadata"]["name"] == f"{name}-reaper" and body["spec"]["schedule"] == schedule:
            break
    return (time.monotonic() - began) * 1000


def restarted(stage: Stage, count: int, say: Callable[[str], None]) -> list[Figure]:
    """Restart the operator, and wait until it has looked at every queue again."""
    stage.settled()
    say("restarting the operator")
    mark = stage.plane.audit_mark()
    ready_s = stage.restart()
    began = time.monotonic()
    while stage.operator.metric("delayq_operator_reconciles_total") < count:
        time.sleep(0.05)
    looked_s = ready_s + time.monotonic() - began
    stage.settled()
    return [
        once("D", "restart until it has seen everything", "s", ready_s),
        once("D", f"restart until all {count:,} queues are looked at", "s", looked_s),
        once("D", "  API writes", "", len(stage.writes(mark)), most=0),
        once("D", "  operator RSS", "MiB", stage.rss_mib, most=RSS_MIB),
    ]
