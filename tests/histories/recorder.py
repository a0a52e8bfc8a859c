"""Writes down each script that a process sends to Redis, and its reply: one line before it is sent, one after.

It stands between the product and its connection, below every repetition of clients and workers: what a call does again
after a lost reply is an operation of its own. A process that is killed leaves lines without a reply.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self
from unittest.mock import patch

from delayq.connection.aio import Single
from delayq.errors import DelayQError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from delayq.protocol.commands import Call

READS: Final = frozenset(
    {"wake", "elect", "counts", "list", "sync_shard_map", "lock", "unlock", "renew", "expired"}
)
"""Scripts that change no task, and say nothing about a single one."""


def text(value: Any) -> Any:  # noqa: ANN401  a reply, or an argument
    """The same as JSON can have it."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return [text(each) for each in value] if isinstance(value, list | tuple) else value


class Recorder:
    """The lines of one process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.count = 0

    def write(self, *line: Any) -> None:  # noqa: ANN401  JSON
        os.write(self._file, f"{json.dumps(line)}\n".encode())

    def invoked(self, call: Call[Any]) -> int | None:
        """Write a call down; None for one that changes nothing."""
        script, (count, *rest) = call.script, call.arguments
        if script.name in READS:
            return None
        number, keys, values = self.count, rest[: int(count)], rest[int(count) :]
        named = dict(zip(script.arguments, map(text, values), strict=False))
        if "claim" in script.keys:
            named["claimer"] = text(keys[script.keys.index("claim")])
        further = [text(each) for each in values[len(script.arguments) :]]
        self.count += 1
        self.write("call", number, time.monotonic_ns(), script.name, named, further)
        return number

    def returned(self, number: int, replies: list[Any], answer: object) -> None:
        """Write down what came back; an error of which Redis says that it ran nothing is a failure."""
        if replies:
            self.write("ok", number, time.monotonic_ns(), text(replies[-1]))
        elif isinstance(answer, Unavailable) and (answer.answered or answer.outage == "refused"):
            self.write("failed", number, time.monotonic_ns(), str(answer))
        else:
            self.write("unknown", number, time.monotonic_ns(), str(answer))

    @contextmanager
    def recording(self) -> Iterator[Self]:
        """Record every connection of this process for the length of a `with` block."""
        execute = Single.execute

        async def recorded(single: Single, calls: Sequence[Call[Any]], *rest: Any) -> Any:  # noqa: ANN401
            numbers, replies = [self.invoked(call) for call in calls], [list[Any]() for _ in calls]
            for call, kept in zip(calls, replies, strict=True):
                call.decode = _keeping(call.decode, kept)
            answers: Sequence[Any] = [None] * len(calls)
            try:
                answers, confirmed = await execute(single, calls, *rest)
            except DelayQError as error:
                answers = [error] * len(calls)
                raise
            finally:
                for number, kept, answer in zip(numbers, replies, answers, strict=False):
                    if number is not None:
                        self.returned(number, kept, answer)
            return answers, confirmed

        try:
            with patch.object(Single, "execute", recorded):
                yield self
        finally:
            os.close(self._file)


def _keeping(decode: Any, kept: list[Any]) -> Any:  # noqa: ANN401  as Call has it
    def decoded(reply: Any) -> Any:  # noqa: ANN401
        kept.append(reply)
        return decode(reply)

    return decoded
