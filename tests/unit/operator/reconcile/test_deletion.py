"""What a deletion says about Redis is what the pod of its Job has found."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from delayq_operator.reconcile.deletion import outage_of
from delayq_operator.scrape.backlog import Backlog

if TYPE_CHECKING:
    from delayq_operator.cache.children import Child

CREATED = 1_893_456_000.0


@pytest.mark.parametrize(("read_at", "outage"), [(-15.0, ""), (0.9, ""), (1.0, "refused")])
def test_a_reading_of_the_scanners_before_the_job_says_nothing_about_the_job(
    read_at: float, outage: str
) -> None:
    """A reading counts for 20 s. The scanners have stopped when the Job is created, within some second."""
    job = cast("Child", SimpleNamespace(body={"metadata": {"creationTimestamp": "2030-01-01T00:00:00Z"}}))
    assert outage_of(job, Backlog(read_at=CREATED + read_at, redis_up=False, outage="refused")) == outage
    assert outage_of(job, None) == ""
