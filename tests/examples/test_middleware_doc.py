"""docs/how-to/middleware.md and logging.md: what they show does what they say, in a queue of `delayq.testing`."""

from __future__ import annotations

import importlib
import io
import json
import logging
import sys
from typing import TYPE_CHECKING, Any

import pytest
from delayq.service.logs import ConsoleFormatter, JsonFormatter

from tests.examples.running import HOW_TO, ROOT, blocks, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from delayq.testing import Queue

Load = Any  # from the files of a page to its module shop.tasks


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    def loaded(**files: str) -> Any:  # noqa: ANN401 -- a module
        write(tmp_path, {f"shop/{name}.py": text for name, text in files.items()})
        monkeypatch.syspath_prepend(tmp_path)
        return importlib.import_module("shop.tasks")

    yield loaded
    for name in [each for each in sys.modules if each.partition(".")[0] == "shop"]:
        del sys.modules[name]


@pytest.fixture
def lines() -> Iterator[Callable[[logging.Formatter], io.StringIO]]:
    """What a handler of the root logger writes, as that of a worker."""
    root, added = logging.getLogger(), list[logging.Handler]()

    def write_with(formatter: logging.Formatter) -> io.StringIO:
        handler = logging.StreamHandler(stream := io.StringIO())
        handler.setFormatter(formatter)
        root.addHandler(handler)
        added.append(handler)
        return stream

    level = root.level
    root.setLevel(logging.INFO)
    yield write_with
    root.setLevel(level)
    for each in added:
        root.removeHandler(each)


def test_the_middleware_of_the_page_times_runs_and_passes_traces_on(
    load: Load, delayq_queue: Callable[..., Queue], capsys: pytest.CaptureFixture[str]
) -> None:
    timed, traced, *_ = blocks((HOW_TO / "middleware.md").read_text())
    shop = load(tasks=f"{timed}\n\n{traced}")
    traces: list[str | None] = []

    @shop.app.task  # type: ignore[untyped-decorator]  # of a page
    async def again(order: int) -> None:
        traces.append(shop.TRACE.get())
        if order:
            await again.schedule(order - 1)

    queue = delayq_queue(shop.app)
    shop.remind.schedule_sync(7)
    shop.remind.schedule_sync(-1)
    queue.run_due()
    took, failed = capsys.readouterr().out.splitlines()
    assert took.startswith("remind took 0.")
    assert failed == "remind failed: ValueError('no such order')"

    shop.TRACE.set("t1")
    again.schedule_sync(2)
    shop.TRACE.set(None)
    again.schedule_sync(0)
    queue.run_due()
    assert sorted(map(str, traces))[-3:] == ["t1"] * 3
    assert len({*traces}) == 2, "a task without a trace begins one"


def test_every_line_of_a_handler_has_the_task_and_the_kind(
    load: Load,
    delayq_queue: Callable[..., Queue],
    lines: Callable[[logging.Formatter], io.StringIO],
) -> None:
    """Also those of libraries, of the thread of a plain function, and of threads that it starts."""
    _, log_context, tasks = blocks((HOW_TO / "logging.md").read_text())
    shop = load(log_context=log_context, tasks=tasks)

    @shop.app.task(batch=10)  # type: ignore[untyped-decorator]  # of a page
    def store(orders: list[int]) -> None:
        logging.getLogger("library").info("%s rows", len(orders), extra={"fields": {"table": "orders"}})

    queue = delayq_queue(shop.app)
    machine, people = lines(JsonFormatter()), lines(ConsoleFormatter())
    shop.remind.options(id="order-7").schedule_sync(7)
    shop.report.options(id="day-1").schedule_sync("2026-11-27")
    queue.client.schedule_many(store.options(id=str(order)).task(order) for order in range(2))
    queue.run_due()
    logging.getLogger("outside").info("of no run")
    found = [json.loads(line) for line in machine.getvalue().splitlines()]
    kept = {each["event"]: (each.get("kind"), each.get("task_id"), each.get("tasks")) for each in found}
    assert kept == {
        "reminder about order 7": ("remind", "remind:order-7", None),
        "report of 2026-11-27": ("report", "report:day-1", None),
        "written by a thread of its own": ("report", "report:day-1", None),
        "2 rows": ("store", None, 2),
        "of no run": (None, None, None),
    }
    said = [line.partition(" ")[2] for line in people.getvalue().splitlines()]
    assert "info    report of 2026-11-27 kind=report task_id=report:day-1" in said
    assert "info    2 rows kind=store tasks=2 table=orders" in said


def test_the_first_line_of_the_page_is_what_a_worker_writes(
    lines: Callable[[logging.Formatter], io.StringIO],
) -> None:
    page = (HOW_TO / "logging.md").read_text()
    first, *_ = blocks(page)
    shown, *_ = blocks(page, "text")
    stream = lines(JsonFormatter())
    exec(first, {"__name__": "shop.tasks"})  # noqa: S102 -- the page's code
    written, expected = json.loads(stream.getvalue()), json.loads(shown)
    del written["time"], expected["time"]
    assert written == expected


def test_the_example_has_the_log_context_of_the_page() -> None:
    _, log_context, _ = blocks((HOW_TO / "logging.md").read_text())
    assert (ROOT / "examples" / "shop" / "shop" / "log_context.py").read_text() == log_context
