"""The worker's ends of a child's streams, without a child."""

from __future__ import annotations

import os

from delayq.handlers.child import Listen, Tail


async def test_what_a_child_said_last_is_read_before_it_is_settled() -> None:
    """The end of a process may be seen before the event loop has read its last words."""
    read_end, write_end = os.pipe()
    tail = Tail(100)
    listen = Listen(os.fdopen(read_end, "rb", buffering=0), (tail,))
    os.write(write_end, b"last words")
    listen.drain()  # the other end is still open: it must not wait for more
    os.close(write_end)
    assert bytes(tail.data) == b"last words"
