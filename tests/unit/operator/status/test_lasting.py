"""What lasts is reported once it has for long enough, over time and over a restart of the operator."""

from __future__ import annotations

from delayq_operator.base.names import Key
from delayq_operator.status.lasting import (
    LONG_AGO,
    REPORTED,
    START_SECONDS,
    Lasting,
    parked_since,
    unready_since,
)

KEY = Key("shop", "orders")


def waits(lasting: Lasting, *times: tuple[float, bool], restarted: float | None = None) -> list[float | None]:
    return [lasting.wait_seconds(KEY, now, holds=holds, restarted=restarted) for now, holds in times]


def test_it_has_lasted_after_its_time_and_begins_anew_when_it_did_not_hold_meanwhile() -> None:
    found = waits(Lasting(60), (100, True), (120, True), (160, True), (200, True), (300, False), (310, True))
    assert found == [60, 40, 0, 0, None, 60]


def test_what_was_reported_is_not_reported_again_until_it_begins_anew() -> None:
    lasting = Lasting(60)
    lasting.reported(KEY)
    assert waits(lasting, (100, True), (1_000, True), (2_000, False), (3_000, True)) == [None, None, None, 60]


def test_a_restarted_operator_goes_on_from_what_the_status_says() -> None:
    assert waits(Lasting(60), (100, True), (110, False), (120, True), restarted=70) == [30, None, 60]
    assert waits(Lasting(60), (100, True), restarted=LONG_AGO) == [0]
    assert waits(Lasting(60), (100, True), (200, True), restarted=REPORTED) == [None, None]


def test_parked_tasks_that_were_reported_are_long_parked_after_a_restart() -> None:
    assert parked_since({"Degraded": {"reason": "TasksParked"}}) == LONG_AGO
    assert parked_since({"Degraded": {"reason": "AsExpected"}}) is None
    assert parked_since({}) is None


def test_a_restarted_operator_reports_an_unready_queue_only_if_the_one_before_may_have_had_no_time() -> None:
    ready = {"lastTransitionTime": "1970-01-01T00:01:40Z"}
    assert unready_since(ready, 100.0 + 2 * START_SECONDS - 1) == 100
    assert unready_since(ready, 100.0 + 2 * START_SECONDS) == REPORTED
