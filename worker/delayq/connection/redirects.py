"""Error replies of a Cluster's node that redirect a call, or ask for a retry. No I/O.

Before 7.0, Redis wraps the error of a script: `Error running script (call to f_…): …: -MOVED …`.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

from delayq.connection.place import Place

_ELSEWHERE: Final = re.compile(r"(?:^|(?<=: -))(MOVED|ASK) (\d{1,5}) (\S*):(\d{1,5})(?=$|[\s,.])")
_SOON: Final = re.compile(r"(?:^|(?<=: -))(?:TRYAGAIN|CLUSTERDOWN)\b")
_UNBLOCKED: Final = re.compile(r"^UNBLOCKED\b")
# A script accessed one of its keys that had just migrated to another node.
_TORN: Final = re.compile(r"[Ss]cript attempted to access a non local key")


class Redirect(NamedTuple):
    """The node to call instead: permanently (MOVED), or for this call (ASK), because the slot is migrating."""

    kind: Literal["MOVED", "ASK"]
    slot: int
    place: Place


def redirect(text: str, node: Place) -> Redirect | None:
    """Parse an error reply of `node`. Without a host in the reply, the host of that node counts."""
    found = _ELSEWHERE.search(text)
    if found is None:
        return None
    kind, slot, host, port = found.groups()
    place = Place(node.host if host in {"", "?"} else host, int(port))
    return Redirect("MOVED" if kind == "MOVED" else "ASK", int(slot), place)


def is_transient(text: str) -> bool:
    """Whether a retry on the same node may succeed soon."""
    return bool(_SOON.search(text) or _TORN.search(text))


def is_cluster_down(text: str) -> bool:
    """Whether the node reports that the Cluster, or the slot, is not served."""
    return text.startswith("CLUSTERDOWN") or ": -CLUSTERDOWN" in text


def is_unblocked(text: str) -> bool:
    """Whether Redis ended a blocking command because the server was demoted or the slot has moved."""
    return bool(_UNBLOCKED.search(text))
