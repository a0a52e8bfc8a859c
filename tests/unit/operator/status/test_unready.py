"""A queue that does not become ready is reported once, after its start time."""

from __future__ import annotations

from delayq_operator.base.names import Key
from delayq_operator.status.unready import START_SECONDS, Unready

KEY = Key("shop", "orders")
SINCE = {"lastTransitionTime": "1970-01-01T00:01:40Z"}
STARTING = {"reason": "WorkersNotReady"} | SINCE
LOST = {"reason": "Unreachable"} | SINCE


def test_it_is_reported_once_when_the_time_is_over_whatever_the_cause_is_by_then() -> None:
    unready = Unready()
    assert unready.wait_seconds(KEY, STARTING, 100.0) == START_SECONDS
    assert unready.wait_seconds(KEY, LOST, 120.0) == START_SECONDS - 20
    assert unready.wait_seconds(KEY, LOST, 100.0 + START_SECONDS) == 0
    assert unready.wait_seconds(KEY, STARTING, 1_000.0) is None
    for other in ({"reason": "AsExpected"} | SINCE, {"reason": "Suspended"} | SINCE):
        assert unready.wait_seconds(KEY, other, 2_000.0) is None
        assert unready.wait_seconds(KEY, STARTING, 3_000.0) == START_SECONDS, "it begins anew"
    unready.reported(KEY)
    assert unready.wait_seconds(KEY, LOST, 4_000.0) is None, "another event has told of it"


def test_a_restarted_operator_reports_it_again_only_if_the_one_before_may_have_had_no_time() -> None:
    assert Unready().wait_seconds(KEY, LOST, 100.0 + 30) == START_SECONDS - 30
    assert Unready().wait_seconds(KEY, LOST, 100.0 + START_SECONDS + 30) == 0
    assert Unready().wait_seconds(KEY, LOST, 100.0 + 2 * START_SECONDS) is None
