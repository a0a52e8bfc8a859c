"""A port of this machine that leads to Redis for as long as one command runs, and the command itself, in this process.

The password is read from its Secret and handed over in memory: it is on no command line, in no file and in no log.
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

from delayq.cli.exits import INVALID, UNAVAILABLE, Wrong
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
    """Run the errand here, at the other end of a forwarded port."""
    assert found.service is not None  # noqa: S101 -- way() says so
    document = _document(found)
    userinfo = _userinfo(kubectl, document.spec.redis, found.namespace)
    with (
        tempfile.TemporaryDirectory(prefix="kubectl-dq-") as directory,
        port(kubectl, found.service) as local,
    ):
        path = Path(directory, "queue.yaml")
        path.write_text(text(document))
        url = f"redis://{userinfo}{LOOPBACK}:{local}/{document.spec.redis.database}"
        words = remote_command.argv(str(path), here=True)
        words.insert(len(remote_command.path), f"--redis={url}")  # never leaves this process
        return in_this_process(words)


def in_this_process(words: list[str]) -> int:
    """Run a command of the CLI; its exit code."""
    from delayq.cli.root import delayq  # noqa: PLC0415 -- and not its name for the package

    try:
        delayq.main(args=words, prog_name="kubectl dq")
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
        raise Wrong(
            "spec.redis.tls: the server's certificate is not for a forwarded port",
            "without --port-forward, once a scanner pod runs",
            INVALID,
        )
    return document


def _userinfo(kubectl: Kubectl, redis: Redis, namespace: str) -> str:
    """Return user and password as a URL has them; nothing when Redis wants none."""
    if redis.auth is None:
        return ""

    def value(ref: SecretRef | None) -> str:
        if ref is None:
            return ""
        data = kubectl.json("get", "secret", ref.name, namespace=namespace).get("data") or {}
        if ref.key not in data:
            raise Wrong(f"Secret {ref.name}: expected a key {ref.key}, found none", "", INVALID)
        return quote(base64.b64decode(data[ref.key]).decode().strip(), safe="")

    return f"{value(redis.auth.username_secret_ref)}:{value(redis.auth.password_secret_ref)}@"


@contextmanager
def port(kubectl: Kubectl, service: Service) -> Iterator[int]:
    """A free port of the loopback that leads to a Service, until the block ends."""
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
    said = ""
    for raw in child.stdout:
        said += raw.decode(errors="replace")
        if found := _FORWARDING.search(said):
            late.cancel()
            # It writes a line for each connection, and waits when nothing reads them.
            threading.Thread(target=deque, args=(child.stdout, 0), daemon=True).start()
            return int(found[1])
    if child.wait() == -signal.SIGKILL:
        raise Wrong(f"kubectl port-forward did not begin within {START_SECONDS:g} s", "", UNAVAILABLE)
    raise refusal(said)
