"""The search finds an order if there is one: on histories made by hand, and beside trying every order."""

from __future__ import annotations

from itertools import permutations
from math import inf
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from tests.histories.checker import check
from tests.histories.history import Op
from tests.histories.life import NOTHING
from tests.histories.task_model import step

if TYPE_CHECKING:
    from collections.abc import Sequence

LEASE = {"lease_ms": 100, "limit": 1, "claim": "c 1"}


def schedule(
    lo: float, hi: float, result: str | None, *, body: str = "b", mode: str = "reject", when: str = "0"
) -> Op:
    args = {"if_exists": mode, "repeated": False, "when": when, "body": body, "wait": None, "deadline": None}
    return Op(0, "schedule", lo, hi, args, result)


def cancel(lo: float, hi: float, result: str | None) -> Op:
    return Op(0, "cancel", lo, hi, {}, result)


def lost_claim(lo: float, hi: float) -> Op:
    return Op(0, "claim", lo, hi, LEASE)


def test_an_operation_takes_effect_between_call_and_reply() -> None:
    """A cancellation may come before or after a concurrent call, but not before one that had ended."""
    assert check([schedule(0, 10, "created"), cancel(5, 15, "not_found")]).linearizable
    assert check([schedule(0, 10, "created"), cancel(5, 15, "cancelled")]).linearizable
    assert check([schedule(0, 10, "created"), cancel(11, 15, "not_found")]).linearizable is False


def test_an_unknown_operation_takes_effect_late_or_never() -> None:
    stored, lost = schedule(0, 1, "created"), cancel(2, inf, None)
    assert check([stored, lost, schedule(50, 51, "exists")]).linearizable
    assert check([stored, lost, schedule(50, 51, "created")]).linearizable
    assert (
        check([stored, lost, schedule(50, 51, "created"), schedule(60, 61, "created")]).linearizable is False
    )


def test_an_unknown_claim_takes_no_effect_after_its_latest_time() -> None:
    stored = schedule(0, 1, "created")
    later = [cancel(20, 21, "in_flight")]
    assert check([stored, lost_claim(2, 10), *later]).linearizable
    rewritten = [cancel(12, 13, "cancelled"), schedule(14, 15, "created")]
    assert check([stored, lost_claim(2, inf), *rewritten, *later]).linearizable
    assert check([stored, lost_claim(2, 10), *rewritten, *later]).linearizable is False


def test_no_task_is_claimed_before_it_is_due() -> None:
    stored = schedule(0, 1, "created", when="1000")
    assert check([stored, lost_claim(2, 500), cancel(600, 601, "in_flight")]).linearizable is False
    assert check([stored, lost_claim(2, 1500), cancel(1600, 1601, "in_flight")]).linearizable


def test_what_could_not_follow_is_shown() -> None:
    found = check([schedule(0, 1, "created"), cancel(2, 3, "cancelled"), cancel(4, 5, "cancelled")])
    assert [op.verb for op in found.furthest] == ["schedule", "cancel"]
    assert [op.lo for op in found.stuck] == [4]


def brute(ops: Sequence[Op]) -> bool:
    """Try every order of every set of operations that took effect."""
    for order in permutations(range(len(ops))):
        for first, nth in enumerate(order):
            if any(ops[later].required and ops[later].hi < ops[nth].lo for later in order[first + 1 :]):
                break
            if any(ops[later].hi < ops[nth].lo for later in order[first + 1 :]):
                break
        else:
            if _plays([ops[nth] for nth in order]):
                return True
    return False


def _plays(order: Sequence[Op]) -> bool:
    lives = {NOTHING}
    for op in order:
        after = {one for life in lives for one in step(life, op)}
        lives = after if op.required else after | lives
    return bool(lives)


def _random_op(draw: Any) -> Op:  # noqa: ANN401 -- hypothesis' own
    lo = draw(st.integers(0, 12))
    kind = draw(st.sampled_from(["schedule", "schedule", "cancel", "claim", "ack", "get"]))
    hi: float = lo + draw(st.integers(1, 8))
    unknown = draw(st.booleans()) and kind != "get"
    hi = inf if unknown and kind != "claim" else hi
    if kind == "schedule":
        result = draw(st.sampled_from(["created", "exists", "replaced", "follows"]))
        mode = "replace" if result in {"replaced", "follows"} or draw(st.booleans()) else "reject"
        result = "created" if mode == "replace" and result == "exists" else result
        return schedule(lo, hi, None if unknown else result, body=draw(st.sampled_from("ab")), mode=mode)
    if kind == "cancel":
        words = ["cancelled", "not_found", "in_flight", "follow_up_cancelled"]
        return cancel(lo, hi, None if unknown else draw(st.sampled_from(words)))
    if kind == "ack":
        args = {"token": lo * 1000 + 5, "known": False}
        return Op(0, "ack", lo, hi, args, None if unknown else draw(st.sampled_from(["acked", "lease_lost"])))
    return lost_claim(lo, hi) if kind == "claim" else Op(0, "get", lo, hi, {}, ())


@st.composite
def histories(draw: Any) -> list[Op]:  # noqa: ANN401
    return [_random_op(draw) for _ in range(draw(st.integers(1, 5)))]


@given(histories())
def test_the_search_finds_what_trying_every_order_finds(ops: list[Op]) -> None:
    assert check(ops).linearizable is brute(ops)
