"""delayq: a delay queue on Redis, for one machine or for Kubernetes.

Client and SyncClient schedule tasks; App makes functions kinds of task. Task, Retry, Bury and Seen are for handlers,
and delayq.guards guards them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from delayq.errors import (
    Bury,
    DelayQError,
    DelayTooLong,
    GuardBusy,
    GuardLost,
    GuardUnavailable,
    InvalidDocument,
    InvalidDueTime,
    InvalidTask,
    NoSuchSchedule,
    NotConfirmed,
    PayloadTooLarge,
    QueueFull,
    Refused,
    Retry,
    ScheduleRefused,
    Seen,
    TaskExists,
    TasksRefused,
    Unavailable,
    UnsupportedFormat,
)
from delayq.protocol.envelope import Task
from delayq.protocol.results import (
    Bulk,
    Cancelled,
    Counts,
    DeadGroup,
    Failures,
    Outcome,
    Page,
    Position,
    Rescheduled,
    Scheduled,
    State,
    Suspension,
    TaskRow,
    TaskView,
    Verdict,
)
from delayq.protocol.write_durability import Durability

if TYPE_CHECKING:
    from delayq.app import App, BatchContext, Context, Scheduling, TaskKind, TaskRun
    from delayq.client.aio import Client
    from delayq.client.blocking import SyncClient
    from delayq.client.dead_letters import Redriven
    from delayq.client.encoding import NewTask
    from delayq.client.enqueue import IfExists
    from delayq.client.recurring import Backfilled, ScheduleChange
    from delayq.contract import Limits, SpecError
    from delayq.contract.document import parse_schedule
    from delayq.contract.schedule import DelaySchedule
    from delayq.durations import Duration
    from delayq.schedules.stored import LastRun, Schedule

__all__ = [
    "App",
    "Backfilled",
    "BatchContext",
    "Bulk",
    "Bury",
    "Cancelled",
    "Client",
    "Context",
    "Counts",
    "DeadGroup",
    "DelayQError",
    "DelaySchedule",
    "DelayTooLong",
    "Durability",
    "Duration",
    "Failures",
    "GuardBusy",
    "GuardLost",
    "GuardUnavailable",
    "IfExists",
    "InvalidDocument",
    "InvalidDueTime",
    "InvalidTask",
    "LastRun",
    "Limits",
    "NewTask",
    "NoSuchSchedule",
    "NotConfirmed",
    "Outcome",
    "Page",
    "PayloadTooLarge",
    "Position",
    "QueueFull",
    "Redriven",
    "Refused",
    "Rescheduled",
    "Retry",
    "Schedule",
    "ScheduleChange",
    "ScheduleRefused",
    "Scheduled",
    "Scheduling",
    "Seen",
    "SpecError",
    "State",
    "Suspension",
    "SyncClient",
    "Task",
    "TaskExists",
    "TaskKind",
    "TaskRow",
    "TaskRun",
    "TaskView",
    "TasksRefused",
    "Unavailable",
    "UnsupportedFormat",
    "Verdict",
    "parse_schedule",
]
_LAZY = {
    "App": "app",
    "BatchContext": "app",
    "Context": "app",
    "TaskKind": "app",
    "Scheduling": "app",
    "TaskRun": "app",
    "Client": "client.aio",
    "SyncClient": "client.blocking",
    "Redriven": "client.dead_letters",
    "NewTask": "client.encoding",
    "IfExists": "client.enqueue",
    "Backfilled": "client.recurring",
    "ScheduleChange": "client.recurring",
    "Duration": "durations",
    "Limits": "contract",
    "SpecError": "contract",
    "LastRun": "schedules.stored",
    "Schedule": "schedules.stored",
    "parse_schedule": "contract.document",
    "DelaySchedule": "contract.schedule",
}


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- any object of the module
    """Import on first use: the operator imports delayq.contract, and must not load Redis' client for it."""
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 -- slow to import, and seldom wanted

        return version("delayq")
    if name in _LAZY:
        return getattr(import_module(f"delayq.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'delayq' has no attribute {name!r}")
