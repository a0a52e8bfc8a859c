"""failures: what a person reads of a failed attempt, and what dead letters are grouped by."""

from __future__ import annotations

import json
import tracemalloc
from typing import TYPE_CHECKING

from delayq.client.dead_letters import fingerprint
from delayq.errors import Retry
from delayq.handlers.failures import (
    MAX_CHARS,
    MAX_ERROR_BYTES,
    MAX_FRAMES,
    bounded,
    described,
    traceback_of,
    with_frames,
)

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
    assert f"({__name__}:" in described(caught(lambda: json.loads("{"))), "also when a library raised"
    assert described(Retry("the gateway is down")) == "the gateway is down"


def test_details_stay_below_the_line_that_letters_are_grouped_by() -> None:
    first, second = (
        described(ValueError(f"order {n} not found\n  the receiver said: {text}"))
        for n, text in ((1, "no such row"), (22, "gone"))
    )
    assert first == "ValueError: order 1 not found\nthe receiver said: no such row"
    assert fingerprint(first) == fingerprint(second)


def test_an_exception_that_cannot_be_shown_is_still_described() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert described(Broken()) == "Broken: (its message cannot be shown: RuntimeError)"
    assert bounded("ü" * MAX_ERROR_BYTES) == "ü" * (MAX_ERROR_BYTES // 2), "cut between characters"


def nested() -> object:
    try:
        return lookup()
    except KeyError as error:
        raise ValueError("bad order") from error


def test_a_traceback_has_each_exception_with_its_frames_the_nearest_first() -> None:
    def group() -> None:
        raise BaseExceptionGroup("two failed", [caught(lookup), caught(nested)])

    line = lookup.__code__.co_firstlineno + 2
    both, first, second, cause = traceback_of(caught(group))
    assert both["error"] == "ExceptionGroup: two failed (2 sub-exceptions)"
    assert (first["error"], second["error"]) == ("KeyError: 'order'", "ValueError: bad order")
    assert cause["error"] == "KeyError: 'order'"
    assert cause["frames"][-1] == f'{__name__}:lookup line {line}: return orders["order"]'
    assert second["frames"][-1].endswith(': raise ValueError("bad order") from error')


def deeper(levels: int) -> None:
    if levels:
        deeper(levels - 1)
    raise ValueError("x" * 10_000)


def test_a_traceback_is_bounded() -> None:
    """In exceptions, in frames, of which the innermost stay, and in characters; and a circle of causes ends."""
    first, second = caught(lambda: deeper(500)), caught(lambda: deeper(500))
    first.__cause__, second.__cause__ = second, first
    found = traceback_of(first)
    assert len(found) == 2
    for each in found:
        assert len(each["frames"]) == MAX_FRAMES
        assert all(len(line) <= MAX_CHARS for line in [each["error"], *each["frames"]])
        assert each["frames"][-1].endswith('raise ValueError("x" * 10_000)')
    assert traceback_of(ValueError("never raised")) == []
    assert traceback_of(caught(lambda: Retry(delay_ms=-1))) != []  # raised in delayq, called from here


def test_a_dead_letter_keeps_as_many_of_the_last_frames_as_it_has_room_for() -> None:
    error = caught(lambda: deeper(50))
    first, *frames = with_frames("ValueError: no", error).splitlines()
    assert first == "ValueError: no"
    assert frames == traceback_of(error)[0]["frames"][-len(frames) :]
    assert 3 <= len(frames) < MAX_FRAMES
    assert len("\n".join([first, *frames])) <= MAX_ERROR_BYTES
    assert with_frames("y" * MAX_ERROR_BYTES, error) == "y" * MAX_ERROR_BYTES


def test_of_a_huge_message_only_the_beginning_is_read() -> None:
    error = ValueError("x y\n" * 500_000)
    tracemalloc.start()
    try:
        assert len(described(error)) <= MAX_ERROR_BYTES
        traceback_of(error)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
