"""Steps of a cron expression whose interval is not the same at the end of their field, such as */7 and */90."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_STEP: Final = re.compile(r"\*/0*([1-9][0-9]*)")


class _Field(NamedTuple):
    name: str
    size: int
    again: str
    """When its steps begin again."""
    seconds: int | None
    """Of one step of one; None if they differ, or another field decides."""


_FIELDS: Final = (
    _Field("minute", 60, "each hour", 60),
    _Field("hour", 24, "each day", 3600),
    _Field("day of the month", 31, "each month", 86_400),
    _Field("month", 12, "each year", None),
    _Field("day of the week", 7, "each week", 86_400),
)


def uneven(expression: str) -> Iterator[str]:
    """Yield a sentence for each step that does not divide its field."""
    for field, text in zip(_FIELDS, expression.split(), strict=False):
        for term in text.split(","):
            found = _STEP.fullmatch(term)
            if found and int(found[1]) > 1 and (field.size % int(found[1]) or field.size == int(found[1])):
                yield _sentence(term, int(found[1]), field)


def _sentence(term: str, step: int, field: _Field) -> str:
    what = "matches only the first value" if step >= field.size else "ends with a shorter step"
    instead = (
        "" if field.seconds is None else f"; for an even interval, set everySeconds: {step * field.seconds}"
    )
    return f"{term} in the field {field.name} {what}, as it begins again {field.again}{instead}"
