"""What is wrong with a field of a cron expression that cronsim refuses."""

from __future__ import annotations

from typing import Final, NamedTuple

from cronsim import CronSimError
from cronsim.cronsim import Field

from delayq.contract.problems import quote


class _Named(NamedTuple):
    field: Field
    name: str
    values: str
    least: int
    most: int


_FIELDS: Final = (
    _Named(Field.MINUTE, "minute", "0-59", 0, 59),
    _Named(Field.HOUR, "hour", "0-23", 0, 23),
    _Named(Field.DAY, "day of the month", "1-31, L or LW", 1, 31),
    _Named(Field.MONTH, "month", "1-12 or JAN-DEC", 1, 12),
    _Named(Field.DOW, "day of the week", "0-7 or SUN-SAT, or as in 1#2 and 5L", 0, 6),
)


def wrong(expression: str) -> str:
    """Name the first field that is refused, what was expected and got; empty if each alone is valid."""
    for named, text in zip(_FIELDS, expression.split(), strict=False):
        for term in text.split(","):
            if not _reads(named.field, term):
                return f"{named.name}: expected {_expected(named, term)}, got {quote(term)}"
    return ""


def _reads(field: Field, term: str) -> bool:
    try:
        field.parse(term)
    except CronSimError:
        return False
    return True


def _expected(named: _Named, term: str) -> str:
    span, slash, step = term.partition("/")
    first, dash, last = span.partition("-")
    if slash and step.strip("0") == "" and _reads(named.field, span):
        return "a step of 1 or more"
    if dash and all(end.isalnum() and _reads(named.field, end) for end in (first, last)):
        return f"a range that begins with its lowest value, such as {first}-{named.most},{named.least}-{last}"
    return f"{named.values}, *, or a range or step of these values, such as {named.least}-{named.least + 5} and */5"
