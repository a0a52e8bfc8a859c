"""What a benchmark comes to: figures with a unit, a target and a ratio. No measuring here, and no printing."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Target:
    """What issue and documents promise of a figure."""

    sign: str  # "≤" or "≥"
    bound: float

    def met_by(self, value: float) -> bool:
        """Tell whether a figure keeps the promise."""
        return value <= self.bound if self.sign == "≤" else value >= self.bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the table: the median of its runs."""

    bench: str  # A to G, or "0" for the ceiling
    name: str
    unit: str
    runs: tuple[float, ...]
    target: Target | None = None
    base: float | None = None  # the ceiling's figure that this one is a multiple of
    base_name: str = ""

    @property
    def value(self) -> float:
        """The median: one disturbed run does not count."""
        return median(self.runs)

    @property
    def ratio(self) -> float | None:
        """How many times the ceiling's figure this one is."""
        return self.value / self.base if self.base else None

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        return self.target.met_by(self.value) if self.target else None


def at_least(bound: float) -> Target:
    return Target("≥", bound)


def at_most(bound: float) -> Target:
    return Target("≤", bound)


def once(bench: str, name: str, unit: str, value: float, *, most: float | None = None) -> Figure:
    """Return a figure of a single run, which may be promised to be `most` at most."""
    target = None if most is None else at_most(most)
    return Figure(bench=bench, name=name, unit=unit, runs=(value,), target=target)


def percentile(values: list[float], percent: float) -> float:
    """Return the smallest value that at least `percent` of the values do not exceed."""
    ranked = sorted(values)
    return ranked[max(0, -(-len(ranked) * percent // 100).__int__() - 1)]
