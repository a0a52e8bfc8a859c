"""Whether a history of one task is linearizable: the search of Wing and Gong, with the memory of Lowe.

It looks for an order of the operations that the model could have seen, where each takes effect within its window. It
never visits the same set of operations with the same task twice. An operation whose result says that it changed nothing
is taken as soon as it is possible: if any order exists, one with it here exists too, unless the window of another one
ends before its own begins. Horn and Kroening split a history by object; split.py does.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final

from tests.histories.history import FAR
from tests.histories.life import NOTHING, Life, expired
from tests.histories.task_model import step

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.histories.history import Op

MOST: Final = 100_000
"""States after which a search ends without a verdict."""


@dataclass
class Verdict:
    """The result of one search. `linearizable` is None if it was given up."""

    linearizable: bool | None
    states: int
    furthest: list[Op] = field(
        default_factory=list
    )  # the longest order that was found, without later operations
    life: Life = NOTHING  # after it
    stuck: list[Op] = field(default_factory=list)  # those of which one had to follow


Node = tuple[int, Life]
"""The operations that took effect, as bits, and the task after them."""


class Search:
    """One search. `ops` are sorted by the begin of their windows."""

    def __init__(self, ops: Sequence[Op]) -> None:
        self.ops = sorted(ops, key=lambda op: op.lo)
        self.all = sum(1 << nth for nth, op in enumerate(self.ops) if op.required)
        self.twins = self._twins()

    def _twins(self) -> dict[int, int]:
        """Of each unknown operation, the bit of an equal one that may replace it: it is not taken before that one."""
        twins, last = dict[int, int](), dict[str, int]()
        for nth, op in enumerate(self.ops):
            key = f"{op.verb} {op.args}"
            if not op.required and key in last and self.ops[last[key]].hi >= op.hi:
                twins[nth] = 1 << last[key]
            if not op.required:
                last[key] = nth
        return twins

    def open(self, done: int) -> list[int]:
        """The operations that may take effect next: they begin before any that must take effect has to end."""
        found, end = list[int](), inf
        began = self.ops[done.bit_length() - 1].lo if done else -inf
        first = (~done & (done + 1)).bit_length() - 1  # all before it are done
        for nth in range(first, len(self.ops)):
            op = self.ops[nth]
            if op.lo > end:
                break
            if not done >> nth & 1 and op.hi >= began and not self.twins.get(nth, 0) & ~done:
                found.append(nth)
                if op.required:
                    end = min(end, op.hi)
        return [nth for nth in found if self.ops[nth].lo <= end]

    def next(self, node: Node) -> Iterator[Node]:
        """Yield what may follow: first what must take effect, then what is unknown, then a missed deadline."""
        done, life = node
        ready, ops = self.open(done), self.ops
        first = min((ops[nth].hi for nth in ready), default=inf)
        for nth in ready:
            if ops[nth].inert and ops[nth].lo <= first and list(step(life, ops[nth])) == [life]:
                yield done | 1 << nth, life
                return
        for nth in sorted(ready, key=lambda nth: (not ops[nth].required, ops[nth].hi)):
            yield from ((done | 1 << nth, after) for after in step(life, ops[nth]))
        ends = min((ops[nth].hi for nth in ready if ops[nth].required), default=inf)
        late = expired(life, (0, int(min(ends, FAR)) + 2))
        if late is not None:
            yield done, late

    def run(self, most: int = MOST) -> Verdict:
        """Search depth-first."""
        start = (0, NOTHING)
        seen, stack, path = {start}, [self.next(start)], [start]
        verdict, reached = Verdict(None, 0), -1
        while stack:
            done = path[-1][0]
            if done & self.all == self.all:
                return Verdict(linearizable=True, states=len(seen))
            if (count := (done & self.all).bit_count()) > reached:
                reached, furthest = count, list(path)
                verdict = self._reached(furthest)
            node = next((node for node in stack[-1] if node not in seen), None)
            if node is None:
                stack.pop()
                path.pop()
            elif len(seen) >= most:
                return verdict
            else:
                seen.add(node)
                stack.append(self.next(node))
                path.append(node)
        verdict.linearizable, verdict.states = False, len(seen)
        return verdict

    def _reached(self, path: list[Node]) -> Verdict:
        order = [before ^ after for (before, _), (after, _) in itertools.pairwise(path)]
        taken = [self.ops[bit.bit_length() - 1] for bit in order if bit]
        done, life = path[-1]
        return Verdict(None, len(path), taken, life, [self.ops[nth] for nth in self.open(done)])


def check(ops: Sequence[Op], most: int = MOST) -> Verdict:
    """Search for a linearization of one task's history."""
    return Search(ops).run(most)
