"""Time zones that mean the same on every machine: the names of tzdata, the IANA database.

Not here: what a zone says of clocks. zoneinfo reads the machine's files and takes tzdata where there are none.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib.resources import files


@cache
def names() -> frozenset[str]:
    """Return the names of all zones; Factory is for a machine whose zone is not set."""
    text = (files("tzdata") / "zones").read_text(encoding="ascii")
    return frozenset(text.split()) - {"Factory"}


def similar(name: str) -> str:
    """Return the zone that a wrong name is closest to; empty if there is none."""
    by_sound = {each.lower(): each for each in sorted(names())}
    near = get_close_matches(name.lower().replace(" ", "_"), by_sound, n=1, cutoff=0.8)
    return by_sound[near[0]] if near else ""
