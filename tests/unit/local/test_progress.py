"""What `delayq run` says while its number of shards changes."""

from __future__ import annotations

import pytest
from delayq.local.panel import Fleet, scanner_line
from delayq.local.progress import Progress, moving, parse
from delayq.protocol.shard_map import ShardMap
from delayq.service.exposition import render
from delayq.service.metrics import shard_families

MOVING = ShardMap(3, 6, 3, 6, 6)
FLEET = Fleet(scanners=1, scanners_up=1, shards_led=6, workers=1, workers_up=1)


@pytest.mark.parametrize(
    ("shard_map", "said"),
    [
        (ShardMap.first(3), ""),
        (ShardMap(2, 3, 3, 6, 6), "about to move 3 → 6"),
        (MOVING, "moving 3 → 6: 1,373 of 3,000 looked at"),
    ],
)
def test_each_step_has_its_words(shard_map: ShardMap, said: str) -> None:
    assert moving(shard_map, Progress(1373, 3000)) == said


def test_progress_is_that_of_all_shards_that_a_scanner_moves() -> None:
    exported = shard_families("orders", MOVING, {}, {0: (2000, 1000, 5, 0), 1: (1000, 373, 5, 0)})
    text = render(exported).decode()
    assert parse(text) == Progress(1373, 3000)
    assert parse("").plus(parse(text)) == Progress(1373, 3000)


def test_the_scanners_line_counts_the_shards_there_are_and_says_what_moves() -> None:
    assert scanner_line(FLEET, 6, "moving 3 → 6") == "6 of 6 shards led, moving 3 → 6"
    assert scanner_line(FLEET, 6) == "6 of 6 shards led"
