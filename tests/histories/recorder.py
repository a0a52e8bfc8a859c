"""Writes down each script that a process sends to Redis, and its reply: one line before it is sent, one after.

It stands between the product and its connection, below every repetition of clients and workers: what a call does again
after a lost reply is an operation of its own. A process that is killed leaves lines without a reply.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias
from unittest.mock import patch

from delayq.connection.aio import Single
from delayq.connection.sync import SyncConnection
from delayq.errors import DelayQError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from delayq.connection.ticket import Ticket
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


Sent: TypeAlias = list[tuple[int | None, list[Any]]]
"""The number of each call, and its reply."""


class Recorder:
    """The lines of one process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.count, self._numbers = 0, itertools.count()

    def write(self, *line: Any) -> None:  # noqa: ANN401  JSON
        os.write(self._file, f"{json.dumps(line)}\n".encode())

    def invoked(self, call: Call[Any]) -> int | None:
        """Write a call down; None for one that changes nothing."""
        script, (count, *rest) = call.script, call.arguments
        if script.name in READS:
            return None
        number, keys, values = next(self._numbers), rest[: int(count)], rest[int(count) :]
        named = dict(zip(script.arguments, map(text, values), strict=False))
        if "claim" in script.keys:
            named["claimer"] = text(keys[script.keys.index("claim")])
        further = [text(each) for each in values[len(script.arguments) :]]
        self.count = number + 1
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

    def sent(self, calls: Sequence[Call[Any]]) -> Sent:
        """Write calls down that are about to be sent, and keep their replies."""
        found = [(self.invoked(call), list[Any]()) for call in calls]
        for call, (_, kept) in zip(calls, found, strict=True):
            call.decode = _keeping(call.decode, kept)
        return found

    @contextmanager
    def awaiting(self, sent: Sent) -> Iterator[list[Any]]:
        """Write down what comes back; the caller adds the answers to the list."""
        answers = list[Any]()
        try:
            yield answers
        except DelayQError as error:
            answers += [error] * len(sent)
            raise
        finally:
            answers += [None] * len(sent)
            for (number, kept), answer in zip(sent, answers, strict=False):
                if number is not None:
                    self.returned(number, kept, answer)

    @contextmanager
    def recording(self) -> Iterator[Self]:
        """Record every connection of this process for the length of a `with` block."""
        execute, start, done = Single.execute, SyncConnection.start, SyncConnection._done
        tickets: dict[int, Sent] = {}

        async def executed(single: Single, calls: Sequence[Call[Any]], *rest: Any) -> Any:  # noqa: ANN401
            with self.awaiting(self.sent(calls)) as answers:
                found, confirmed = await execute(single, calls, *rest)
                answers.extend(found)
            return found, confirmed

        def started(connection: SyncConnection, calls: Sequence[Call[Any]], *rest: Any) -> Ticket:  # noqa: ANN401
            sent = self.sent(calls)
            ticket = start(connection, calls, *rest)
            tickets[id(ticket)] = sent
            return ticket

        def ended(connection: SyncConnection, ticket: Ticket) -> Any:  # noqa: ANN401
            with self.awaiting(tickets.pop(id(ticket), [])) as answers:
                found, confirmed = done(connection, ticket)
                answers.extend(found)
            return found, confirmed

        try:
            with (
                patch.object(Single, "execute", executed),
                patch.object(SyncConnection, "start", started),
                patch.object(SyncConnection, "_done", ended),
            ):
                yield self
        finally:
            os.close(self._file)


def _keeping(decode: Any, kept: list[Any]) -> Any:  # noqa: ANN401  as Call has it
    def decoded(reply: Any) -> Any:  # noqa: ANN401
        kept.append(reply)
        return decode(reply)

    return decoded
