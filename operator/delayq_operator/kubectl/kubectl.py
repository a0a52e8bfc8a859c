"""Run kubectl as a child process, with the user's kubeconfig and login. refusals.py explains its errors."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from delayq.cli.exits import FAILED, UNAVAILABLE, CommandError

from delayq_operator.kubectl.refusals import refusal

if TYPE_CHECKING:
    from delayq.kube.objects import Object

VARIABLE: Final = "KUBECTL"
REQUEST_SECONDS: Final = 30
PATIENCE_SECONDS: Final = 120.0
"""A login plugin may open a browser and wait for the user."""


@dataclass(frozen=True)
class Kubectl:
    """Calls kubectl with the user's options."""

    options: tuple[str, ...] = ()

    def argv(self, verb: str, *args: str, namespace: str | None = None) -> list[str]:
        """Return a command line, without secrets. `namespace` overrides the user's."""
        # Directly behind the verb: everything after `exec … --` belongs to the command in the pod.
        options = [*self.options, *([f"--namespace={namespace}"] if namespace else ())]
        return [os.environ.get(VARIABLE) or "kubectl", verb, *options, *args]

    def run(self, *args: str, namespace: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl, and return its output with any exit code."""
        argv = self.argv(*args, namespace=namespace)
        if args[0] not in ("exec", "logs"):  # streams
            argv.insert(2, f"--request-timeout={REQUEST_SECONDS}s")
        streams: dict[str, Any] = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
        with self.start(argv, stdin=subprocess.DEVNULL, text=True, **streams) as child:
            try:
                out, err = child.communicate(timeout=PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                said = f"kubectl {args[0]} did not end within {PATIENCE_SECONDS:g} s"
                raise CommandError(said, "kubectl cluster-info", UNAVAILABLE) from None
            finally:
                child.kill()
        return subprocess.CompletedProcess(argv, child.returncode, out, err)

    def text(self, *args: str, namespace: str | None = None) -> str:
        """Return kubectl's stdout; raise its error."""
        answer = self.run(*args, namespace=namespace)
        if answer.returncode != 0:
            raise refusal(answer.stderr)
        return answer.stdout

    def json(self, *args: str) -> Object:
        """Return kubectl's JSON output."""
        found: Object = json.loads(self.text(*args, "--output=json"))
        return found

    def items(self, *args: str) -> list[Object]:
        """Return the objects of a list, or the one that was named."""
        found = self.json("get", *args)
        return list(found.get("items", [found]))

    def start(self, argv: list[str], **streams: Any) -> subprocess.Popen[Any]:  # noqa: ANN401 -- Popen's own
        """Start kubectl and return at once."""
        try:
            return subprocess.Popen(argv, **streams)  # noqa: S603 -- the user's own kubectl
        except OSError as error:
            said = f"cannot run {argv[0]}: {error.strerror or type(error).__name__}"
            raise CommandError(said, f"install it, or name it in ${VARIABLE}", FAILED) from None
