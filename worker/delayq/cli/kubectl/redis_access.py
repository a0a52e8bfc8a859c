"""Find access to a queue's Redis: by exec into a scanner pod, or by port-forward to Redis' Service.

A scanner pod has the document, the secrets and the network access.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from codecs import getincrementaldecoder
from collections import deque
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING, Any, Final

from delayq_operator.base import names
from delayq_operator.cache.pod import read

from delayq.cli.exits import NOT_FOUND, REFUSED, UNAVAILABLE, CommandError
from delayq.cli.kubectl import queues
from delayq.cli.kubectl.refusals import refusal
from delayq.contract.files import CONFIG_FILE
from delayq.service.terminal import safe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from delayq.cli.kubectl.kubectl import Kubectl, Object
    from delayq.cli.kubectl.remote_command import RemoteCommand

SCANNER: Final = "scanner"
WATCHDOG: Final = ("python3", "-m", "delayq.cli.kubectl.stdin_watchdog")
ENDED: Final = "command terminated with exit code "
"""The line that kubectl adds to the output of a failed command."""
LINE_BYTES: Final = 65_536
LAST_LINES: Final = 100
"""Of stderr that are kept for the error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Redis' Service in the cluster."""

    namespace: str
    name: str
    port: int
    selector: str = ""
    """Label selector of its pods; empty for a Service without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisAccess:
    """How to reach the Redis of a queue."""

    queue: Object
    pod: str | None = None
    """Scanner pod for exec; without one, `service` is for port-forward."""
    service: Service | None = None

    @property
    def namespace(self) -> str:
        """Namespace of the queue and of the pod."""
        return queues.place(self.queue)[0]


def find_access(
    kubectl: Kubectl, name: str, *, forward: bool, namespace: str | None = None, any_pod: bool = False
) -> RedisAccess:
    """Find access to Redis. `any_pod`: accept a pod that is not ready, to diagnose it.

    An author of a DelayQueue chooses the host, but port-forward uses the rights of the user of this command. Therefore
    the Service must be in the queue's namespace, or in `namespace`.
    """
    queue = queues.one(kubectl, name)
    scanners = queues.pods(kubectl, queue, SCANNER)
    if not forward and (pod := _first(scanners, ready=True) or (_first(scanners) if any_pod else None)):
        return RedisAccess(queue=queue, pod=pod)
    service = _service(kubectl, queue)
    if service is not None and service.namespace in (queues.place(queue)[0], namespace):
        if _has_pod(kubectl, service):
            return RedisAccess(queue=queue, service=service)
        if forward or not _first(scanners):
            raise _down(name, service)
    elif service is not None and (forward or not _first(scanners)):
        raise CommandError(
            f"spec.redis of {name} names a Service of another namespace, {service.namespace}/{service.name}",
            f"--redis-namespace={service.namespace} lets kubectl port-forward connect to it",
            REFUSED,
        )
    if forward:
        raise CommandError(
            "--port-forward: expected spec.redis.standalone.host to name a Service of the cluster, got another address",
            "leave it out: the scanner pods reach it",
        )
    if pod := _first(scanners):
        return RedisAccess(queue=queue, pod=pod)  # the command itself reports why it cannot reach Redis
    raise _no_way(name, scanners)


def _first(pods: Sequence[Object], *, ready: bool = False) -> str | None:
    for body in pods:
        pod = read(body)
        if not pod.leaving and (pod.ready or (not ready and _runs(body))):
            return pod.name
    return None


def _runs(body: Object) -> bool:
    ours = (
        each for each in body.get("status", {}).get("containerStatuses") or () if each.get("name") == SCANNER
    )
    return any("running" in each.get("state", {}) for each in ours)


def _no_way(name: str, scanners: Sequence[Object]) -> CommandError:
    trouble = next((pod.trouble for pod in map(read, scanners) if pod.trouble), "")
    why = trouble or ("none is running" if scanners else "there is none")
    return CommandError(
        f"no scanner pod of {name} is available: {why}", f"kubectl dq status {name}", UNAVAILABLE
    )


def _service(kubectl: Kubectl, queue: Object) -> Service | None:
    """Return Redis' Service, if spec.redis.standalone.host is the name of an existing one."""
    redis = queue["spec"].get("redis", {}).get("standalone") or {}
    found = service_of(str(redis.get("host", "")), queues.place(queue)[0], int(redis.get("port", 6379)))
    if found is None:
        return None
    try:
        body = kubectl.json("get", names.SERVICE.plural, found.name, namespace=found.namespace)
    except CommandError as error:
        if error.code in (NOT_FOUND, REFUSED):
            return None
        raise
    selector = body.get("spec", {}).get("selector") or {}
    return replace(found, selector=",".join(f"{label}={value}" for label, value in selector.items()))


