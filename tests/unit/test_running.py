"""running.described: what a person reads of a failed attempt, and what dead letters are grouped by."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from delayq.errors import Retry
from delayq.letters import fingerprint
from delayq.running import MAX_ERROR_BYTES, bounded, described

if TYPE_CHECKING:
    from collections.abc import Callable


def caught(act: Callable[[], object]) -> BaseException:
    try:
        act()
    except BaseException as error:  # noqa: BLE001 -- the error is what the test looks at
        return error
    raise AssertionError("nothing was raised")


def lookup() -> object:
    orders: dict[str, object] = {}
    return orders["order"]


def test_an_error_names_its_type_its_message_and_the_users_line() -> None:
    line = lookup.__code__.co_firstlineno + 2
    assert described(caught(lookup)) == f"KeyError: 'order' ({__name__}:lookup line {line})"


def test_the_place_is_the_users_own_even_when_a_library_raised() -> None:
    assert f"({__name__}:" in described(caught(lambda: json.loads("{")))


def test_a_retry_is_its_reason_and_nothing_else() -> None:
    assert described(Retry("the gateway is down")) == "the gateway is down"


def test_details_stay_below_the_line_that_letters_are_grouped_by() -> None:
    first, second = (
        described(ValueError(f"order {n} not found\n  the receiver said: {text}"))
        for n, text in ((1, "no such row"), (22, "gone"))
    )
    assert first == "ValueError: order 1 not found\nthe receiver said: no such row"
    assert fingerprint(first) == fingerprint(second)


def test_an_exception_that_cannot_be_shown_is_still_told() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert described(Broken()) == "Broken: (its message cannot be shown: RuntimeError)"


def test_an_error_is_cut_between_characters() -> None:
    assert bounded("ü" * MAX_ERROR_BYTES) == "ü" * (MAX_ERROR_BYTES // 2)
