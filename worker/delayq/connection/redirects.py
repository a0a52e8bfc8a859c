"""What a Cluster's node answers instead of serving: where else to ask, or to ask again in a moment. Pure.

Before 7.0, Redis wraps what a script met: `Error running script (call to f_…): …: -MOVED …`.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

from delayq.connection.place import Place

_ELSEWHERE: Final = re.compile(r"(?:^|(?<=: -))(MOVED|ASK) (\d{1,5}) (\S*):(\d{1,5})(?=$|[\s,.])")
_SOON: Final = re.compile(r"(?:^|(?<=: -))(?:TRYAGAIN|CLUSTERDOWN)\b")
_UNBLOCKED: Final = re.compile(r"^UNBLOCKED\b")
# A script that met a key of its own which had just gone from a slot under migration.
_TORN: Final = re.compile(r"[Ss]cript attempted to access a non local key")


class Redirect(NamedTuple):
    """Where to ask instead: from now on (MOVED), or this once (ASK), for the slot is on its way there."""

    kind: Literal["MOVED", "ASK"]
    slot: int
    place: Place


def redirect(text: str, asked: Place) -> Redirect | None:
    """Read an error reply of the node `asked`; one without a host means the host that was asked."""
    found = _ELSEWHERE.search(text)
    if found is None:
        return None
    kind, slot, host, port = found.groups()
    place = Place(asked.host if host in {"", "?"} else host, int(port))
    return Redirect("MOVED" if kind == "MOVED" else "ASK", int(slot), place)


def soon(text: str) -> bool:
    """Whether a retry at the slot's server may succeed soon."""
    return bool(_SOON.search(text) or _TORN.search(text))


def down(text: str) -> bool:
    """Whether the node says that the Cluster, or that slot, is not served."""
    return text.startswith("CLUSTERDOWN") or ": -CLUSTERDOWN" in text


def unblocked(text: str) -> bool:
    """Whether a blocked client was let go because its server is no master any more, or its slot elsewhere."""
    return bool(_UNBLOCKED.search(text))
