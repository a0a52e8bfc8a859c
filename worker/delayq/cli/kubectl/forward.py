"""Run a command in this process against a forwarded port of Redis.

The password stays in memory: it appears on no command line, in no file and in no log.
"""

from __future__ import annotations

import base64
import re
import signal
import subprocess
import tempfile
import threading
from collections import deque
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from delayq_operator.desired.config import text

from delayq.cli.exits import INVALID, UNAVAILABLE, CommandError
from delayq.cli.kubectl import queues
from delayq.cli.kubectl.refusals import refusal
from delayq.contract import parse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq.cli.kubectl.kubectl import Kubectl
    from delayq.cli.kubectl.redis_access import RedisAccess, Service
    from delayq.cli.kubectl.remote_command import RemoteCommand
    from delayq.contract import DelayQueue, Redis
    from delayq.contract.references import SecretRef

LOOPBACK: Final = "127.0.0.1"
START_SECONDS: Final = 30.0
_FORWARDING: Final = re.compile(rf"Forwarding from {LOOPBACK}:(\d+) ")


def run(kubectl: Kubectl, found: RedisAccess, remote_command: RemoteCommand) -> int:
    """Run the command in this process, through a forwarded port; return its exit code."""
    assert found.service is not None  # noqa: S101 -- find_access() sets it where there is no pod
    document = _document(found)
    userinfo = _userinfo(kubectl, document.spec.redis, found.namespace)
    with (
        tempfile.TemporaryDirectory(prefix="kubectl-dq-") as directory,
        port(kubectl, found.service) as local,
    ):
        path = Path(directory, "queue.yaml")
        path.write_text(text(document), encoding="utf-8")
        url = f"redis://{userinfo}{LOOPBACK}:{local}/{document.spec.redis.database}"
        args = remote_command.argv(str(path), here=True)
        args.insert(len(remote_command.path), f"--redis={url}")  # never leaves this process
        return in_this_process(args)


def in_this_process(args: list[str]) -> int:
    """Run a command of the CLI; return its exit code."""
    from delayq.cli.root import delayq  # noqa: PLC0415 -- the name would hide the package

    try:
        delayq.main(args=args, prog_name="kubectl dq")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0


def _document(found: RedisAccess) -> DelayQueue:
    body = found.queue
    namespace, name = queues.place(body)
    document = parse(
        {field: body[field] for field in ("apiVersion", "kind", "spec")}
        | {"metadata": {"name": name, "namespace": namespace}}
    )
    if document.spec.redis.tls is not None:
        raise CommandError(
            "spec.redis.tls: the server's certificate is not valid for a forwarded port",
            "leave out --port-forward, once a scanner pod runs",
            INVALID,
        )
    return document


def _userinfo(kubectl: Kubectl, redis: Redis, namespace: str) -> str:
    """Return user and password in URL form; empty without spec.redis.auth."""
    if redis.auth is None:
        return ""

    def value(ref: SecretRef | None) -> str:
        if ref is None:
            return ""
        data = kubectl.json("get", "secret", ref.name, namespace=namespace).get("data") or {}
        if ref.key not in data:
            raise CommandError(f"Secret {ref.name}: expected a key {ref.key}, found none", "", INVALID)
        return quote(base64.b64decode(data[ref.key]).decode().strip(), safe="")

    return f"{value(redis.auth.username_secret_ref)}:{value(redis.auth.password_secret_ref)}@"


@contextmanager
def port(kubectl: Kubectl, service: Service) -> Iterator[int]:
    """Forward a free loopback port to a Service, until the block ends."""
    what = (f"service/{service.name}", f":{service.port}", f"--address={LOOPBACK}")
    argv = kubectl.argv("port-forward", *what, namespace=service.namespace)
    child = kubectl.start(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    late = threading.Timer(START_SECONDS, child.kill)
    late.start()
    try:
        yield _port(child, late)
    finally:
        late.cancel()
        child.terminate()
        with suppress(subprocess.TimeoutExpired):
            child.wait(5)
        child.kill()


def _port(child: subprocess.Popen[bytes], late: threading.Timer) -> int:
    assert child.stdout is not None  # noqa: S101 -- for the type checker
    text = ""
    for raw in child.stdout:
        text += raw.decode(errors="replace")
        if found := _FORWARDING.search(text):
            late.cancel()
            # kubectl writes a line for each connection, and blocks when the pipe is full.
            threading.Thread(target=deque, args=(child.stdout, 0), daemon=True).start()
            return int(found[1])
    if child.wait() == -signal.SIGKILL:
        raise CommandError(f"kubectl port-forward did not start within {START_SECONDS:g} s", "", UNAVAILABLE)
    raise refusal(text)
