"""Which generation of the DelayQueue last changed spec.shards: what tells an older document from a newer one.

Not the generation as such: it counts every change, and each would write the ConfigMap anew. It is remembered where the
scanners' inputs are. Who edits it there, or deletes it, does no harm: an older one asks for nothing, a newer one for
what is there already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from delayq.contract import DelayQueue

    from delayq_operator.desired.facts import Facts

INPUT: Final = "spec.shards"


def generation(queue: DelayQueue, facts: Facts) -> int:
    """Return the one that was remembered while the number is the same; else the one there is now."""
    shards, _, since = facts.inputs.get("scanner", {}).get(INPUT, "").partition(" since ")
    known = shards == str(queue.spec.shards) and since.isdecimal() and since.isascii()
    return min(int(since[:18]), facts.generation) if known else facts.generation


def asked(queue: DelayQueue, facts: Facts) -> dict[str, str]:
    """Remember it among what scanners read: a new number rolls them, and the first that is new begins the change."""
    return {INPUT: f"{queue.spec.shards} since {generation(queue, facts)}"}
