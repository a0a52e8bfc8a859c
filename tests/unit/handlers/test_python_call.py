"""Python handlers: coroutine functions as they are, plain functions in threads."""

from __future__ import annotations

import asyncio
import functools
import gc
import subprocess
import sys
import threading
import weakref
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import pytest
from delayq.errors import Retry
from delayq.handlers import build, cancelled
from delayq.handlers.python import in_thread, is_async
from delayq.handlers.threads import Threads

from tests.unit.handlers.support import NO_SECRETS_DIR, PATIENCE_SECONDS, a_task, document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from delayq.protocol.envelope import Task


class Shop:
    async def __call__(self, task: Task) -> None: ...

    async def cancel(self, task: Task) -> None: ...


async def cancel(task: Task) -> None: ...


def plain(task: Task) -> None: ...


@pytest.fixture
def threads() -> Iterator[Threads]:
    threads = Threads(2)
    yield threads
    threads.close()


async def test_a_coroutine_function_is_called_without_anything_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop_direct.py").write_text("async def cancel(task): return task.payload")
    monkeypatch.syspath_prepend(tmp_path)
    handler = build(
        document({"python": {"callable": "shop_direct:cancel"}}), secrets_dir=tmp_path / NO_SECRETS_DIR
    )
    import shop_direct  # type: ignore[import-not-found]  # noqa: PLC0415 -- written above

    await handler.start()
    assert handler.call is shop_direct.cancel
    assert await handler.call(a_task()) == {"order": 7}
    await handler.close()


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (cancel, True),
        (Shop(), True),
        (Shop().cancel, True),
        (functools.partial(functools.partial(Shop())), True),
        (functools.partial(plain), False),
    ],
)
def test_coroutines_are_recognised_however_they_are_wrapped(
    target: Callable[..., object], *, expected: bool
) -> None:
    """Methods, partials and objects with an async __call__ run on the loop, everything else in a thread."""
    assert is_async(target) is expected


async def test_a_plain_function_runs_beside_the_event_loop(threads: Threads) -> None:
    """Two blocking calls meet each other while the loop goes on: neither is on the loop's thread."""
    meeting = threading.Barrier(3)

    def block(task: Task) -> str:
        meeting.wait(PATIENCE_SECONDS)
        return f"{task.id} in {threading.current_thread().name}"

    call = in_thread(block, threads)
    running = [asyncio.ensure_future(call(a_task(task_id=name))) for name in ("a", "b")]
    await asyncio.to_thread(meeting.wait, PATIENCE_SECONDS)
    assert await asyncio.gather(*running) == ["a in delayq-handler", "b in delayq-handler"]


async def test_a_plain_wrapper_around_a_coroutine_function_is_awaited(threads: Threads) -> None:
    """A decorator that forgot `async` does not turn every task into a silent success."""

    def undecided(task: Task) -> object:
        async def inner() -> str:
            return task.id

        return inner()

    assert await in_thread(undecided, threads)(a_task()) == "order-7"


class Heavy:
    """What a handler may make much of."""


@pytest.mark.parametrize("fails", [False, True], ids=["returned", "raised"])
async def test_an_idle_thread_keeps_nothing_of_its_last_task(threads: Threads, *, fails: bool) -> None:
    """Neither what the handler returned, nor the frames of its exception, nor the task."""
    kept: list[weakref.ref[Any]] = []

    def handle(task: Task) -> Heavy:
        heavy = Heavy()
        kept.extend([weakref.ref(heavy), weakref.ref(task)])
        if fails:
            raise ValueError
        return heavy

    with suppress(ValueError):
        await in_thread(handle, threads)(a_task())
    # The thread lets go of them just after it has notified the event loop.
    async with asyncio.timeout(PATIENCE_SECONDS):
        while any(each() is not None for each in kept):
            gc.collect()  # an exception and its frames refer to each other
            await asyncio.sleep(0)


