"""How one task is scheduled: when, under which ID, and what happens if the ID exists."""

from __future__ import annotations

import inspect
from difflib import get_close_matches
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from delayq.client.enqueue import IfExists
    from delayq.durations import Duration


class Options(NamedTuple):
    """The options of one task. A delay is "30m" or a timedelta; `due` is a time with its zone."""

    delay: Duration | None = None
    due: datetime | None = None
    id: str | None = None
    if_exists: IfExists = "reject"
    headers: Mapping[str, str] | None = None
    deadline: Duration | None = None  # after the due time
    debounce: Duration | None = None  # how far the due time may move, from the first call
    tags: Sequence[str] | None = None


def check_options(where: str, unknown: Iterable[str], function: Callable[..., object]) -> None:
    """Raise TypeError for options that a function does not take, with the nearest that it takes."""
    for name in unknown:
        known = [
            each
            for each, kind in inspect.signature(function).parameters.items()
            if kind.kind is kind.KEYWORD_ONLY
        ]
        near = get_close_matches(name, known, 1)
        hint = f", did you mean {near[0]}?" if near else f"; expected one of {', '.join(known)}"
        raise TypeError(f"{where}: unknown option {name}{hint}")
