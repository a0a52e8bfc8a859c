"""The times of random cron expressions, against a model that is drawn together with each expression.

An expression is put together from terms, and each term says of a day, an hour or a minute whether it is meant. So the
model does not parse. The rules are those of Debian's crontab(5), with the additions of docs/explanation/schedules.md.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSimError
from delayq.schedules.cron import Cron
from hypothesis import example, given
from hypothesis import strategies as st

DAYS = 800  # two years and a leap day
MOST = 300  # times of an expression
NAMES = {
    4: ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"],
    5: ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
}
BOUNDS = {1: (0, 59), 2: (0, 23), 3: (1, 31), 4: (1, 12), 5: (0, 7)}

Day = Callable[[date], bool]


class Term(NamedTuple):
    """A part of a field: its text and the numbers that it means, or for days that are no numbers, which it means."""

    text: str
    numbers: frozenset[int]
    day: Day | None = None


@st.composite
def numbers(draw: st.DrawFn, field: int) -> tuple[str, int]:
    """A number of a field: its text, sometimes a name or with a zero before it."""
    low, high = BOUNDS[field]
    number = draw(st.integers(low, high))
    names = NAMES.get(field, [])
    spelled = [str(number), f"0{number}", *names[number - low : number - low + 1]]
    spelled += [each.lower() for each in spelled] + [each.title() for each in spelled]
    return draw(st.sampled_from(spelled)), number


@st.composite
def ranges(draw: st.DrawFn, field: int) -> Term:
    """`*`, `a` or `a-b`, often with a step; `a-a` is frequent, as it means something else than `a` before a step."""
    low, high = BOUNDS[field]
    text, first = draw(numbers(field))
    form = draw(st.sampled_from(["*", "a", "a-b", "a-a"]))
    step = draw(st.none() | st.integers(1, 70))
    last = first
    if form == "*":
        text, first, last = "*", low, high
    elif form == "a" and step is not None:
        last = high
    elif form == "a-b":
        to, end = draw(numbers(field))
        text, last = (f"{text}-{to}", end) if end >= first else (f"{to}-{text}", first)
        first = min(first, end)
    elif form == "a-a":
        text = f"{text}-{draw(st.sampled_from([text, str(first)]))}"
    return Term(text if step is None else f"{text}/{step}", frozenset(range(first, last + 1, step or 1)))


def last_day(day: date) -> date:
    return day.replace(day=monthrange(day.year, day.month)[1])


def last_working_day(day: date) -> date:
    found = last_day(day)
    while found.isoweekday() > 5:
        found -= timedelta(days=1)
    return found


@st.composite
def weekdays_of_a_month(draw: st.DrawFn) -> Term:
    """`2#3` is the third Tuesday, `5L` the last Friday."""
    text, number = draw(numbers(5))
    weekday, nth = number % 7, draw(st.integers(1, 5))

    def is_nth(day: date) -> bool:
        return day.isoweekday() % 7 == weekday and (day.day - 1) // 7 == nth - 1

    def is_last(day: date) -> bool:
        return day.isoweekday() % 7 == weekday and (day + timedelta(days=7)).month != day.month

    return draw(
        st.sampled_from(
            [
                Term(f"{text}#{nth}", frozenset(), is_nth),
                Term(f"{number}L", frozenset(), is_last),
            ]
        )
    )


DAY_WORDS = st.sampled_from(
    [
        Term("L", frozenset(), lambda day: day == last_day(day)),
        Term("LW", frozenset(), lambda day: day == last_working_day(day)),
    ]
)


def star(field: int) -> list[Term]:
    low, high = BOUNDS[field]
    return [Term("*", frozenset(range(low, high + 1)))]


def fields(field: int) -> st.SearchStrategy[list[Term]]:
    """Up to three terms of a field, most often one."""
    terms = ranges(field)
    if field == 3:
        terms = terms | DAY_WORDS
    elif field == 5:
        terms = terms | weekdays_of_a_month()
    return st.lists(terms, min_size=1, max_size=3) | st.just(star(field))


class Expression(NamedTuple):
    """The terms of each field, in their order."""

    terms: tuple[list[Term], list[Term], list[Term], list[Term], list[Term]]

    @property
    def text(self) -> str:
        return " ".join(",".join(term.text for term in field) for field in self.terms)

    def numbers(self, field: int) -> list[int]:
        return sorted(frozenset[int]().union(*(term.numbers for term in self.terms[field - 1])))

    def has(self, day: date) -> bool:
        """Both day fields have to match if one begins with an asterisk, else one of them."""
        of_month = day.day in self.numbers(3) or self._word(3, day)
        weekday = day.isoweekday()
        of_week = not {weekday, weekday % 7}.isdisjoint(self.numbers(5)) or self._word(5, day)
        star = any(self.terms[field - 1][0].text.startswith("*") for field in (3, 5))
        return day.month in self.numbers(4) and (of_month and of_week if star else of_month or of_week)

    def _word(self, field: int, day: date) -> bool:
        return any(term.day is not None and term.day(day) for term in self.terms[field - 1])

    def after(self, start: datetime) -> list[datetime]:
        """All times of the next DAYS days, at most MOST."""
        days = (start.date() + timedelta(days=number) for number in range(DAYS))
        minutes = [(hour, minute) for hour in self.numbers(2) for minute in self.numbers(1)]
        times = (
            datetime(day.year, day.month, day.day, hour, minute, tzinfo=UTC)
            for day in days
            if self.has(day)
            for hour, minute in minutes
        )
        return list(islice((at for at in times if at > start), MOST))


EXPRESSIONS = st.tuples(*(fields(field) for field in BOUNDS)).map(Expression)
STARTS = st.datetimes(datetime(2024, 1, 1), datetime(2099, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
UTC_ZONE = ZoneInfo("UTC")


ONE_MINUTE = Expression(([Term("38-38/4", frozenset({38}))], star(2), star(3), star(4), star(5)))


@example(ONE_MINUTE, datetime(2026, 1, 1, tzinfo=UTC))
@given(EXPRESSIONS, STARTS)
def test_the_times_are_those_that_the_terms_mean(expression: Expression, start: datetime) -> None:
    wanted = expression.after(start)
    try:
        cron = Cron(expression.text, UTC_ZONE, after_gap=True, twice=True)
    except CronSimError:
        assert wanted == [], expression.text  # such as 31 February
        return
    end = (start + timedelta(days=DAYS)).replace(hour=0, minute=0, second=0, microsecond=0).timestamp() * 1000
    found: list[datetime] = []
    for nominal in cron.after(int(start.timestamp() * 1000)):
        if nominal.at_ms >= end or len(found) == MOST:
            break
        found.append(datetime.fromtimestamp(nominal.at_ms / 1000, UTC))
    assert found == wanted, expression.text


@given(EXPRESSIONS, st.data())
def test_a_term_that_cannot_be_is_refused(expression: Expression, data: st.DataObject) -> None:
    field = data.draw(st.sampled_from([*BOUNDS]))
    low, high = BOUNDS[field]
    wrong = data.draw(
        st.sampled_from(
            [
                *(
                    f"{high + 1}",
                    f"{low}-{high + 1}",
                    f"{high}-{low}",
                    f"{low}-{low}/0",
                    "*/0",
                    "*/",
                    "",
                    "-1",
                ),
                *(
                    f"{low}-",
                    f"{low}-{low}/x",
                    f"{low}-{high}/-2",
                    "1-2-3",
                    "1/2/3",
                    "W",
                    "15W",
                    "?",
                    "MONDAY",
                ),
            ]
        )
    )
    parts = [",".join(term.text for term in terms) for terms in expression.terms]
    parts[field - 1] = f"{parts[field - 1]},{wrong}"
    with pytest.raises(CronSimError):
        Cron(" ".join(parts), UTC_ZONE, after_gap=True, twice=True)


@pytest.mark.parametrize("expression", ["MON-1/2 * * * *", "0 0 * * MON-JAN/2", "0 0 * JAN-MON/2 *"])
def test_a_name_of_another_field_stays_refused_in_a_range_of_one(expression: str) -> None:
    with pytest.raises(CronSimError):
        Cron(expression, UTC_ZONE, after_gap=True, twice=True)
