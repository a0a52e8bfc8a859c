"""A shard as a dictionary: the effect of every verb in the plainest form. Tokens are taken from the real shard."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from delayq.protocol.envelope import decode
from delayq.protocol.results import Bulk, Failures, Selection

from tests.redis.state import State, history_weight

MAX_ATTEMPTS, MAX_CRASHES, MAX_LENGTH, MAX_DELAY_MS = 3, 2, 4, 100_000
SAME_MS = 60_000  # by how much the due times of the tries of one call may differ


def with_latest(body: bytes, latest_ms: int) -> bytes:
    """The same envelope with another latest due time, which follows kind and deadline."""
    at = 2
    if body[1] & 1:
        at += 1 + body[2] + 2
    if body[1] & 2:
        at += 5
    return body[:at] + latest_ms.to_bytes(6, "big") + body[at + 6 :]


@dataclass
class Life:
    """One task."""

    envelope: bytes
    home: str
    at: int  # due time, group of a suspect, lease expiry (deferred: minus the time until which) or time of death
    due: int = 0  # of the run in flight
    token: int = 0
    failures: int = 0
    crashes: int = 0
    error: str = ""
    counted: bool = False  # it failed, crashed, was put back by its handler or redriven with a delay
    kept: int = 0  # due time of its last retry or redrive
    alone: int = 0  # crashes while it ran alone
    group: int = 0  # of its last isolated run: the first token of its half
    size: int = 0  # of its last isolated run: how many tasks
    story: str = ""  # of its death
    follow_up: bytes = b""
    cancelling: bool = False  # in flight, and its run is to be cancelled

    @property
    def kept_due(self) -> int:
        """The due time that is stored outside of the indexes."""
        return max(self.kept, int.from_bytes(self.envelope[-6:], "big"))

    @property
    def deadline_ms(self) -> int | None:
        return decode(self.envelope).further.deadline_ms

    def missed(self, now: int) -> bool:
        """Whether it must not be claimed any more. A deadline counts from the due time at the end of the envelope."""
        found = decode(self.envelope)
        return found.further.deadline_ms is not None and now > found.due_ms + found.further.deadline_ms

    @property
    def kind(self) -> tuple[str, int]:
        return decode(self.envelope).further[:2]

    @property
    def waits_until(self) -> int:
        """The due time, by which tasks are selected."""
        return self.at if self.home in {"delayed", "retry", "parked"} else self.kept_due

    def member(self, task_id: str) -> str:
        """The task in the index in which it is."""
        kind, version = self.kind
        parked = f"{kind or '-'} {version:05d} {self.at:015d} {task_id}"
        return {"processing": f"{task_id}:{self.token}", "parked": parked}.get(self.home, task_id)

    @property
    def failed(self) -> Failures:
        if self.home == "dlq":
            failures, crashes, reason, error = self.story.split(" ", 3)
            return Failures(int(failures), int(crashes), reason, error)
        return Failures(self.failures, self.crashes, "", self.error) if self.counted else Failures()

    def die(self, now: int, reason: str, error: str) -> None:
        self.story = f"{self.failures} {self.crashes} {reason} {error}"
        self.home, self.at = "dlq", now
        self.failures, self.crashes, self.error, self.counted, self.kept = 0, 0, "", False, 0
        self.alone = self.group = self.size = 0

    @property
    def isolated(self) -> bool:
        """Whether the current lease is of an isolated run."""
        return self.group <= self.token < self.group + self.size

    def wait(self, home: str, due: int) -> None:
        self.home, self.at = home, due

    def keep(self, now: int) -> None:
        """Store the due time beside the error: one in the future, or if the error looks like a due time."""
        self.kept = self.at if self.at > now or self.error.startswith("@") else 0

    @property
    def entry(self) -> str:
        due = f"@{self.kept} " if self.kept else ""
        marked = self.alone + self.group or self.error.startswith("~")
        mark = f"~{self.alone}:{self.group}:{self.size} " if marked else ""
        return f"{self.failures} {self.crashes} {due}{mark}{self.error}"


def selects(chosen: Selection, envelope: bytes, due: int) -> bool:
    """Whether a task has the tag, the kind and the due time."""
    kind, _, _, _, tags, _ = decode(envelope).further
    after = chosen.due_from_ms is None or due >= chosen.due_from_ms
    before = chosen.due_before_ms is None or due < chosen.due_before_ms
    return after and before and chosen.kind in {None, kind} and (chosen.tag is None or chosen.tag in tags)


@dataclass
class Model:
    """One shard. Each method takes Redis' time and returns the reply that the script should send."""

    lives: dict[str, Life] = field(default_factory=dict)
    stats: Counter[str] = field(default_factory=Counter)
    drops: bool = False  # what misses its deadline is deleted
    looks: dict[str, int] = field(default_factory=dict)  # task in flight to when expire looks at it again
    bounds: tuple[int, int, int] | None = None  # seconds, count and bytes of the history
    finished: dict[str, tuple[int, str]] = field(default_factory=dict)  # when a task was done, and its entry

    def state(self) -> State:
        homes: dict[str, dict[str, int]] = {
            "delayed": {},
            "retry": {},
            "suspect": {},
            "processing": {},
            "dlq": {},
            "parked": {},
        }
        for task_id, life in self.lives.items():
            homes[life.home][life.member(task_id)] = 0 if life.home == "parked" else life.at
        return State(
            delayed=homes["delayed"],
            retry=homes["retry"],
            suspect=homes["suspect"],
            processing=homes["processing"],
            dlq=homes["dlq"],
            parked=homes["parked"],
            tasks={task_id: life.envelope for task_id, life in self.lives.items()},
            attempts={task_id: life.entry for task_id, life in self.lives.items() if life.counted},
            dlq_info={task_id: life.story for task_id, life in self.lives.items() if life.home == "dlq"},
            followups={task_id: life.follow_up for task_id, life in self.lives.items() if life.follow_up},
            cancelling=frozenset(task_id for task_id, life in self.lives.items() if life.cancelling),
            finished={task_id: done for task_id, (done, _) in self.finished.items()},
            finished_info={task_id: entry for task_id, (_, entry) in self.finished.items()},
            stats={name: count for name, count in self.stats.items() if count},
        )

    def schedule(
        self, now: int, task_id: str, due: int, *, body: bytes, if_exists: str, repeated: bool
    ) -> str:
        outcome, asked = self._admitted(now, task_id, due, if_exists), due
        if outcome == "kept" and task_id not in self.lives:
            return outcome
        if if_exists == "debounce":
            latest = self._latest(now, task_id, body)
            body, due = with_latest(body, latest), min(due, latest)
        if repeated and outcome in {"exists", "kept"}:
            envelope = self.lives[task_id].envelope
            later = max(due, now) - int.from_bytes(envelope[-6:], "big")
            return "repeated" if envelope[:-6] == body and 0 <= later <= SAME_MS else outcome
        if outcome in {"created", "replaced"}:
            at = max(due, now)
            self.lives[task_id] = Life(body + at.to_bytes(6, "big"), "delayed", at)
            self.stats.update(scheduled=1, clamped=int(asked < now))
        if outcome == "follows":
            self.lives[task_id].follow_up = body + max(due, now).to_bytes(6, "big")
            self.stats["scheduled"] += 1
        return outcome

    def stored_due(self, task_id: str, outcome: str) -> int:
        """Return the due time that a call that stored or kept a task returns."""
        life = self.lives.get(task_id)
        if life is None:
            return int(self.finished[task_id][1].split()[2])
        if outcome == "follows":
            return int.from_bytes(life.follow_up[-6:], "big")
        return life.at if life.home in {"delayed", "retry"} else life.kept_due

    def ends(self, life: Life) -> bool:
        """A task has ended: its follow-up takes its place, if there is one."""
        [task_id] = [task_id for task_id, each in self.lives.items() if each is life]
        if not life.follow_up:
            return False
        self.lives[task_id] = Life(life.follow_up, "delayed", int.from_bytes(life.follow_up[-6:], "big"))
        return True

    def dies(self, life: Life, now: int, reason: str, error: str) -> str:
        self.stats["buried"] += 1
        if self.ends(life):
            return "superseded"
        life.die(now, reason, error)
        return "buried"

    def expires(self, now: int, task_id: str) -> None:
        """A task that is not in flight has missed its deadline."""
        life = self.lives[task_id]
        self.stats["expired"] += 1
        if self.ends(life):
            return
        if self.drops:
            del self.lives[task_id]
            self.stats["dropped"] += 1
        else:
            last = f", last error: {life.error}" if life.error else ""
            life.die(now, "expired", f"missed its deadline{last}")

    def expire(self, now: int, looked_at: list[str]) -> int:
        late = [
            task_id
            for task_id in looked_at
            if task_id in self.lives
            and self.lives[task_id].home in {"delayed", "retry", "suspect", "parked"}
            and self.lives[task_id].missed(now)
        ]
        for task_id in looked_at:
            self.looks[task_id] = now + 5000
        for task_id in late:
            self.expires(now, task_id)
        return len(late)

    def _latest(self, now: int, task_id: str, body: bytes) -> int:
        """The latest due time: of the follow-up, of a task that waits and never failed or crashed, or a new one."""
        life = self.lives.get(task_id)
        kept = None
        if life and life.follow_up:
            kept = decode(life.follow_up).further.latest_ms
        elif life and not life.failures + life.crashes and life.home in {"delayed", "retry", "parked"}:
            kept = decode(life.envelope).further.latest_ms
        if kept is None:
            return now + (decode(body + bytes(6)).further.latest_ms or 0)
        return kept

    def _admitted(self, now: int, task_id: str, due: int, if_exists: str) -> str:
        if due > now + MAX_DELAY_MS:
            return "too_far"
        home = self.lives[task_id].home if task_id in self.lives else ""
        full = sum(life.home != "dlq" for life in self.lives.values()) >= MAX_LENGTH
        if not home and if_exists == "keep" and self.remembered(now, task_id):
            return "kept"
        if not home:
            return "full" if full else "created"
        if if_exists not in {"replace", "debounce"}:
            return {"keep": "kept", "reject": "exists"}[if_exists]
        if home == "dlq" and full:  # its replacement is one more live task
            return "full"
        return "follows" if home == "processing" else "replaced"

    def where(self, task_id: str) -> str:
        """The reply of cancel and reschedule for a task that they do not change."""
        home = self.lives[task_id].home if task_id in self.lives else ""
        return {"": "not_found", "processing": "in_flight", "dlq": "dead"}.get(home, "")

    def cancel(self, task_id: str, *, running: bool = False) -> str:
        if refused := self.where(task_id):
            followed = task_id in self.lives and self.lives[task_id].follow_up
            if followed:
                self.lives[task_id].follow_up = b""
            if running and refused == "in_flight":
                self.lives[task_id].cancelling = True
                return "cancelling"
            return "follow_up_cancelled" if followed else refused
        del self.lives[task_id]
        self.stats["cancelled"] += 1
        return "cancelled"

    def cancelled(self, life: Life) -> bool:
        """A lease has ended without an ack: the task is no more if its run was to be cancelled."""
        if not life.cancelling:
            return False
        if not self.ends(life):
            [task_id] = [task_id for task_id, each in self.lives.items() if each is life]
            del self.lives[task_id]
        self.stats["cancelled"] += 1
        return True

    def end_cancelled(self, member: str) -> str:
        life = self.held(member)
        if not life:
            return "lease_lost"
        life.cancelling = True  # also if that was forgotten
        self.cancelled(life)
        return "cancelled"

    def tags(self) -> set[str]:
        """The entries that must be there; others may be left of earlier tasks."""
        return {
            f"{tag} {task_id}"
            for task_id, life in self.lives.items()
            for envelope in (life.envelope, life.follow_up)
            if envelope
            for tag in decode(envelope).further.tags
        }

    def bulk(self, action: str, chosen: Selection) -> tuple[Bulk, set[tuple[str, int]]]:
        """The numbers, and what is listed."""
        found, listed = Counter[str](), set[tuple[str, int]]()
        for task_id, life in list(self.lives.items()):
            follows = int.from_bytes(life.follow_up[-6:], "big")
            due = life.waits_until
            hit, waits = selects(chosen, life.envelope, due), not self.where(task_id)
            if hit and waits:
                found["tasks"] += 1
                listed |= {(task_id, due)} if action == "list" else set()
                if action == "cancel":
                    self.cancel(task_id)
                continue
            if life.follow_up and selects(chosen, life.follow_up, follows):
                found["follow_ups"] += 1
                listed |= {(task_id, follows)} if action == "list" and not waits else set()
                if action == "cancel":
                    life.follow_up = b""
            found["dead" if life.home == "dlq" else "in_flight"] += hit
        return Bulk(*(found[name] for name in Bulk._fields)), listed

    def reschedule(self, now: int, task_id: str, due: int) -> str:
        follow_up = self.lives[task_id].follow_up if task_id in self.lives else b""
        refused = self.where(task_id)
        if refused and not (refused == "in_flight" and follow_up):
            return refused
        if due > now + MAX_DELAY_MS:
            return "too_far"
        self.stats.update(rescheduled=1, clamped=int(due < now))
        life = self.lives[task_id]
        if refused:
            life.follow_up = follow_up[:-6] + max(due, now).to_bytes(6, "big")
            return "rescheduled"
        life.at = max(due, now)
        if life.home == "suspect":
            life.home = "retry"
        if life.home == "parked":
            life.home = "retry" if life.counted else "delayed"
        if life.home == "delayed" or life.deadline_ms is not None:
            life.envelope = life.envelope[:-6] + life.at.to_bytes(6, "big")
        if life.counted:
            life.keep(now)
        return "rescheduled"

    def due(self, now: int) -> list[str]:
        """The ids that a claim takes, in order: by due time, fresh before retried, then by name."""
        found = [
            (life.at, life.home == "retry", task_id)
            for task_id, life in self.lives.items()
            if life.home in {"delayed", "retry"} and life.at <= now
        ]
        return [task_id for _, _, task_id in sorted(found)]

    def in_flight(self) -> int:
        """Tasks that count under limits.maxInFlight: those with a lease that is not deferred, expired or not."""
        return sum(life.home == "processing" and life.at > 0 for life in self.lives.values())

    def claim(self, task_id: str, token: int, expiry: int) -> int:
        """Lease one task; answers the number of its attempt."""
        life = self.lives[task_id]
        life.due, life.token, life.home, life.at = life.at, token, "processing", expiry
        self.stats["claimed"] += 1
        return life.failures + life.crashes + 1

    def group(self, limit: int, now: int) -> list[str]:
        """The ids that isolate takes: the suspect that has waited longest, and those of its group behind it.

        A suspect that is not due, after the clock stepped back, returns to retry; one that missed its deadline ends.
        """
        found = sorted(
            (life.at, task_id.encode(), task_id)
            for task_id, life in self.lives.items()
            if life.home == "suspect"
        )
        ids, groups = list[str](), set[int]()
        for *_, task_id in found[:limit]:
            life = self.lives[task_id]
            group = life.group if life.group == life.at else 0
            if groups and group not in groups:
                break
            if life.missed(now):
                self.expires(now, task_id)
            elif life.kept_due > now:
                life.wait("retry", life.kept_due)
            else:
                groups.add(group)
                ids.append(task_id)
        return ids

    def isolate(self, now: int, ids: list[str], token: int, expiry: int) -> None:
        """Lease a group under consecutive tokens; each task stores to which half it belongs."""
        for nth, task_id in enumerate(ids):
            life = self.lives[task_id]
            self.claim(task_id, token + nth, expiry)
            life.due = min(now, life.kept_due)
            half = -(-len(ids) // 2)
            life.group, life.size = token if nth < half else token + half, len(ids)

    def held(self, member: str) -> Life | None:
        """The task whose current lease this is."""
        task_id, _, token = member.rpartition(":")
        life = self.lives.get(task_id)
        return life if life and life.home == "processing" and life.token == int(token) else None

    def ack(self, now: int, member: str) -> str:
        life = self.held(member)
        if not life:
            return "lease_lost"
        if self.bounds:
            late = max(0, life.token // 1000 - life.due)
            entry = f"{life.failures + life.crashes + 1} {late} {life.due} {self.bounds[0]}"
            self.finished[member.rpartition(":")[0]] = now, entry
            self.trim(now)
        if not self.ends(life):
            del self.lives[member.rpartition(":")[0]]
        self.stats["acked"] += 1
        return "acked"

    def trim(self, now: int, *, limit: int = 100) -> int:
        """Remove the oldest entries beyond the bounds of the history."""
        seconds, count, size = self.bounds or (0, 0, 0)
        gone = 0
        for task_id in sorted(self.finished, key=lambda name: (self.finished[name][0], name.encode())):
            held = history_weight(self.state().finished_info)
            old = self.finished[task_id][0] + seconds * 1000 <= now
            if gone == limit or not (old or len(self.finished) > count or held > size):
                break
            del self.finished[task_id]
            gone += 1
        return gone

    def remembered(self, now: int, task_id: str) -> tuple[int, str] | None:
        done, entry = self.finished.get(task_id, (0, "0"))
        return (done, entry) if now < done + int(entry.split()[-1]) * 1000 else None

    def retry(self, now: int, member: str, delay_ms: int, *, charge: int, error: str) -> str:
        life = self.held(member)
        if not life:
            return "lease_lost"
        if self.cancelled(life):
            return "cancelled"
        life.failures += charge
        if life.failures >= MAX_ATTEMPTS:
            return self.dies(life, now, "attempts", error)
        life.counted, life.error, life.group, life.size = True, error, 0, 0
        life.wait("retry", now + delay_ms)
        life.keep(now)
        self.stats["retried"] += 1
        return "retried"

    def bury(self, now: int, member: str, error: str) -> str:
        life = self.held(member)
        if not life:
            return "lease_lost"
        if self.cancelled(life):
            return "cancelled"
        life.failures += 1
        return self.dies(life, now, "buried", error)

    def release(self, member: str, due: int | None = None) -> str:
        life = self.held(member)
        if not life:
            return "lease_lost"
        if self.cancelled(life):
            return "cancelled"
        life.due = life.due if due is None else due
        if life.isolated:
            life.wait("suspect", life.group)
        else:
            life.wait("retry" if life.counted else "delayed", life.due)
        self.stats["released"] += 1
        return "released"

    def park(self, member: str) -> str:
        life = self.held(member)
        if not life:
            return "lease_lost"
        if self.cancelled(life):
            return "cancelled"
        self.stats["parked"] += 1
        if not self.ends(life):
            life.wait("parked", life.kept_due)
        return "parked"

    def unpark(self, kinds: list[tuple[str, int | None]] | None, limit: int) -> tuple[int, int]:
        """Kind after kind, and of each the earliest due first."""
        parked = {life.member(task_id): life for task_id, life in self.lives.items() if life.home == "parked"}
        order = sorted(parked, key=str.encode)
        if kinds is not None:
            known = [(kind, member) for kind in kinds for member in order]
            order = [
                each for kind, each in known if kind in {parked[each].kind, (parked[each].kind[0], None)}
            ]
            order = list(dict.fromkeys(order))
        for member in order[:limit]:
            life = parked[member]
            if life.group:
                life.wait("suspect", life.group)
            else:
                life.home = "retry" if life.counted else "delayed"
            self.stats["unparked"] += 1
        return len(order[:limit]), len(parked) - len(order[:limit])

    def reclaim(self, now: int, limit: int) -> list[tuple[str, str]]:
        expired = sorted(
            (life.at, f"{task_id}:{life.token}", life)
            for task_id, life in self.lives.items()
            if life.home == "processing" and life.at <= now
        )
        return [(member, self._taken_back(now, life)) for _, member, life in expired[:limit]]

    def recover(
        self, now: int, member: str, verdict: str, *, stale: bool, locked: bool, wait_ms: int, failed: int
    ) -> str:
        life = self.held(member)
        alive = life is not None and (stale or abs(life.at) > now)
        if refused := "gone" if not life else "alive" if alive else "" if locked else "lock_lost":
            return refused
        assert life
        self.stats["checks_failed"] += failed
        if verdict in {"requeue", "bury"} and self.cancelled(life):
            return "cancelled"
        if verdict == "requeue":
            return self._taken_back(now, life)
        if verdict == "wait":
            life.at = -(now + wait_ms)  # deferred
            self.stats["waited"] += 1
            return "waited"
        if verdict == "complete":
            if not self.ends(life):
                del self.lives[member.rpartition(":")[0]]
            self.stats["completed"] += 1
            return "completed"
        life.crashes += 1
        return self.dies(life, now, "recovered", "why")

    def _taken_back(self, now: int, life: Life) -> str:
        if self.cancelled(life):
            return "cancelled"
        life.crashes += 1
        life.alone += life.isolated and life.size == 1
        if life.alone >= MAX_CRASHES:
            return self.dies(life, now, "crashes", life.error)
        if not life.isolated:
            life.group = life.size = 0
        life.counted = True
        life.wait("suspect", life.group or life.token)
        self.stats["reclaimed"] += 1
        return "reclaimed"

    def clamp_leases(self, latest: int) -> int:
        longer = [life for life in self.lives.values() if life.home == "processing" and abs(life.at) > latest]
        for life in longer:
            life.at = latest if life.at > 0 else -latest
        return len(longer)

    def dead(self) -> list[str]:
        return sorted(task_id for task_id, life in self.lives.items() if life.home == "dlq")

    def redrive(self, now: int, task_id: str, delay_ms: int) -> int:
        if task_id not in self.dead():
            return 0
        life = self.lives[task_id]
        life.wait("delayed", now + delay_ms)
        if life.deadline_ms is not None:
            life.envelope = life.envelope[:-6] + life.at.to_bytes(6, "big")
        life.counted, life.kept = delay_ms > 0, now + delay_ms if delay_ms else 0
        self.stats["redriven"] += 1
        return 1

    def purge(self, task_id: str, before: int) -> int:
        if task_id not in self.dead() or self.lives[task_id].at >= before:
            return 0
        del self.lives[task_id]
        self.stats["purged"] += 1
        return 1
