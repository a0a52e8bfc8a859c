"""kubectl as a child process, with the user's kubeconfig and login. Its refusals are in refusals.py."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from delayq.cli.exits import FAILED, UNAVAILABLE, Wrong
from delayq.cli.kubectl.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

VARIABLE: Final = "KUBECTL"
REQUEST_SECONDS: Final = 30
STREAMS: Final = ("exec", "logs")
"""What may go on for longer than a request."""

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
    """Calls kubectl, each time with the user's own options."""

    where: Where

    def argv(self, *args: str, namespace: str | None = None) -> list[str]:
        """Return a whole command line; no secret is ever part of it."""
        told = {
            "--namespace": namespace or self.where.namespace,
            "--context": self.where.context,
            "--kubeconfig": self.where.kubeconfig,
        }
        # Right behind the verb: after `exec … --` everything is the command's own.
        verb, *rest = args
        options = [f"{name}={value}" for name, value in told.items() if value is not None]
        return [os.environ.get(VARIABLE) or "kubectl", verb, *options, *rest]

    def ask(self, *args: str, text: str | None = None, namespace: str | None = None) -> Answer:
        """Run it to its end, whatever that is."""
        argv = self.argv(*args, namespace=namespace)
        if args[0] not in STREAMS:
            argv.insert(2, f"--request-timeout={REQUEST_SECONDS}s")
        given: dict[str, Any] = {"stdin": subprocess.DEVNULL} if text is None else {"input": text}
        try:
            return subprocess.run(  # noqa: S603 -- the user's own kubectl
                argv, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False, **given
            )
        except OSError as error:
            raise missing(argv[0], error) from None
        except subprocess.TimeoutExpired:
            raise Wrong(
                f"kubectl {args[0]} did not end within {PATIENCE_SECONDS:g} s", "", UNAVAILABLE
            ) from None

    def text(self, *args: str, text: str | None = None, namespace: str | None = None) -> str:
        """Return what it wrote, or raise what it complained of."""
        answer = self.ask(*args, text=text, namespace=namespace)
        if answer.returncode != 0:
            raise refusal(answer.stderr)
        return answer.stdout

    def json(self, *args: str, text: str | None = None, namespace: str | None = None) -> Object:
        """Return what it wrote, as JSON."""
        found: Object = json.loads(self.text(*args, "--output=json", text=text, namespace=namespace))
        return found

    def items(self, *args: str, namespace: str | None = None) -> list[Object]:
        """Return the objects of a list."""
        return list(self.json(*args, namespace=namespace).get("items") or ())

    def start(self, argv: Sequence[str], **streams: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401 -- Popen's own
        """Start it and return at once: for streams."""
        try:
            return subprocess.Popen(argv, **streams)  # noqa: S603 -- the user's own kubectl
        except OSError as error:
            raise missing(argv[0], error) from None


def missing(program: str, error: OSError) -> Wrong:
    """Say that kubectl cannot be run."""
    hint = f"install it, or name it in ${VARIABLE}"
    return Wrong(f"cannot run {program}: {error.strerror or type(error).__name__}", hint, FAILED)
