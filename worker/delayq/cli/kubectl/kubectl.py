"""Run kubectl as a child process, with the user's kubeconfig and login. refusals.py explains its errors."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from delayq.cli.exits import FAILED, UNAVAILABLE, CommandError
from delayq.cli.kubectl.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

VARIABLE: Final = "KUBECTL"
REQUEST_SECONDS: Final = 30
STREAMS: Final = ("exec", "logs")
"""Commands without a request timeout."""

PATIENCE_SECONDS: Final = 120.0
"""A login plugin may open a browser and wait for the user."""

Object: TypeAlias = dict[str, Any]
Answer: TypeAlias = subprocess.CompletedProcess[str]


@dataclass(kw_only=True)
class Where:
    """Options of kubectl; None leaves the choice to kubectl."""

    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None


@dataclass(frozen=True)
class Kubectl:
    """Calls kubectl with the user's options."""

    where: Where

    def argv(self, *args: str, namespace: str | None = None) -> list[str]:
        """Return a command line, without secrets."""
        where = {
            "--namespace": namespace or self.where.namespace,
            "--context": self.where.context,
            "--kubeconfig": self.where.kubeconfig,
        }
        # Directly behind the verb: everything after `exec … --` belongs to the command in the pod.
        verb, *rest = args
        options = [f"{name}={value}" for name, value in where.items() if value is not None]
        return [os.environ.get(VARIABLE) or "kubectl", verb, *options, *rest]

    def run(self, *args: str, namespace: str | None = None) -> Answer:
        """Run kubectl, and return its output with any exit code."""
        argv = self.argv(*args, namespace=namespace)
        if args[0] not in STREAMS:
            argv.insert(2, f"--request-timeout={REQUEST_SECONDS}s")
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
        try:
            return subprocess.run(argv, timeout=PATIENCE_SECONDS, check=False, **streams)  # noqa: S603 -- the user's own kubectl
        except OSError as error:
            raise missing(argv[0], error) from None
        except subprocess.TimeoutExpired:
            raise CommandError(
                f"kubectl {args[0]} did not end within {PATIENCE_SECONDS:g} s", "", UNAVAILABLE
            ) from None

    def text(self, *args: str, namespace: str | None = None) -> str:
        """Return kubectl's stdout; raise its error."""
        answer = self.run(*args, namespace=namespace)
        if answer.returncode != 0:
            raise refusal(answer.stderr)
        return answer.stdout

    def json(self, *args: str, namespace: str | None = None) -> Object:
        """Return kubectl's JSON output."""
        found: Object = json.loads(self.text(*args, "--output=json", namespace=namespace))
        return found

    def items(self, *args: str, namespace: str | None = None) -> list[Object]:
        """Return the objects of a list."""
        return list(self.json(*args, namespace=namespace).get("items") or ())

    def start(self, argv: Sequence[str], **streams: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401 -- Popen's own
        """Start kubectl and return at once: for streams."""
        try:
            return subprocess.Popen(argv, **streams)  # noqa: S603 -- the user's own kubectl
        except OSError as error:
            raise missing(argv[0], error) from None


def missing(program: str, error: OSError) -> CommandError:
    """Return the error for a kubectl that cannot be run."""
    hint = f"install it, or name it in ${VARIABLE}"
    return CommandError(f"cannot run {program}: {error.strerror or type(error).__name__}", hint, FAILED)
