"""Mistakes that type checkers report: an error that they miss is an unused `type: ignore`, which is an error too."""

# pyright: reportUnnecessaryTypeIgnoreComment=error
from __future__ import annotations

from delayq import App, BatchContext, Client, Context, NewTask

app = App()


@app.task
async def remind(order: int, *, channel: str = "mail") -> None:
    print(order, channel)


@app.task
async def refund(context: Context[int], order: int) -> None:
    context.state.upper()  # type: ignore[attr-defined]
    print(order)


@app.task(max_attempts=3)
def push(context: Context, order: int) -> None:
    context.connection.execute(order)  # type: ignore[attr-defined]


@app.task(batch=10)
def insert(rows: list[int]) -> None:
    print(rows)


async def arguments() -> None:
    await remind.schedule("7")  # type: ignore[arg-type]
    await remind.schedule()  # type: ignore[call-arg]
    await remind.schedule(7, "mail")  # type: ignore[call-arg]
    await remind.schedule(7, chanel="sms")  # type: ignore[call-arg]
    await remind.options(delay="1h").schedule("7")  # type: ignore[arg-type]
    remind.schedule_sync(7, channel=1)  # type: ignore[arg-type]
    remind.task(None)  # type: ignore[arg-type]
    await remind("7")  # type: ignore[arg-type]
    await refund.schedule("7")  # type: ignore[arg-type]
    await refund(7)  # type: ignore[call-arg, arg-type]
    push.schedule_sync("7")  # type: ignore[arg-type]
    await insert.schedule("7")  # type: ignore[arg-type]
    await insert.schedule([7])  # type: ignore[arg-type]
    insert([b"7"])  # type: ignore[list-item]


async def options(orders: Client) -> None:
    remind.options(dealy="1h")  # type: ignore[arg-type]
    remind.options(delay=5)  # type: ignore[arg-type]
    remind.options(due="1h")  # type: ignore[arg-type]
    remind.options(if_exists="ignore")  # type: ignore[arg-type]
    app.task(max_retries=3)  # type: ignore[call-overload]
    app.task(max_attempts="3")  # type: ignore[call-overload]
    await orders.schedule(1, if_exists="ignore")  # type: ignore[arg-type]
    await orders.schedule(1, delay=60)  # type: ignore[arg-type]
    await orders.schedule_many(NewTask(1))  # type: ignore[arg-type]
    await orders.cancel(7)  # type: ignore[arg-type]


@app.task(batch=10)  # type: ignore[arg-type]
def no_list(row: int) -> None:
    print(row)


@app.task(batch=10)  # type: ignore[type-var]
def no_outcomes(context: BatchContext, rows: list[int]) -> list[str]:
    return [f"{context.tasks[0].id} {row}" for row in rows]
