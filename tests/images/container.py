"""An image run without a container engine: namespaces, a read-only root, its own user, no privilege, process 1.

What a kubelet does with it beyond that is shown in tests/node. The network is that of the machine.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.processes import Process

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.images.archive import Image

SHELLS = ("sh", "bash", "dash", "rbash")
# $1 root, $2 working directory, $3 user; then the command. The last process is 1 in its namespace.
ENTER = """
mount --bind "$1" "$1"; mount --rbind /dev "$1/dev"; mount -t proc proc "$1/proc"; mount -o remount,bind,ro "$1"
root=$1 folder=$2 user=$3; shift 3
exec setpriv --no-new-privs -- unshare --root="$root" --wd="$folder" --setgid="$user" --setuid="$user" -- "$@"
"""


@dataclass
class Container:
    """A root file system, and how its image wants to be started."""

    image: Image
    root: Path

    @property
    def environment(self) -> dict[str, str]:
        """The image's; and a home, which every runtime gives to a user that /etc/passwd does not know."""
        return {"HOME": "/", **self.image.environment}

    def argv(self, *command: str) -> list[str]:
        config = self.image.config["config"]
        user = config["User"].partition(":")[0]
        # The kernel forgets PR_SET_PDEATHSIG when a process changes its user, as the inner one does. The
        # outer one does not, and takes all namespaces within its own along.
        outer = ["unshare", "--pid", "--fork", "--kill-child"]
        inner = ["unshare", "--mount", "--pid", "--fork", "--propagation", "private"]
        enter = [
            *outer,
            *inner,
            "/bin/sh",
            "-ec",
            ENTER,
            "sh",
            str(self.root),
            config.get("WorkingDir") or "/",
            user,
        ]
        return [*enter, *command]

    def output(self, *command: str) -> str:
        """What a command says, on both streams, which must end well."""
        done = subprocess.run(
            self.argv(*command),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    @contextmanager
    def running(self, *arguments: str, env: Mapping[str, str] | None = None) -> Iterator[Process]:
        """The image's entry point, until the end of the `with` block."""
        config = self.image.config["config"]
        bare = [f"--unset={name}" for name in ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")]
        process = Process.start(
            "env",
            *bare,
            *self.argv(*config["Entrypoint"], *arguments),
            env=self.environment | dict(env or {}),
        )
        try:
            yield process
        finally:
            process.kill()

    def without_shell(self) -> None:
        """Take every shell away: nothing that is tested from here on needs one."""
        for folder in ("usr/bin", "bin"):
            for name in SHELLS:
                (self.root / folder / name).unlink(missing_ok=True)

    def put(self, folder: str, *files: Path) -> None:
        """What a volume would bring."""
        (self.root / folder).mkdir(parents=True, exist_ok=True)
        for file in files:
            shutil.copy(file, self.root / folder)


def first(process: Process) -> int:
    """The number, on this machine, of the process that is 1 in there; empty until it is forked."""
    pid = process.pid
    for _ in ("outer namespace", "inner namespace"):
        pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    return pid


def terminate(process: Process) -> None:
    """SIGTERM to process 1, as a kubelet sends it."""
    subprocess.run(["kill", f"-{signal.SIGTERM}", str(first(process))], check=True)
