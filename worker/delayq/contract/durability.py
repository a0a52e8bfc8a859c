"""spec.durability: what a call that stores tasks waits for before it returns."""

# ruff: noqa: RUF009 - fields.py's functions return dataclasses.field(...), as a default should be
from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from delayq.contract.fields import choice, whole

Confirm = Literal["None", "Replicated", "Fsynced"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DurabilitySpec:
    """What schedule waits for before it returns."""

    confirm: Confirm = choice(
        "None",
        "Replicated",
        "Fsynced",
        default="None",
        doc="None: Redis' answer is enough. Replicated: replicas have the task (WAIT). Fsynced: the "
        "append-only file with it is on disk (WAITAOF: Redis 7.2, Valkey).",
    )
    replicas: int = whole(
        1, 16, default=1, doc="How many replicas must have the task, with confirm Replicated."
    )
    timeout_milliseconds: int = whole(
        1,
        60_000,
        default=1000,
        doc="Longest wait for the confirmation. Then schedule fails, although the task is stored.",
    )
