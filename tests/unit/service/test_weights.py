"""What tasks weigh is exported by shard, for who watches maxBytes."""

from __future__ import annotations

from delayq.contract.metrics import TASK_BYTES
from delayq.protocol.due_histogram import asked
from delayq.protocol.results import Counts
from delayq.service.metrics import queue_families


def test_bytes_are_exported_of_each_shard_that_is_led() -> None:
    found = {
        shard: Counts(
            9, 0, 0, 0, 0, 0, oldest_due_ms=None, next_due_ms=None, due_within={10_000: 0}, bytes=100 + shard
        )
        for shard in range(2)
    }
    families = queue_families("orders", {0: True, 1: True}, found, asked(["10"]))
    [weights] = [each for each in families if each.name == TASK_BYTES.name]
    assert {each.labels["shard"]: each.value for each in weights.samples} == {"0": 100, "1": 101}
