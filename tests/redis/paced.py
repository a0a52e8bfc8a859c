"""Drives what the product does, a call at a time, so that a test can do something else between any two of them.

The code and Redis are the real ones; only the waiting is ours. What is not driven any more has crashed, or hangs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delayq.client.enqueue import Finish, Start
from delayq.client.routing import Each, Trip
from delayq.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Sequence

    from delayq.protocol.commands import Call

Run = "Callable[[Call[Any]], Any]"


@dataclass(eq=False)
class Asked:
    """Calls with a waiting caller."""

    calls: list[Call[Any]]
    raises: bool

    def __await__(self) -> Generator[Asked, list[Any], list[Any]]:
        answers = yield self
        if self.raises:
            for answer in answers:
                if isinstance(answer, Exception):
                    raise answer
        return answers


class Connection:
    """What services of asyncio take for an AsyncConnection."""

    connects = 1

    async def run(self, calls: Sequence[Call[Any]]) -> list[Any]:
        return await Asked(list(calls), raises=True)

    async def one(self, call: Call[Any]) -> Any:  # noqa: ANN401
        return (await self.run([call]))[0]

    async def answers(self, calls: Sequence[Call[Any]]) -> list[Any]:
        return await Asked(list(calls), raises=False)


class Stepping:
    """One step() of a service after the other, a call at a time."""

    def __init__(
        self, run: Callable[[Call[Any]], Any], step: Callable[[], Coroutine[Any, Any, float]]
    ) -> None:
        self._run, self._step = run, step
        self._coroutine: Coroutine[Any, Any, float] | None = None
        self._left: list[Call[Any]] = []
        self._answers: list[Any] = []
        self.pause = 0.0  # what the last whole step returned

    def advance(self) -> None:
        """Do the next call, or what leads to it."""
        if self._coroutine is None:
            self._coroutine = self._step()
            self._go(None)
            return
        try:
            self._answers.append(self._run(self._left.pop(0)))
        except AssertionError:
            raise
        except Exception as error:  # noqa: BLE001  an answer like any other
            self._answers.append(error)
        if not self._left:
            self._go(self._answers)

    def _go(self, answers: list[Any] | None) -> None:
        assert self._coroutine is not None
        try:
            asked = self._coroutine.send(answers)
        except StopIteration as done:
            self._coroutine, self.pause = None, done.value
        except Unavailable:
            self._coroutine = None
        else:
            self._left, self._answers = list(asked.calls), []
            if not self._left:
                self._go([])

    def whole(self) -> float:
        """Do a whole step."""
        self.advance()
        while self._coroutine is not None:
            self.advance()
        return self.pause

    def crash(self) -> None:
        if self._coroutine is not None:
            self._coroutine.close()
            self._coroutine = None


@dataclass(eq=False)
class Operating:
    """One operation of a client, a round trip at a time."""

    run: Callable[[Call[Any]], Any]
    operation: Generator[Any, Any, Any]
    asked: Any = None
    result: Any = None
    error: Exception | None = None
    done: bool = False
    tickets: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._go(lambda: next(self.operation))

    def advance(self, *, lost: bool = False) -> None:
        """Do the next round trip; `lost` is one that Redis executed, and whose answer was lost."""
        asked = self.asked
        if isinstance(asked, float):
            return self._go(lambda: self.operation.send(None))
        if isinstance(asked, Start):
            self.tickets[len(self.tickets)] = self._replies(asked, lost=lost)
            return self._go(lambda: self.operation.send(len(self.tickets) - 1))
        found = self.tickets[asked.ticket] if isinstance(asked, Finish) else self._replies(asked, lost=lost)
        if isinstance(found, Exception):
            return self._go(lambda: self.operation.throw(found))
        return self._go(lambda: self.operation.send(found))

    def _replies(
        self, asked: Start | Each | Trip | Sequence[Call[Any]], *, lost: bool
    ) -> list[Any] | Exception:
        """Answer as a client's connection does. What has to be confirmed is, by one, unless a server is away."""
        found: list[Any] = []
        calls, behind = (
            (asked.calls, asked.confirm) if isinstance(asked, Start | Each | Trip) else (asked, None)
        )
        for call in calls:
            try:
                found.append(self.run(call))
            except AssertionError:
                raise
            except Exception as error:  # noqa: BLE001  the operation decides
                found.append(error)
        if lost:
            return Unavailable("test", "the answer was lost")
        errors = [answer for answer in found if isinstance(answer, Exception)]
        if errors and not isinstance(asked, Start | Each):
            return errors[0]
        confirmed: Any = next((each for each in errors if isinstance(each, Unavailable)), [1])
        return [*found, confirmed if calls else [[1]]] if behind else found

    def _go(self, move: Callable[[], Any]) -> None:
        try:
            self.asked = move()
        except StopIteration as end:
            self.done, self.result = True, end.value
        except Exception as error:  # noqa: BLE001  what the client would raise
            self.done, self.error = True, error

    def whole(self) -> Operating:
        while not self.done:
            self.advance()
        return self
