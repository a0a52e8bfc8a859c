"""The lines of the panel of `delayq run`."""

from __future__ import annotations

import pytest
from delayq.client.document import parse_text
from delayq.local.measures import resharded
from delayq.local.panel import moving, scanner_line, worker_line
from delayq.local.relay import Relay
from delayq.protocol.shard_map import ShardMap
from delayq.service.exposition import render
from delayq.service.metrics import shard_families

from tests.redis.commands import DOCUMENT

MOVING = ShardMap(3, 6, 3, 6, 6)


@pytest.mark.parametrize(
    ("shard_map", "said"),
    [
        (ShardMap.first(3), ""),
        (ShardMap(2, 3, 3, 6, 6), ", about to move 3 → 6"),
        (MOVING, ", moving 3 → 6: 1,373 of 3,000 checked"),
    ],
)
def test_the_scanners_line_says_how_far_all_shards_have_moved(shard_map: ShardMap, said: str) -> None:
    scanner = Relay("scanner-1", lambda *_: None, lambda: None)
    scanner.led = {0, 1, 2, 3, 4, 7}
    exported = shard_families("orders", MOVING, {}, {0: (2000, 1000, 5, 0), 1: (1000, 373, 5, 0)})
    progress = resharded(render(exported).decode())
    assert scanner_line([scanner], 6, moving(shard_map, *progress)) == f"5 of 6 shards led{said}"


@pytest.mark.parametrize(
    ("policy", "said"),
    [('"None"', ""), ("Hold", ", claims no tasks (stopPolicy Hold)")],
)
def test_the_workers_line_names_a_hold(policy: str, said: str) -> None:
    queue = parse_text(f"{DOCUMENT}  stopPolicy: {policy}\n".replace("PORT", "1").encode(), "queue.yaml")
    worker = Relay("worker-1", lambda *_: None, lambda: None)
    worker.port = 1
    assert worker_line([worker], queue) == f"32 slots, handler json:dumps{said}"
