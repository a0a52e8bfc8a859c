"""What can be a kind with `batch=`, and what an item becomes on its way through Redis."""

from __future__ import annotations

import json
from collections.abc import Callable  # noqa: TC003 -- annotations that are read
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, assert_type

import pytest
from delayq import App, BatchContext, Context
from delayq.app import arguments
from delayq.errors import InvalidTask
from delayq.protocol.results import Scheduled

app = App()
DAY = date(2026, 1, 2)


@dataclass
class Row:
    order: int
    day: date


@app.task(batch=500, batch_wait="50ms", max_attempts=8)
async def insert(rows: list[Row]) -> None: ...


@app.task(batch=2)
def count(ctx: BatchContext, numbers: list[int]) -> list[Exception | None]:
    return [None if number else ValueError(str(ctx.state)) for number in numbers]


def test_a_task_of_a_batch_is_one_item_and_a_call_takes_a_list_of_them() -> None:
    assert (insert.policy.batch, insert.policy.batch_wait_ms, count.policy.batch_wait_ms) == (500, 50, 0)
    text = insert.encode((Row(7, DAY),), {})
    assert json.loads(text) == {"order": 7, "day": "2026-01-02"}
    assert insert.codec.decode(text) == {"item": Row(7, DAY)}
    assert count.encode((2**64,), {}) == b"18446744073709551616"
    failed, done = count(BatchContext([], "state"), [0, 7])
    assert (str(failed), done) == ("state", None)
    task = insert.options(id="order-7", delay="1s").task(Row(7, DAY))
    assert (task.payload, task.task_id, task.kind) == (text, "order-7", "insert")


@pytest.mark.parametrize("args", [(), ("seven",), ([Row(7, DAY)],), (Row(7, DAY), Row(8, DAY))])
def test_an_item_that_does_not_fit_is_refused_when_scheduled(args: tuple[object, ...]) -> None:
    with pytest.raises(InvalidTask, match="task insert: "):
        insert.encode(args, {})


@pytest.mark.parametrize("body", [b"", b"7", b"{}", b'{"order": 1, "day": 2}', b'{"item": 7}', b'7,"more":1'])
def test_a_payload_that_does_not_fit_is_reported_when_it_runs(body: bytes) -> None:
    with pytest.raises(arguments.InvalidArguments):
        insert.codec.decode(body)


@pytest.mark.parametrize("validates", [True, False])
def test_a_payload_of_two_items_is_no_item(monkeypatch: pytest.MonkeyPatch, *, validates: bool) -> None:
    monkeypatch.setattr(arguments, "VALIDATES", validates)
    kind = App().task(batch=2)(count.function)
    with pytest.raises(arguments.InvalidArguments):
        kind.codec.decode(b'7,"item":8')


def test_without_pydantic_an_item_is_a_json_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments, "VALIDATES", False)
    kind = App().task(batch=2)(count.function)
    assert kind.codec.decode(kind.encode((7,), {})) == {"item": 7}
    with pytest.raises(TypeError, match=r"task insert: parameter item: Row is no JSON type"):
        App().task(batch=2)(insert.function)


def bare(rows: list[int]) -> None: ...
def nothing() -> None: ...
def single(row: int) -> None: ...
def two(rows: list[int], more: int) -> None: ...
def default(rows: list[int] = []) -> None: ...  # noqa: B006
def by_name(*, rows: list[int]) -> None: ...
def wrong_context(ctx: Context, rows: list[int]) -> None: ...
def no_json(rows: list[Callable[[], None]]) -> None: ...
def not_a_batch(ctx: BatchContext, rows: list[int]) -> None: ...


@pytest.mark.parametrize(
    ("function", "options", "why"),
    [
        (nothing, {"batch": 2}, "expected one parameter annotated list"),
        (single, {"batch": 2}, "expected one parameter annotated list"),
        (two, {"batch": 2}, "expected one parameter annotated list"),
        (by_name, {"batch": 2}, "expected one parameter annotated list"),
        (default, {"batch": 2}, "rows cannot have a default"),
        (wrong_context, {"batch": 2}, "with batch=, the first parameter can be a BatchContext"),
        (not_a_batch, {}, "without batch=, the first parameter can be a Context"),
        (no_json, {"batch": 2}, "task no_json: "),
        (bare, {"batch": 1}, "batch: expected a whole number, 2 to 10000, got 1"),
        (bare, {"batch": 10_001}, "batch: expected a whole number, 2 to 10000"),
        (bare, {"batch": True}, "batch: expected a whole number, 2 to 10000, got True"),
        (bare, {"batch": 2, "batch_wait": "11s"}, "batch_wait: expected at most 10 s"),
        (bare, {"batch": 2, "batch_wait": timedelta(-1)}, "batch_wait: expected 0 or more"),
        (bare, {"batch_wait": "1s"}, "batch_wait: it needs batch"),
    ],
)
def test_what_cannot_be_a_batch_is_refused_when_it_is_defined(
    function: Callable[..., None], options: dict[str, Any], why: str
) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        App().task(**options)(function)
    assert why in str(caught.value)


async def what_type_checkers_check() -> None:
    """Not run: mypy derives the item from the function, and reports each line that it should ignore in vain."""
    assert_type(await insert.schedule(Row(7, DAY)), Scheduled)
    assert_type(await insert([Row(7, DAY)]), None)
    assert_type(count(BatchContext([]), [7]), list[Exception | None])
    await insert.options(delay="1s").schedule(Row(7, DAY))
    await insert.schedule(7)  # type: ignore[arg-type]
    await insert.schedule([Row(7, DAY)])  # type: ignore[arg-type]
    await insert(Row(7, DAY))  # type: ignore[arg-type]
    count([7])  # type: ignore[call-arg, arg-type]
    App().task(batch=2)(single)  # type: ignore[arg-type]
    App().task(batch=2)(wrong_outcomes)  # type: ignore[type-var, arg-type]


def wrong_outcomes(_rows: list[int]) -> list[str]:
    return []
