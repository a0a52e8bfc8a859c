"""Where commands about one shard are sent while its slot moves: played without a server, answer by answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delayq.connection.place import Place
from delayq.connection.round_trip import round_trip
from delayq.connection.routing import ASKING, HOPS, Pause, Redirect, Routes, Send, answered_calls, routed
from delayq.protocol import write_durability
from delayq.protocol.commands import Commands
from delayq.protocol.keys import FORMAT
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MovedError,
    NoScriptError,
    ResponseError,
    TryAgainError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE, THERE = Place("10.0.0.1", 7000), Place("10.0.0.2", 7000)
ONE, TWO, TAIL = ("GET", "a"), ("GET", "b"), ("WAIT", 1, 100)


def moved() -> ResponseError:
    """As redis-py hands it over: without the word, which it keeps beside it."""
    error = MovedError("5 10.0.0.2:7000")
    error.status_code = "MOVED"
    return error


def ask() -> ResponseError:
    error = AskError("5 10.0.0.2:7000")
    error.status_code = "ASK"
    return error


def later(kind: type[ResponseError], word: str) -> ResponseError:
    error = kind("in a moment")
    error.status_code = word
    return error


class Played:
    """Answers what is asked, in turn, and notes what that was."""

    def __init__(self, commands: Sequence[Any], tail: Sequence[Any] = (), *, left: float = 5.0) -> None:
        self.learnt: list[Redirect | None] = []
        self.left = left
        self._steps = routed(commands, tail, Routes(self.learnt.append, lambda: self.left))
        self.step: Send | Pause = next(self._steps)
        self.result: tuple[list[Any], list[list[Any]]] | None = None

    def answer(self, *replies: object, by: Place = HERE) -> Send | Pause | None:
        """What comes next, None when that was all."""
        try:
            self.step = self._steps.send((by, list(replies)))
        except StopIteration as done:
            self.result = done.value
            return None
        return self.step


def test_what_is_answered_is_not_asked_again() -> None:
    played = Played([ONE, TWO], [TAIL])
    assert played.step == Send([ONE, TWO])
    assert played.answer(b"1", ResponseError("unknown command"), 1) is None
    assert played.result is not None
    replies, last = played.result
    assert (replies[0], str(replies[1]), last) == (b"1", "unknown command", [[1]])


MARK = ("EVAL", write_durability.MARK, 1, "stats", FORMAT)


def test_only_what_was_redirected_is_sent_again_and_each_server_says_what_it_has() -> None:
    played = Played([ONE, TWO], [TAIL])
    assert played.answer(b"1", moved(), 1) == Send([TWO])
    assert played.learnt == [Redirect("MOVED", 5, THERE)]
    assert played.answer(b"2", 0, by=THERE) is None
    assert played.result == ([b"1", b"2"], [[1], [0]])


def test_a_tail_behind_what_was_done_is_asked_again_only_of_the_same_server() -> None:
    """The mark may have been in another's slot, which has moved."""
    played = Played([ONE], [MARK, TAIL])
    assert played.answer(b"1", moved(), 1) == Send([MARK, TAIL], HERE, same=True)
    assert played.answer(7, 1) is None
    assert played.result == ([b"1"], [[7, 1]])
    assert played.learnt == []


def test_work_of_a_server_that_lost_its_slot_since_is_not_confirmed() -> None:
    """Else who was promoted would confirm what it never had."""
    played, refusal = Played([ONE], [MARK, TAIL]), moved()
    played.answer(b"1", moved(), 1)
    assert played.answer(refusal, 1) is None
    assert played.result == ([b"1"], [[refusal, 1]])


def test_what_was_done_before_the_rest_was_redirected_stays_unconfirmed() -> None:
    played, refusal = Played([ONE, TWO], [MARK, TAIL]), later(ClusterDownError, "CLUSTERDOWN")
    assert played.answer(b"1", moved(), moved(), 1) == Send([MARK, TAIL], HERE, same=True)
    assert played.answer(refusal, 0) == Send([TWO])
    assert played.answer(b"2", 1, 1, by=THERE) is None
    assert played.result == ([b"1", b"2"], [[refusal, 0], [1, 1]])


def test_a_tail_behind_what_was_not_done_is_not_asked_again() -> None:
    played = Played([ONE], [MARK, TAIL])
    assert played.answer(moved(), moved(), 1) == Send([ONE])
    assert played.answer(b"1", 7, 1, by=THERE) is None
    assert played.result == ([b"1"], [[7, 1]])


