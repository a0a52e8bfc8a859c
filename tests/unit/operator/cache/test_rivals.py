"""Two installations over one queue: the older one serves it, and the newer one writes nothing but claims."""

from __future__ import annotations

import pytest
from delayq_operator.base import names
from delayq_operator.base.names import Key
from delayq_operator.base.work_queue import LATER_SECONDS
from delayq_operator.cache.rivals import (
    CLAIM_SECONDS,
    REPORT_SECONDS,
    YIELD_SECONDS,
    Rivals,
    Stance,
    claim_in,
)

ORDERS = Key("shop", "orders")
OLD = "2026-01-01T00:00:00Z tools/delayq-operator"
NEW = "2026-02-01T00:00:00Z delayq/delayq-operator"


def installation(me: str) -> Rivals:
    made = Rivals()
    made.me = me
    return made


@pytest.mark.parametrize(
    "forged", [f"{OLD}{'x' * 200_000}", f"0{OLD[4:]}", OLD.replace("/", "/\n"), f"{NEW} {NEW}", "", " "]
)
def test_what_no_installation_writes_is_no_claim(forged: str) -> None:
    """A user who may edit the ConfigMap can write anything: it would be logged and shown in the status."""
    for claim, found in (
        (forged, ""),
        (OLD, OLD),
        (OLD.replace("Z", ".123456Z"), OLD.replace("Z", ".123456Z")),
    ):
        assert claim_in({"metadata": {"annotations": {names.INSTALLATION: claim}}}) == found


def test_one_alone_serves_at_once_and_the_older_one_reports_for_as_long_as_claims_come() -> None:
    rivals = installation(OLD)
    for now, claim in enumerate(("", OLD, OLD.replace("01", "02", 1))):  # its Lease was made anew
        assert rivals.stance(ORDERS, claim, now) is Stance.SERVE
    assert not rivals.seen(ORDERS, 2)
    assert rivals.stance(ORDERS, NEW, 3) is Stance.SERVE
    assert rivals.stance(ORDERS, OLD, 4) is Stance.SERVE
    assert rivals.seen(ORDERS, YIELD_SECONDS + CLAIM_SECONDS) == "delayq/delayq-operator"
    assert rivals.seen(ORDERS, 3 + REPORT_SECONDS) == ""
    rivals.stance(ORDERS, NEW, 5)
    rivals.forget(ORDERS)
    assert rivals.seen(ORDERS, 5) == ""


def test_the_newer_one_claims_once_and_yields_when_its_claim_is_replaced() -> None:
    rivals = installation(NEW)
    assert rivals.stance(ORDERS, OLD, 0) is Stance.CLAIM
    assert rivals.stance(ORDERS, NEW, 1) is Stance.CLAIM  # not yet: the other may be slow
    assert rivals.stance(ORDERS, OLD, 2) is Stance.YIELD
    assert rivals.stance(ORDERS, OLD, 1 + YIELD_SECONDS) is Stance.YIELD
    assert not rivals.claims(ORDERS)
    assert rivals.stance(ORDERS, OLD, 2 + YIELD_SECONDS) is Stance.CLAIM
    assert rivals.claims(ORDERS)


def test_the_newer_one_serves_minutes_after_the_older_one_was_uninstalled() -> None:
    """Until then neither operator scales: a queue without workers starts no task."""
    rivals = installation(NEW)
    rivals.stance(ORDERS, OLD, 0)
    assert rivals.stance(ORDERS, NEW, CLAIM_SECONDS - 1) is Stance.CLAIM
    assert rivals.stance(ORDERS, OLD, LATER_SECONDS) is Stance.YIELD  # and now the older one goes
    found, now = OLD, LATER_SECONDS
    while (stance := rivals.stance(ORDERS, found, now)) is not Stance.SERVE:
        found, now = NEW if stance is Stance.CLAIM else found, now + LATER_SECONDS
    assert now <= 240
    assert (rivals.seen(ORDERS, now), rivals.claims(ORDERS)) == ("", False)
