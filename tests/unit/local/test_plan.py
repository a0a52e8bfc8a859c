from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from delayq.client.document import read_all
from delayq.local.plan import REAPER_SECONDS, Plan, Served

if TYPE_CHECKING:
    from pathlib import Path

QUEUE = """\
apiVersion: delayq.dev/v1alpha1
kind: DelayQueue
metadata: {name: shop}
spec:
  redis: {standalone: {host: not-used}}
  handler: {http: {url: "http://127.0.0.1:1/"}}
"""


@pytest.mark.parametrize(("scanners", "every_seconds"), [(1, REAPER_SECONDS), (0, None)])
def test_a_reaper_stays_only_if_no_scanner_reclaims_leases(
    tmp_path: Path, scanners: int, every_seconds: float | None
) -> None:
    (tmp_path / "queue.yaml").write_text(QUEUE)
    [document] = read_all([tmp_path / "queue.yaml"])
    plan = Plan(
        queues=(Served(document=document, workers=1),),
        redis_url="redis://127.0.0.1:1/0",
        data_dir=None,
        scanners=scanners,
        reaper=True,
        log_format="json",
        log_level="info",
        status_seconds=None,
    )
    commands = dict(plan.commands("redis://127.0.0.1:1/0"))
    assert ("--for" in commands["reaper"].argv) == (every_seconds is None)
    assert {name: each.every_seconds for name, each in commands.items() if each.every_seconds} == (
        {"reaper": every_seconds} if every_seconds else {}
    )