def test_a_tail_behind_nothing_goes_to_the_owner_of_its_slot() -> None:
    played = Played([], [MARK, TAIL])
    assert played.answer(moved(), 1) == Send([])
    assert played.answer(7, 1, by=THERE) is None
    assert played.result == ([], [[7, 1]])


def test_a_tail_that_is_asked_again_where_a_slot_arrives_says_so_again() -> None:
    played = Played([ONE], [MARK, TAIL])
    assert played.answer(ask(), 7, 1) == Send([ASKING, ONE, ASKING, MARK, ASKING, TAIL], THERE)
    step = played.answer(b"OK", b"1", b"OK", later(ClusterDownError, "CLUSTERDOWN"), b"OK", 1, by=THERE)
    assert step == Send([ASKING, MARK, ASKING, TAIL], THERE, same=True)
    assert played.answer(b"OK", 7, b"OK", 1, by=THERE) is None
    assert played.result == ([b"1"], [[7, 1]])


def test_asked_once_elsewhere_every_command_says_so() -> None:
    played = Played([ONE, TWO], [TAIL])
    assert played.answer(ask(), ask(), 1) == Send([ASKING, ONE, ASKING, TWO, ASKING, TAIL], THERE)
    assert played.learnt == []
    assert played.answer(b"OK", b"1", b"OK", b"2", b"OK", 1, by=THERE) is None
    assert played.result == ([b"1", b"2"], [[1]])


def test_what_may_be_answered_in_a_moment_is_asked_again_ever_less_often() -> None:
    played = Played([ONE])
    pauses = []
    for _ in range(8):
        pause = played.answer(later(TryAgainError, "TRYAGAIN"))
        assert isinstance(pause, Pause)
        pauses.append(pause.seconds)
        assert played.answer() == Send([ONE])
    assert pauses == [0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5, 0.5]
    assert played.learnt == []


def test_a_cluster_that_is_down_has_us_ask_who_holds_what() -> None:
    played = Played([ONE])
    assert isinstance(played.answer(later(ClusterDownError, "CLUSTERDOWN")), Pause)
    assert played.learnt == [None]


def test_without_time_left_the_refusal_is_the_answer() -> None:
    played = Played([ONE], left=0.01)
    refusal = later(TryAgainError, "TRYAGAIN")
    assert played.answer(refusal) is None
    assert played.result == ([refusal], [[]])


def test_two_nodes_that_name_each_other_are_not_asked_without_a_pause() -> None:
    played = Played([ONE])
    steps = [played.answer(moved()) for _ in range(HOPS + 1)]
    assert steps[:-1] == [Send([ONE])] * HOPS
    assert isinstance(steps[-1], Pause)


@pytest.mark.parametrize("apart", [False, True])
def test_in_a_cluster_each_script_names_a_key_that_is_never_there(*, apart: bool) -> None:
    commands = Commands("orders")
    call = commands.cancel("a")
    [command] = next(round_trip([call], "here", is_cluster=apart))
    many, keys = int(call.arguments[0]), call.arguments[1:]
    if not apart:
        assert command[2:] == (many, *keys)
    else:
        nothing = "delayq:{orders:0}:nothing"
        assert command[2:] == (many + 1, *keys[:many], nothing, *keys[many:])


def confirmations(*steps: list[Any]) -> list[Any]:
    """Of two calls that took several steps. Each may have gone to another server, after a fail-over in between."""
    commands = Commands("orders")
    asked = answered_calls([commands.counts(0), commands.cancel("a")], [MARK, TAIL], "here")
    next(asked)
    for replies in steps[:-1]:
        asked.send((HERE, replies))
    with pytest.raises(StopIteration) as done:
        asked.send((HERE, steps[-1]))
    confirmed: list[Any] = done.value.value[1]
    return confirmed


def test_each_step_that_ran_a_call_is_confirmed_by_its_own_server() -> None:
    """Where no script was known, nothing was done that the first step could confirm."""
    unknown = NoScriptError("No matching script")
    assert confirmations([[], unknown, 1, 0], [b"missing", 1, 1]) == [[1, 0], [1, 1]]
    assert confirmations([unknown, unknown, 1, 0], [[], b"missing", 2, 1]) == [[2, 1]]
