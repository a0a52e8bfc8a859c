"""Namespaces of a node's own: network, mounts, processes. The kernel clears them away with their first process.

The holder of a Sandbox may be killed with SIGKILL: the kernel then kills the first process, with it all others in
there, containers included, and unmounts what they had mounted. Only directories and cgroups outlive it (leftovers.py).
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from tests.cluster.harness.server import LoggedProcess
from tests.node.harness import programs
from tests.processes import Gone

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.forking import Fork

SCRIPT: Final = Path(__file__).with_name("sandbox.sh")
TIED: Final = ("setpriv", "--pdeathsig", "KILL", "--")
KINDS: Final = ("--mount", "--net", "--pid", "--ipc", "--uts")
ANSWER_SECONDS: Final = 60.0
UNCONNECTED: Final = ("0A", "07")  # in /proc/net: of a TCP server, and of a UDP server
COMMAND_SECONDS: Final = 300.0


class SandboxError(Exception):
    """This machine does not let us make the namespaces, or a command in them failed."""


@dataclass
class Sandbox:
    """Running namespaces. `pid` is that of their first process, as seen from outside; `popen` is who started them."""

    popen: subprocess.Popen[bytes] | None
    pid: int

    @classmethod
    def start(cls, run_dir: Path, logs: Path) -> Sandbox:
        log = logs / "sandbox.log"
        shell = (str(SCRIPT), str(run_dir), str(logs))
        command = [*TIED, "unshare", *KINDS, "--fork", "--kill-child", "--", *shell]
        with log.open("wb") as errors:
            popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=programs.environment(),
                start_new_session=True,
            )
        assert popen.stdout is not None
        if popen.stdout.readline() != b"ready\n":
            popen.wait(ANSWER_SECONDS)
            raise SandboxError(
                f"no namespaces for a node ({log}): {log.read_text(errors='replace').strip()}\n"
                "In a container, it needs --privileged."
            )
        return cls(popen, child_of(popen))

    def enter(self, *argv: str) -> list[str]:
        """What to run instead of a command to have it run inside; signals to it do not get there (Entered)."""
        return ["nsenter", "--target", str(self.pid), *KINDS, "--", *argv]

    def run(
        self, *argv: str, stdin: IO[bytes] | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside, to its end."""
        done = subprocess.run(
            self.enter(*argv),
            stdin=stdin or subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=programs.environment(),
            timeout=COMMAND_SECONDS,
            check=False,
        )
        if check and done.returncode != 0:
            raise SandboxError(f"{' '.join(argv)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def launch(
        self, log: IO[bytes], *argv: str, cwd: Path, env: Mapping[str, str] | None = None
    ) -> LoggedProcess:
        """Start a server inside; what a Server takes in place of LoggedProcess.into."""
        outer = LoggedProcess.into(
            log, *self.enter(*TIED, *argv), cwd=cwd, env={**programs.environment(), **(env or {})}
        )
        return Entered(outer.popen, inner=child_of(outer.popen))

    def bound(self, protocol: str, port: int) -> bool:
        """Whether a process inside listens on a port, from the kernel's table; tcp or udp."""
        table = Path(f"/proc/{self.pid}/net/{protocol}").read_text().splitlines()[1:]
        rows = [line.split() for line in table]
        return any(row[1].endswith(f":{port:04X}") and row[3] in UNCONNECTED for row in rows)

    def stop(self) -> None:
        """Kill everything inside; returns when it is dead."""
        assert self.popen is not None, "another process started it"
        with suppress(ProcessLookupError):
            os.kill(self.pid, 9)
        self.popen.wait(ANSWER_SECONDS)
        if self.popen.stdout is not None:
            self.popen.stdout.close()


@dataclass
class Entered(LoggedProcess):
    """A process inside. Our child is nsenter, which waits for it and ends as it ended; signals go to itself."""

    inner: int = 0

    @property
    def pid(self) -> int:
        return self.inner

    def send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            if self.alive:
                os.kill(self.inner, number)
                if number != signal.SIGSTOP:
                    # nsenter stops itself when its child is stopped, and would never reap it.
                    os.kill(self.popen.pid, signal.SIGCONT)


def child_of(popen: subprocess.Popen[bytes] | subprocess.Popen[str] | Fork) -> int:
    """The one child of our child, once it has started it."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while popen.poll() is None and time.monotonic() < deadline:
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                # After the name, which is in parentheses and may contain anything: state, parent.
                if int(stat.read_text().rpartition(")")[2].split()[1]) == popen.pid:
                    return int(stat.parent.name)
        time.sleep(0.005)
    raise Gone(f"{popen.args!r} ended, or started nothing within {ANSWER_SECONDS:g} s")
