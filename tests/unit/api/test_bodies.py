"""The bodies in memory are bounded together, and large ones keep no small one away."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from delayq.api.bodies import BODIES_BYTES, FREE_BYTES, Room
from delayq.api.problems import ApiError

LARGE = 2 << 20


def test_a_large_body_is_refused_while_there_is_no_room() -> None:
    room = Room(LARGE)
    with ExitStack() as stack:
        for _ in range(BODIES_BYTES // LARGE):
            grow = stack.enter_context(room.body())
            for size in (FREE_BYTES, LARGE // 2, LARGE):
                grow(size)
        with room.body() as grow, pytest.raises(ApiError) as refused:
            grow(LARGE)
        assert (refused.value.kind, refused.value.headers) == ("busy", {"Retry-After": "1"})
        with room.body() as grow:
            grow(FREE_BYTES)
    with room.body() as grow:
        grow(BODIES_BYTES)


def test_one_body_of_any_allowed_size_fits() -> None:
    room = Room(BODIES_BYTES * 4)
    with room.body() as grow:
        grow(BODIES_BYTES * 4)


def test_two_batches_fit_beside_other_bodies() -> None:
    room = Room(LARGE)
    with room.body() as grow, room.batch(), room.batch():
        grow(LARGE)
        with pytest.raises(ApiError, match="2 batches are in memory already"), room.batch():
            pass
    with room.batch():
        pass
