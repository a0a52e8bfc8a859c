"""spec.autoscaling: the limits and objectives of the number of workers."""

# ruff: noqa: RUF009 - fields.py's functions return dataclasses.field(...), as a default should be
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from delayq.contract.fields import choice, section, sections, whole
from delayq.contract.record import Shape, ordered

Mode = Literal["Internal", "External"]
SelectPolicy = Literal["Max", "Min", "Disabled"]
PolicyType = Literal["Pods", "Percent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPolicy:
    """A limit to how fast the number of workers may change, as in HPA v2."""

    type: PolicyType = choice(
        "Pods", "Percent", doc="Whether value counts pods or percent of the current pods."
    )
    value: int = whole(1, 10_000, doc="Largest change within the period.")
    period_seconds: int = whole(1, 1800, doc="Length of the period.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUp:
    """Limits to adding workers."""

    stabilization_window_seconds: int = whole(
        0, 3600, default=0, doc="Look back this long, and scale up to the lowest number of this period."
    )
    select_policy: SelectPolicy = choice(
        "Max",
        "Min",
        "Disabled",
        default="Max",
        doc="Which policy counts when several apply; Disabled: never add.",
    )
    policies: tuple[ScalingPolicy, ...] = sections(
        ScalingPolicy, least=0, most=16, default=(), doc="Limits to the speed. None: no limit."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleDown:
    """Limits to removing workers."""

    stabilization_window_seconds: int = whole(
        0,
        3600,
        default=60,
        doc="Look back this long, and scale down to the highest number of this period.",
    )
    select_policy: SelectPolicy = choice(
        "Max",
        "Min",
        "Disabled",
        default="Max",
        doc="Which policy counts when several apply; Disabled: never remove.",
    )
    policies: tuple[ScalingPolicy, ...] = sections(
        ScalingPolicy, least=0, most=16, default=(), doc="Limits to the speed. None: no limit."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Behavior:
    """Limits to the speed of scaling, in the words of HPA v2."""

    scale_up: ScaleUp = section(ScaleUp, default=ScaleUp(), doc="Limits to adding workers.")
    scale_down: ScaleDown = section(ScaleDown, default=ScaleDown(), doc="Limits to removing workers.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """What to do when the metrics stay away."""

    SHAPE: ClassVar[Shape] = Shape(
        renamed=(("failureThreshold", "write afterSeconds, the time without a complete reading"),)
    )

    after_seconds: int = whole(
        10,
        86_400,
        default=15,
        doc="Time without a complete reading before falling back; for 10 s, scanners may be starting.",
    )
    replicas: int = whole(0, 10_000, doc="Workers to run meanwhile; never fewer than there are.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscaling:
    """How the number of workers follows the work."""

    SHAPE: ClassVar[Shape] = Shape(
        rules=(ordered("min_replicas", "max_replicas"),),
        renamed=(("periodSeconds", "remove it, the operator decides every 2 s"),),
    )

    mode: Mode = choice(
        "Internal",
        "External",
        default="Internal",
        doc="Who sets worker.replicas: the operator, or an HPA or KEDA through the scale subresource.",
    )
    min_replicas: int = whole(0, 10_000, default=0, doc="Fewest workers.")
    max_replicas: int = whole(1, 10_000, default=10, doc="Most workers.")
    lead_time_seconds: int | None = whole(
        0,
        86_400,
        default=None,
        doc="How long a new worker takes until it claims. Absent: learnt from the pods.",
    )
    cooldown_seconds: int = whole(
        0, 86_400, default=60, doc="How long nothing must be due or in flight before the last worker goes."
    )
    behavior: Behavior = section(
        Behavior, default=Behavior(), doc="Limits to the speed, in the words of HPA v2."
    )
    fallback: Fallback | None = section(
        Fallback, default=None, doc="What to do when metrics stay away. Absent: keep the current number."
    )
