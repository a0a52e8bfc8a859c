"""kubectl dq as a user runs it: the installed script, the real kubectl, a kubeconfig."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from delayq_operator.kubectl import main

from tests.cluster.harness.binaries import binary
from tests.forking import CONTEXT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.harness.cluster import Cluster

SCRIPTS = Path(sys.executable).parent
COMMAND_SECONDS = 120.0


@dataclass(frozen=True)
class Plugin:
    """Runs it in a namespace, as administrator unless another kubeconfig is given."""

    cluster: Cluster
    namespace: str
    kubeconfig: Path | None = None

    @property
    def kubectl(self) -> str:
        return binary("kubectl")

    def run(
        self, *args: str, text: str = "", script: str = "kubectl-dq", **env: str
    ) -> subprocess.CompletedProcess[str]:
        return self._run(
            [self.script(script), "--namespace", self.namespace, *args],
            text,
            {"KUBECTL": self.kubectl} | env,
        )

    def script(self, name: str = "kubectl-dq") -> str:
        return str(SCRIPTS / name)

    @contextmanager
    def started(self, *args: str, **streams: Any) -> Iterator[subprocess.Popen[Any]]:  # noqa: ANN401  Popen's own
        """It, running in a session of its own, as a shell would in the foreground; ended with the block."""
        given = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "text": True} | streams
        argv = ["setpriv", "--pdeathsig", "KILL", "--", self.script(), "--namespace", self.namespace, *args]
        environment = self._environment({"KUBECTL": self.kubectl})
        with subprocess.Popen(argv, env=environment, start_new_session=True, **given) as child:
            try:
                yield child
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)

    def _environment(self, env: dict[str, str]) -> dict[str, str]:
        ours = {"KUBECONFIG": str(self.kubeconfig or self.cluster.kubeconfig), "HOME": str(self.cluster.dir)}
        return os.environ | ours | env

    def through_kubectl(self, *args: str) -> str:
        """What `kubectl dq …` writes, the plugin and kubectl being on the path."""
        path = f"{SCRIPTS}:{Path(self.kubectl).parent}:{os.environ['PATH']}"
        done = self._run([self.kubectl, "dq", "-n", self.namespace, *args], "", {"PATH": path})
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _run(self, argv: list[str], text: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv,
            input=text,
            capture_output=True,
            text=True,
            env=self._environment(env),
            timeout=COMMAND_SECONDS,
            check=False,
        )

    def out(self, *args: str, text: str = "", code: int = 0) -> str:
        """What it writes, when it ends with this code."""
        return self._ended(code, *args, text=text).stdout

    def err(self, *args: str, text: str = "", code: int) -> str:
        """What it complains of, when it ends with this code."""
        return self._ended(code, *args, text=text).stderr

    def _ended(self, code: int, *args: str, text: str) -> subprocess.CompletedProcess[str]:
        done = self.run(*args, text=text)
        assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}{done.stderr}"
        return done


class ForkedPlugin(Plugin):
    """Each command is a fork of a process that has imported them all, see the fixture `forks`; it starts at once."""

    def _run(self, argv: list[str], text: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        if argv[0] != self.script():
            return super()._run(argv, text, env)
        with TemporaryDirectory() as directory:
            files = [Path(directory) / name for name in ("stdin", "stdout", "stderr")]
            files[0].write_text(text)
            child = CONTEXT.Process(target=command, args=(argv, self._environment(env), files))
            child.start()
            child.join(COMMAND_SECONDS)
            if child.exitcode is None:
                child.kill()
                raise subprocess.TimeoutExpired(argv, COMMAND_SECONDS)
            return subprocess.CompletedProcess(
                argv, child.exitcode, *(each.read_text() for each in files[1:])
            )


def command(argv: list[str], environment: dict[str, str], files: list[Path]) -> None:
    """What the script does, in this process, with these files as its standard streams."""
    os.environ.clear()
    os.environ.update(environment)
    for number, file in enumerate(files):
        os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), number)
    sys.argv[:] = argv
    main()
