"""A cluster as its user sees it: kubectl, helm, requests by path, and kubeconfigs for service accounts.

Not here: starting one (control_plane.py), or what only our own lets tests do.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from tests.cluster.harness import kubeconfig
from tests.cluster.harness.binaries import binary
from tests.cluster.harness.rest import Rest

if TYPE_CHECKING:
    from pathlib import Path

COMMAND_SECONDS: Final = 120.0
LIFETIME_SECONDS: Final = 8 * 3600


class CommandFailed(Exception):
    """kubectl or helm exited with an error; its words are the message."""


@dataclass(eq=False)
class Cluster:
    """One Kubernetes, with a directory for what its clients keep."""

    dir: Path
    kubeconfig: Path
    """The administrator's."""

    @cached_property
    def url(self) -> str:
        return str(kubeconfig.cluster_of(self.kubeconfig)["server"])

    def kubectl(
        self,
        *args: str,
        input: str | None = None,  # noqa: A002  subprocess' own word for it
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as administrator."""
        return self._run("kubectl", *args, text=input, check=check)

    def helm(self, *args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run helm as administrator."""
        return self._run("helm", *args, text=None, check=check)

    def _run(
        self, program: str, *args: str, text: str | None, check: bool
    ) -> subprocess.CompletedProcess[str]:
        # HOME is ours: caches of an earlier cluster on the same port would mislead kubectl and helm.
        environment = os.environ | {"KUBECONFIG": str(self.kubeconfig), "HOME": str(self.dir)}
        done = subprocess.run(
            [binary(program), *args],
            input=text,
            capture_output=True,
            text=True,
            env=environment,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        if check and done.returncode != 0:
            raise CommandFailed(
                f"{program} {' '.join(args)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done

    def token(self, namespace: str, service_account: str) -> str:
        """A bound token of a service account that exists."""
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        request = {"spec": {"expirationSeconds": LIFETIME_SECONDS}}
        return str(self.rest.create(f"{accounts}/{service_account}/token", request)["status"]["token"])

    def kubeconfig_for(self, namespace: str, service_account: str) -> Path:
        """A kubeconfig with a bound token of a service account that exists; the namespace is its default one."""
        token = self.token(namespace, service_account)
        path = self.dir / f"{namespace}.{service_account}.kubeconfig"
        return kubeconfig.write(
            path, cluster=kubeconfig.cluster_of(self.kubeconfig), token=token, namespace=namespace
        )

    @cached_property
    def rest(self) -> Rest:
        """The administrator's requests by path."""
        return Rest(self.kubeconfig)

    def close(self) -> None:
        self.rest.close()