def _has_pod(kubectl: Kubectl, service: Service) -> bool:
    """Whether a pod of the Service runs. Without one, kubectl port-forward waits for a minute."""
    if not service.selector:
        return False
    pods = kubectl.items("get", "pods", f"--selector={service.selector}", namespace=service.namespace)
    return any(pod.get("status", {}).get("phase") == "Running" for pod in pods)


def _down(name: str, service: Service) -> CommandError:
    where = f"{service.namespace}/{service.name}"
    hint = f"kubectl describe service {service.name} -n {service.namespace}"
    return CommandError(
        f"Redis of {name} cannot be reached: no pod runs behind Service {where}", hint, UNAVAILABLE
    )


def service_of(host: str, namespace: str, port: int) -> Service | None:
    """Parse a cluster DNS name: redis, redis.shop, redis.shop.svc, redis.shop.svc.cluster.local."""
    name, *rest = host.rstrip(".").split(".")
    if not name or (len(rest) > 1 and rest[1] != "svc") or name.isdigit():
        return None
    return Service(namespace=rest[0] if rest else namespace, name=name, port=port)


def by_exec(kubectl: Kubectl, found: RedisAccess, remote_command: RemoteCommand) -> int:
    """Run the command in the pod; return its exit code."""
    terminal = remote_command.terminal and sys.stdin.isatty() and sys.stdout.isatty()
    watched = remote_command.long and not terminal
    how = ["-it"] if terminal else ["-i"] if remote_command.reads_stdin or watched else []
    words = [*(WATCHDOG if watched else ["delayq"]), *remote_command.argv(CONFIG_FILE)]
    argv = kubectl.argv(
        *("exec", str(found.pod), f"--container={SCANNER}", *how, "--", *words), namespace=found.namespace
    )
    streams: dict[str, Any] = {"stderr": subprocess.PIPE}
    if remote_command.source is not None:
        streams["stdin"] = remote_command.source
    elif not terminal and not remote_command.reads_stdin:
        # Do not read the caller's stdin, for `while read … do kubectl dq …`. The watchdog detects that the pipe closes.
        streams["stdin"] = subprocess.PIPE if watched else subprocess.DEVNULL
    # The author of the queue chooses the image of the pod: nothing of its output controls this terminal.
    filtered = remote_command.target is None and not terminal and sys.stdout.isatty()
    if remote_command.target is not None or filtered:
        streams["stdout"] = subprocess.PIPE
    child = kubectl.start(argv, **streams)
    write = _write_safe if filtered else remote_command.target and remote_command.target.write
    with child:
        return _ended(child, queues.place(found.queue)[1], write)


def _write_safe(line: str) -> None:
    sys.stdout.write(safe(line))
    sys.stdout.flush()


def _ended(child: subprocess.Popen[bytes], name: str, write: Callable[[str], object] | None) -> int:
    lines: deque[str] = deque(maxlen=LAST_LINES)  # kubectl's own error comes last
    assert child.stderr is not None  # noqa: S101 -- for the type checker
    reader = threading.Thread(target=_copy_stderr, args=(child.stderr, name, lines), daemon=True)
    reader.start()
    try:
        if child.stdout is not None and write is not None:
            for line in _lines(child.stdout):
                write(line)
        code = child.wait()
        reader.join()
    finally:
        if child.poll() is None:
            child.terminate()
    if code != 0 and not any(line.startswith(ENDED) for line in lines):
        raise refusal("".join(lines))
    return code


def _lines(stream: IO[bytes]) -> Iterator[str]:
    """Yield lines; longer ones, which a pod may print without end, in parts."""
    decode = getincrementaldecoder("utf-8")("replace").decode  # a part may end within a character
    yield from map(decode, iter(lambda: stream.readline(LINE_BYTES), b""))
    yield decode(b"", final=True)


def _copy_stderr(stderr: IO[bytes], name: str, lines: deque[str]) -> None:
    """Collect stderr in `lines`, and print all but kubectl's own errors, which _ended reports."""
    for line in _lines(stderr):
        lines.append(line)
        if not line.startswith((ENDED, "Error from server", "error: unable to upgrade connection")):
            sys.stderr.write(safe(line).replace(f"delayq doctor {CONFIG_FILE}", f"kubectl dq doctor {name}"))
            sys.stderr.flush()
