"""The lines of the panel of `delayq run`."""

from __future__ import annotations

import pytest
from delayq.client.document import parse_text
from delayq.contract.metrics import LATENESS_BUCKETS
from delayq.local.measures import PARTS, Window
from delayq.local.panel import handler, scanner_line, status_line, worker_line
from delayq.local.relay import Relay
from delayq.protocol.results import Counts
from delayq.protocol.shard_map import ShardMap

from tests.redis.commands import DOCUMENT


@pytest.mark.parametrize(
    ("shard_map", "said"),
    [
        (ShardMap.first(3), ""),
        (ShardMap(2, 3, 3, 6, 6), ", about to move 3 → 6"),
        (ShardMap(3, 6, 3, 6, 6), ", moving 3 → 6"),
    ],
)
def test_the_scanners_line_says_that_tasks_move(shard_map: ShardMap, said: str) -> None:
    scanner = Relay("scanner-1", lambda *_: None, lambda: None)
    scanner.led[""] = {0, 1, 2, 3, 4, 7}
    assert scanner_line([scanner], 6, shard_map) == f"5 of 6 shards led{said}"


@pytest.mark.parametrize(
    ("suspend", "said"),
    [("false", ""), ("true", ", claims no tasks (spec.suspend is true)")],
)
def test_the_workers_line_says_that_the_queue_is_suspended(suspend: str, said: str) -> None:
    queue = parse_text(f"{DOCUMENT}  suspend: {suspend}\n".replace("PORT", "1").encode(), "queue.yaml")
    worker = Relay("worker-1", lambda *_: None, lambda: None)
    worker.port = 1
    assert worker_line([worker], queue) == f"32 slots, handler json:dumps{said}"


def test_the_workers_line_names_the_handlers_of_single_kinds() -> None:
    text = DOCUMENT.replace("PORT", "1").replace(
        "handler: {", "handler: {kinds: {push: {exec: {command: [cat, x]}}}, "
    )
    assert handler(parse_text(text.encode(), "queue.yaml")) == "json:dumps, push: cat x"


@pytest.mark.parametrize(
    ("late_seconds", "said"),
    [
        (0.0008, "late p50 1.0 ms p99 1.5 ms"),
        (76.0, "late p50 ≤ 300 s p99 ≤ 300 s"),
        (5000.0, "late p50 > 3,600 s p99 > 3,600 s"),
    ],
)
def test_a_lateness_in_a_wide_bucket_is_shown_as_its_bound(late_seconds: float, said: str) -> None:
    """Interpolation between 60 s and 300 s showed 180 s for tasks that began 76 s late."""
    bounds, window = (*LATENESS_BUCKETS, float("inf")), Window()
    hist = {part: {le: 10.0 * (part != PARTS[0] or le >= late_seconds) for le in bounds} for part in PARTS}
    window.add("worker-1", 1.0, hist)
    assert status_line(Counts(0, 0, 0, 0, 0, 0, None, None), window.lateness_ms(1.0)).endswith(said)
