"""The delayq processes of one cell: a scanner, a reaper, the worker that is hit, and another that goes on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.faults.guards import SECRET
from tests.process.fleet import ENDLESS, Fleet, wait_said
from tests.processes import DELAYQ, Process

if TYPE_CHECKING:
    from tests.faults.guards import GuardKind
    from tests.faults.machine import Machine
    from tests.process.fleet import Role

ROOT: Final = Path(__file__).parents[2]
LEASE_SECONDS: Final = 2  # with 1, a busy machine loses leases though nothing has happened
CONCURRENCY: Final = 15
START_SECONDS: Final = 60.0


def spec_of(guard: GuardKind) -> dict[str, Any]:
    """Nothing is given up: an effect that is missing in the end was lost."""
    return {
        "handler": {"python": {"callable": guard.handler}},
        "guard": guard.spec or None,
        "worker": {"concurrency": CONCURRENCY, "drainTimeoutSeconds": 20},
        "delivery": {
            "leaseDurationSeconds": LEASE_SECONDS,
            "maxBlockMilliseconds": 200,
            "maxAttempts": 10_000,
            "maxCrashes": 10_000,
            "backoff": {"delaysSeconds": [0, 1]},
        },
    }


class Crew(Fleet):
    """A fleet whose processes may run on different machines."""

    def start_on(self, machine: Machine, role: Role, **environment: str) -> Process:
        """Start a process there; it does not work yet."""
        redis = f"redis://{machine.redis}:{self.server.port}/0"
        argv = (str(self.config), "--redis", redis, "--port", "0", *ENDLESS[role])
        process = Process.quick(
            *machine.enter,
            DELAYQ,
            role,
            *argv,
            env={
                "LEDGER": str(self.ledger_dir),
                "LEDGER_CLOCK": redis,
                **self.environment,
                **machine.environment,
                **environment,
            },
            cwd=ROOT,
        )
        self.processes.append(process)
        return process

    def write_secrets(self, name: str, **keys: str) -> Path:
        """What a guard's references lead to, as one machine sees it."""
        directory = self.dir / name
        (directory / SECRET).mkdir(parents=True)
        for key, value in keys.items():
            (directory / SECRET / key).write_text(value)
        return directory

    def write_logs(self) -> None:
        """Where ledger and document are, to see what happened."""
        for process in self.processes:
            (self.dir / f"{process.pid}.log").write_text(process.output)

    def wait_started(self) -> None:
        for process in self.processes:
            wait_said(process, "started", timeout_s=START_SECONDS)