async def test_a_threads_context_is_that_of_its_task(threads: Threads) -> None:
    bound: ContextVar[str] = ContextVar("bound")
    bound.set("order-7")
    assert await in_thread(lambda _: bound.get(), threads)(a_task()) == "order-7"


@pytest.mark.parametrize(
    "error",
    [Retry(delay_ms=5), ValueError("broken"), SystemExit(3), asyncio.CancelledError(), StopIteration()],
)
async def test_what_a_plain_function_raises_reaches_the_worker_and_does_not_stop_it(
    threads: Threads, error: BaseException
) -> None:
    """sys.exit(), a stray cancellation and StopIteration are failures of one task, and none of them hangs."""

    def function(_: Task) -> object:
        raise error

    with pytest.raises(Exception) as raised:  # noqa: PT011 -- which one is asserted below
        await asyncio.wait_for(in_thread(function, threads)(a_task()), PATIENCE_SECONDS)
    if isinstance(error, (Retry, ValueError)):
        assert raised.value is error
    else:
        assert f"raised {type(error).__name__}" in str(raised.value)


async def test_cancelled_calls_end_while_their_threads_go_on_and_these_are_bounded(
    threads: Threads, events: Callable[[str], list[dict[str, Any]]]
) -> None:
    """The worker's slot is free at once, and the thread can see that its task was cancelled.

    Two stuck threads of two: the next task goes to another worker, uncharged. When one ends, tasks run again.
    """
    proceed = threading.Event()
    ended: asyncio.Queue[bool] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def stuck(_: Task) -> None:
        proceed.wait(PATIENCE_SECONDS)
        loop.call_soon_threadsafe(loop.call_soon, ended.put_nowait, cancelled())

    for _ in range(2):
        running = asyncio.ensure_future(in_thread(stuck, threads)(a_task()))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    reported = events("handler_thread_abandoned")
    assert reported == [{"task_id": "order-7", "abandoned": abandoned} for abandoned in (1, 2)]
    with pytest.raises(Retry) as handed_back:
        await in_thread(plain, threads)(a_task())
    assert handed_back.value.charge is False
    proceed.set()
    assert [await ended.get(), await ended.get()] == [True, True]
    await in_thread(plain, threads)(a_task())
    assert cancelled() is False  # outside of a thread


@pytest.mark.parametrize("late", [False, True], ids=["before_the_result", "after_the_result"])
async def test_a_thread_that_returned_as_its_task_was_cancelled_is_not_left_over(
    threads: Threads, events: Callable[[str], list[dict[str, Any]]], *, late: bool
) -> None:
    """Cancelled in the very tick of the result, on either side of it: the thread is idle, not abandoned."""
    proceed = threading.Event()
    running = asyncio.ensure_future(threads.run(lambda _: proceed.wait(PATIENCE_SECONDS), a_task()))
    await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    real = loop.call_soon_threadsafe
    reported = threading.Event()

    def tell(deliver: Callable[..., object], *args: object) -> None:
        """Cancel and deliver in one tick of the loop, before the task wakes up."""

        def both() -> None:
            if not late:
                running.cancel()
            deliver(*args)
            if late:
                running.cancel()

        real(both)
        reported.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "call_soon_threadsafe", tell)
        proceed.set()
        while not reported.is_set():  # noqa: ASYNC110 -- set in a thread
            await asyncio.sleep(0.001)
    with pytest.raises(asyncio.CancelledError):
        await running
    assert events("handler_thread_abandoned") == []
    assert (threads.abandoned, len(threads._idle)) == (0, 1)


def test_a_library_that_imports_django_without_settings_changes_nothing() -> None:
    """Then there is no connection to close, and to ask for one is an error."""
    script = (
        "import asyncio, django.db\n"
        "from delayq.handlers.python import in_thread\n"
        "from delayq.handlers.threads import Threads\n"
        "print(asyncio.run(in_thread(lambda task: 'ran', Threads(1))(None)))\n"
    )
    found = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert found.stdout == "ran\n"
