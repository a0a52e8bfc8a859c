"""The way to a queue's Redis: by exec into a scanner pod, or by a port-forward to Redis' Service.

A scanner pod has the document, the secrets and the network. Not here: what is done there.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING, Any, Final

from delayq_operator.base import names
from delayq_operator.cache.pod import read

from delayq.cli.exits import NOT_FOUND, REFUSED, UNAVAILABLE, Wrong
from delayq.cli.kubectl import queues
from delayq.cli.kubectl.refusals import refusal
from delayq.contract.files import CONFIG_FILE
from delayq.service.terminal import safe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.cli.kubectl.kubectl import Kubectl, Object
    from delayq.cli.kubectl.remote_command import RemoteCommand

SCANNER: Final = "scanner"
LEASH: Final = ("python3", "-m", "delayq.cli.kubectl.stdin_watchdog")
ENDED: Final = "command terminated with exit code "
"""What kubectl adds below the words of a command that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A Service of the cluster that Redis is behind."""

    namespace: str
    name: str
    port: int
    selector: str = ""
    """Of its pods; empty when it selects none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisAccess:
    """How to reach the Redis of a queue."""

    queue: Object
    pod: str | None = None
    """To go by exec; else by a forwarded port."""
    service: Service | None = None

    @property
    def namespace(self) -> str:
        """Of the queue, and of the pod."""
        return queues.place(self.queue)[0]


def way(
    kubectl: Kubectl, name: str, *, forward: bool, namespace: str | None = None, hopeless: bool = False
) -> RedisAccess:
    """Find it. `hopeless` takes a pod that is not ready, too: to look into why.

    Who may edit a DelayQueue chooses the host, and a port is forwarded with the rights of the user who runs this: so
    the Service has to be in the queue's own namespace, or in the one that the user names.
    """
    queue = queues.one(kubectl, name)
    scanners = queues.pods(kubectl, queue, SCANNER)
    if not forward and (pod := _first(scanners, ready=True) or (_first(scanners) if hopeless else None)):
        return RedisAccess(queue=queue, pod=pod)
    service = _service(kubectl, queue)
    if service is not None and service.namespace in (queues.place(queue)[0], namespace):
        if _has_pod(kubectl, service):
            return RedisAccess(queue=queue, service=service)
        if forward or not _first(scanners):
            raise _down(name, service)
    elif service is not None and (forward or not _first(scanners)):
        raise Wrong(
            f"spec.redis of {name} names a Service of another namespace, {service.namespace}/{service.name}",
            f"--redis-namespace={service.namespace} lets kubectl port-forward connect to it",
            REFUSED,
        )
    if forward:
        raise Wrong(
            "--port-forward: expected spec.redis.standalone.host to name a Service of the cluster, got another address",
            "leave it out: the scanner pods reach it",
        )
    if pod := _first(scanners):
        return RedisAccess(queue=queue, pod=pod)  # the command itself says best what keeps it from Redis
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


def _no_way(name: str, scanners: Sequence[Object]) -> Wrong:
    trouble = next((pod.trouble for pod in map(read, scanners) if pod.trouble), "")
    why = trouble or ("none is running" if scanners else "there is none")
    return Wrong(f"no scanner pod of {name} to work from: {why}", f"kubectl dq status {name}", UNAVAILABLE)


def _service(kubectl: Kubectl, queue: Object) -> Service | None:
    """Return Redis' Service, if its host has the name of one that is there."""
    redis = queue["spec"].get("redis", {}).get("standalone") or {}
    found = service_of(str(redis.get("host", "")), queues.place(queue)[0], int(redis.get("port", 6379)))
    if found is None:
        return None
    try:
        body = kubectl.json("get", names.SERVICE.plural, found.name, namespace=found.namespace)
    except Wrong as error:
        if error.code in (NOT_FOUND, REFUSED):
            return None
        raise
    selector = body.get("spec", {}).get("selector") or {}
    return replace(found, selector=",".join(f"{label}={value}" for label, value in selector.items()))


def _has_pod(kubectl: Kubectl, service: Service) -> bool:
    """Whether a pod runs that kubectl could forward a port to. It would wait for one, for a minute."""
    if not service.selector:
        return False
    pods = kubectl.items("get", "pods", f"--selector={service.selector}", namespace=service.namespace)
    return any(pod.get("status", {}).get("phase") == "Running" for pod in pods)


def _down(name: str, service: Service) -> Wrong:
    where = f"{service.namespace}/{service.name}"
    hint = f"kubectl describe service {service.name} -n {service.namespace}"
    return Wrong(f"Redis of {name} cannot be reached: no pod runs behind Service {where}", hint, UNAVAILABLE)


def service_of(host: str, namespace: str, port: int) -> Service | None:
    """Read a host as the cluster's DNS would: redis, redis.shop, redis.shop.svc, redis.shop.svc.cluster.local."""
    name, *rest = host.rstrip(".").split(".")
    if not name or (len(rest) > 1 and rest[1] != "svc") or name.isdigit():
        return None
    return Service(namespace=rest[0] if rest else namespace, name=name, port=port)


def by_exec(kubectl: Kubectl, found: RedisAccess, remote_command: RemoteCommand) -> int:
    """Run the errand in the pod; the exit code is the command's own."""
    terminal = (
        sys.stdin.isatty()
        and sys.stdout.isatty()
        and remote_command.target is None
        and remote_command.source is None
    )
    leashed = remote_command.goes_on and not terminal
    how = ["-it"] if terminal else ["-i"] if remote_command.reads_stdin or leashed else []
    words = [*(LEASH if leashed else ["delayq"]), *remote_command.argv(CONFIG_FILE)]
    argv = kubectl.argv(
        *("exec", str(found.pod), f"--container={SCANNER}", *how, "--", *words), namespace=found.namespace
    )
    streams: dict[str, Any] = {"stderr": subprocess.PIPE}
    if remote_command.source is not None:
        streams["stdin"] = remote_command.source
    elif not terminal and not remote_command.reads_stdin:
        # `while read … do kubectl dq …` keeps its lines. Of a pipe, our end is closed when we end.
        streams["stdin"] = subprocess.PIPE if leashed else subprocess.DEVNULL
    if remote_command.target is not None:
        streams["stdout"] = subprocess.PIPE
    child = kubectl.start(argv, **streams)
    return _ended(child, queues.place(found.queue)[1], remote_command.target)


def _ended(child: subprocess.Popen[bytes], name: str, target: Any) -> int:  # noqa: ANN401 -- a file of click's
    said: list[str] = []
    assert child.stderr is not None  # noqa: S101 -- for the type checker
    hearing = threading.Thread(target=_hear, args=(child.stderr, name, said), daemon=True)
    hearing.start()
    try:
        if child.stdout is not None:
            for line in child.stdout:
                target.write(line.decode(errors="replace"))
        code = child.wait()
        hearing.join()
    finally:
        if child.poll() is None:
            child.terminate()
    if code != 0 and not any(line.startswith(ENDED) for line in said):
        raise refusal("".join(said))
    return code


def _hear(stderr: IO[bytes], name: str, said: list[str]) -> None:
    """Pass on what the command says, as it says it; what kubectl says is said in our own way, at the end."""
    for raw in stderr:
        line = raw.decode(errors="replace")
        said.append(line)
        if not line.startswith((ENDED, "Error from server", "error: unable to upgrade connection")):
            sys.stderr.write(safe(line).replace(f"delayq doctor {CONFIG_FILE}", f"kubectl dq doctor {name}"))
            sys.stderr.flush()
