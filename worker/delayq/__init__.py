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
from delayq.protocol.results import State, Verdict
from delayq.protocol.write_durability import Durability

if TYPE_CHECKING:
    from delayq.app import App, BatchContext, Context
    from delayq.client.aio import Client
    from delayq.client.blocking import SyncClient
    from delayq.client.encoding import NewTask
    from delayq.client.recurring import Backfilled, ScheduleChange
    from delayq.contract import Limits
    from delayq.contract.document import parse_schedule
    from delayq.contract.schedule import DelaySchedule
    from delayq.schedules.stored import LastRun, Schedule

__all__ = [
    "App",
    "Backfilled",
    "BatchContext",
    "Bury",
    "Client",
    "Context",
    "DelayQError",
    "DelaySchedule",
    "DelayTooLong",
    "Durability",
    "GuardBusy",
    "GuardLost",
    "GuardUnavailable",
    "InvalidDocument",
    "InvalidDueTime",
    "InvalidTask",
    "LastRun",
    "Limits",
    "NewTask",
    "NoSuchSchedule",
    "NotConfirmed",
    "PayloadTooLarge",
    "QueueFull",
    "Refused",
    "Retry",
    "Schedule",
    "ScheduleChange",
    "ScheduleRefused",
    "Seen",
    "State",
    "SyncClient",
    "Task",
    "TaskExists",
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
    "Client": "client.aio",
    "SyncClient": "client.blocking",
    "NewTask": "client.encoding",
    "Backfilled": "client.recurring",
    "ScheduleChange": "client.recurring",
    "LastRun": "schedules.stored",
    "Schedule": "schedules.stored",
    "Limits": "contract",
    "parse_schedule": "contract.document",
    "DelaySchedule": "contract.schedule",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- whatever the module holds
    """Import on first use: the operator imports delayq.contract, and must not load Redis' client for it."""
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 -- slow to import, and seldom wanted

        return version("delayq")
    if name in _LAZY:
        return getattr(import_module(f"delayq.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'delayq' has no attribute {name!r}")
