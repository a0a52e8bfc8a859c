"""One pod on a ProcessNode: its containers as processes of this host, its status as the kubelet would write it."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import urllib3

from tests.cluster.harness import mounts
from tests.cluster.harness.container import Container, stamp
from tests.cluster.harness.rest import Refused
from tests.cluster.harness.server import LoggedProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.cluster.harness.cluster import Cluster
    from tests.cluster.harness.rest import Object

STEP_SECONDS: Final = 0.1
RETRY_SECONDS: Final = 0.5
LAST_WORDS: Final = 2048
DELAYQ: Final = "delayq"
"""The command that is forked from a process that has imported it, where the image is no other build."""


class Pod(threading.Thread):
    """Runs from its binding until it has ended and is no longer visible.

    The processes are started by this thread, so the kernel kills them should it die.
    """

    def __init__(
        self, cluster: Cluster, seen: Object, directory: Path, address: str, *, images: Mapping[str, Path]
    ) -> None:
        super().__init__(name=f"pod {seen['metadata']['name']}", daemon=True)
        self.seen = seen
        """As the API server last had it."""
        self.gone = False
        """Whether its object is, and with it the right to run."""
        self.address = address
        self.dir = directory
        self.containers: list[Container] = []
        self._cluster, self._images = cluster, images
        self._mounts = mounts.Mounts(cluster, seen, directory, images)
        self._path = f"/api/v1/namespaces/{seen['metadata']['namespace']}/pods/{seen['metadata']['name']}"
        self._started_at = stamp()
        self._waiting = ""
        self._reported: Object = {}
        self._transitions: dict[str, tuple[str, str]] = {}
        self._kill_at = self._remount_at = 0.0

    def run(self) -> None:
        try:
            while not (self.gone or self._over()):
                self._step(time.monotonic())
                time.sleep(STEP_SECONDS)
        finally:
            for container in self.containers:
                container.kill()

    def _over(self) -> bool:
        """Whether everything ended, the status says so, and a deleted pod was released."""
        started = bool(self.containers)
        ended = all(each.finished for each in self.containers) if started else bool(self._deleted)
        if not ended or not self._report():
            return False
        return not self._deleted or self._ask(self._let_go)

    @property
    def _deleted(self) -> Object | None:
        metadata: Object = self.seen["metadata"]
        return metadata if "deletionTimestamp" in metadata else None

    def _step(self, now: float) -> None:
        if self._deleted:
            self._close(now)
        elif not self.containers and not self._create():
            time.sleep(RETRY_SECONDS)
        if self.containers and self._mounts.has_optional_sources and now >= self._remount_at:
            self._remount_at = now + RETRY_SECONDS
            with suppress(mounts.NotYetError, urllib3.exceptions.HTTPError):
                self._mounts.write()
        for container in self.containers:
            container.step(now)
        self._report()

    def _create(self) -> bool:
        spec = self.seen["spec"]
        try:
            self._mounts.write()
            self.containers = [self._container(each, spec["restartPolicy"]) for each in spec["containers"]]
        except (mounts.NotYetError, urllib3.exceptions.HTTPError) as error:
            self._waiting = str(error)
            return False
        return True

    def _container(self, spec: Object, policy: str) -> Container:
        env = self._mounts.environment(spec, self.address)
        argv = mounts.command(spec, self.address, self._mounts.paths(spec), env)

        def launch() -> LoggedProcess:
            with (self.dir / f"{spec['name']}.log").open("ab") as log:
                if argv[0] == DELAYQ and spec["image"] not in self._images:
                    return LoggedProcess.forked(log, *argv, cwd=self.dir, env=env)
                return LoggedProcess.into(log, *argv, cwd=self.dir, env=env)

        def restarted(code: int) -> bool:
            return policy == "Always" or (policy == "OnFailure" and code != 0)

        def last_words() -> str:
            return (self.dir / f"{spec['name']}.log").read_text(errors="replace")[-LAST_WORDS:]

        return Container(spec, self.address, launch, restarted, last_words)

    def _close(self, now: float) -> None:
        """SIGTERM once, SIGKILL when the grace period is over."""
        if not self._kill_at:
            self._kill_at = now + self.seen["metadata"].get("deletionGracePeriodSeconds", 30)
            for container in self.containers:
                container.send(signal.SIGTERM)
        elif now >= self._kill_at:
            for container in self.containers:
                container.send(signal.SIGKILL)

    def _report(self) -> bool:
        """Write the status when it has changed; return whether the API server accepted it."""
        status = self._status()
        if status == self._reported:
            return True
        return self._ask(lambda: self._write(status))

    def _write(self, status: Object) -> None:
        body = {"metadata": {"uid": self.seen["metadata"]["uid"]}, "status": status}
        self._cluster.rest.patch(f"{self._path}/status", body)
        self._reported = status

    def _let_go(self) -> None:
        precondition = {"uid": self.seen["metadata"]["uid"]}
        self._cluster.rest.delete(self._path, {"gracePeriodSeconds": 0, "preconditions": precondition})

    def _ask(self, act: Callable[[], None]) -> bool:
        """Whether it was done; not when the API server is away, and for ever when the pod is."""
        with suppress(urllib3.exceptions.HTTPError):
            try:
                act()
            except Refused as error:
                if error.code not in {404, 409}:
                    raise
                self.gone = True
            return True
        return False

    def _status(self) -> Object:
        ready = bool(self.containers) and all(each.ready for each in self.containers)
        facts = {"PodScheduled": True, "Initialized": True, "ContainersReady": ready, "Ready": ready}
        return {
            "phase": self._phase(),
            "message": self._waiting if not self.containers else None,
            "hostIP": "127.0.0.1",
            "podIP": self.address,
            "podIPs": [{"ip": self.address}],
            "startTime": self._started_at,
            "conditions": [self._condition(kind, holds=holds) for kind, holds in facts.items()],
            "containerStatuses": [each.status() for each in self.containers],
        }

    def _phase(self) -> str:
        if self.containers and all(each.finished for each in self.containers):
            return "Succeeded" if all(each.exit_code == 0 for each in self.containers) else "Failed"
        started = any(each.process or each.restarts for each in self.containers)
        return "Running" if started else "Pending"

    def _condition(self, kind: str, *, holds: bool) -> Object:
        status = str(holds)
        if self._transitions.get(kind, ("", ""))[0] != status:
            self._transitions[kind] = (status, stamp())
        return {"type": kind, "status": status, "lastTransitionTime": self._transitions[kind][1]}
