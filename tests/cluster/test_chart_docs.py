"""docs/how-to/install.md, run as it stands: every `sh` block, in order, as a user would type it.

Without nodes: what waits for pods is in `console` blocks, and has its test elsewhere.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cluster.harness.binaries import KUBERNETES, ROOT
from tests.cluster.harness.resources import delayqueues, found, install_crd
from tests.cluster.harness.waiting import eventually
from tests.cluster.operator import queue

if TYPE_CHECKING:
    from tests.cluster.harness.control_plane import ControlPlane

PAGE = (ROOT / "docs" / "how-to" / "install.md").read_text()
STUCK = "## When a deleted DelayQueue stays"


def blocks(text: str) -> list[str]:
    """The sh blocks, also those inside a list."""
    found = re.findall(r"^( *)```sh\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for _, block in found]


HELM = """#!/bin/sh
case $1 in install | upgrade) set -- "$@" --disable-openapi-validation ;; esac
exec {helm} "$@"
"""
"""Leaves validation to the API server, which would have to describe all its kinds anew each time."""


def run(plane: ControlPlane, block: str) -> str:
    helm = plane.dir / "helm"
    helm.write_text(HELM.format(helm=KUBERNETES / "helm"))
    helm.chmod(0o755)
    path = f"{helm.parent}:{KUBERNETES}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block],
        cwd=ROOT,
        env=os.environ | {"PATH": path, "KUBECONFIG": str(plane.kubeconfig), "HOME": str(plane.dir)},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.full
@pytest.mark.xdist_group("bare")
def test_every_command_of_the_page_works_in_its_order(plane: ControlPlane) -> None:
    page, _, stuck = PAGE.partition(STUCK)
    said = {block: run(plane, block) for block in blocks(page)}
    assert len(said) > 10

    def answer(command: str) -> str:
        return next(said[block] for block in said if command in block)

    assert "orders" in answer("kind: DelayQueue")
    assert re.search(r"^no$", answer("auth can-i"), re.MULTILINE)  # nor may it read other Secrets, namespaced
    assert "delayq-0.6.0" in answer("kubectl get crd")
    assert "RETAIN" in answer("deletionPolicy'").upper()
    assert not found(plane, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/delayqueues.delayq.dev")
    with_operator, by_hand = blocks(stuck)
    delete_in_vain(plane)
    run(plane, with_operator)
    assert found(plane, f"{delayqueues('shop')}/stuck")  # there is no operator to let it go
    run(plane, by_hand)
    eventually(lambda: not found(plane, f"{delayqueues('shop')}/stuck"))


def delete_in_vain(plane: ControlPlane) -> None:
    """A DelayQueue as it is when its operator was uninstalled too early."""
    # A quota refuses what it counts until its controller has found the CRD again, which takes half a minute.
    plane.kubectl("delete", "quota", "delayq", "--namespace", "shop")
    install_crd(plane)
    body = queue("stuck", deletionPolicy="Delete")
    body["metadata"]["finalizers"] = ["delayq.dev/erase"]
    plane.rest.create(delayqueues("shop"), body)
    plane.rest.delete(f"{delayqueues('shop')}/stuck")
