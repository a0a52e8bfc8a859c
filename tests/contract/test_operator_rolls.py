"""What rolls pods is what their processes read: a part that is read and not counted would never arrive."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from delayq.contract.processes import Worker
from delayq.contract.queue import Spec
from delayq.contract.record import camel, declared
from delayq_operator.desired.checksum import PACE, SCANNER_READS, SIZE, WORKER_FIELDS, WORKER_READS

WORKER = Path(__file__).parents[2] / "worker" / "delayq"
COMMON = (
    "processes/runtime.py",
    "connection/address.py",
    "worker/claim_loop.py",
    "worker/wake_listener.py",
    "worker/lease_renewal.py",
    "protocol/commands.py",
)
MODULES = {
    "scanner": (
        *(
            *COMMON,
            "processes/scanner.py",
            "processes/recovery.py",
            "scanner/scanner.py",
            "recovery/reclaim.py",
            "recovery/recovery.py",
            "scanner/exporter.py",
        ),
        *(str(path.relative_to(WORKER)) for path in sorted((WORKER / "recovery" / "checks").glob("*.py"))),
    ),
    "worker": (
        *COMMON,
        "processes/worker.py",
        "worker/worker.py",
        "worker/task_starter.py",
        "worker/slots.py",
        "client/encoding.py",
        "worker/executor.py",
        *(str(path.relative_to(WORKER)) for path in sorted((WORKER / "handlers").glob("*.py"))),
    ),
}
SECTIONS = {field.attribute: field.name for field in declared(Spec)}
FIELDS = {field.attribute: field.name for field in declared(Worker)}


def code(role: str) -> str:
    found = (WORKER / module for module in MODULES[role])
    text = "\n".join(path.read_text() for path in found)
    return re.sub(r'""".*?"""|#[^\n]*', "", text, flags=re.DOTALL)


def read(role: str) -> set[str]:
    """Sections of the spec that the role's modules name."""
    return {SECTIONS[name] for name in re.findall(r"\bspec\.([a-z_]+)", code(role)) if name in SECTIONS}


def test_a_scanner_reads_only_what_rolls_it() -> None:
    # recovery.check rolls it, and so do the guard that a check asks, shards, and a part of limits: checksum.of_scanner.
    # Of retention it has only what acks write, and a scanner sends none.
    assert read("scanner") - {"guard", "recovery", "shards", "limits", "retention"} <= set(SCANNER_READS)


def test_a_worker_reads_only_what_rolls_it() -> None:
    # The number of shards is a guess until Redis was read. Parts of limits and retention roll it: of_worker().
    assert set(re.findall(r"spec\.retention\.([a-z_]+)", code("worker"))) == {"finished"}
    assert read("worker") - {"shards", "limits", "retention"} <= {*WORKER_READS, "worker", "suspend"}


def test_of_limits_processes_read_only_what_rolls_them() -> None:
    """Those that schedule read the rest. Here most are given to the broker, which takes its shares of some."""
    named = re.findall(r"\blimits\.([a-z_]+)", (WORKER / "protocol" / "quota.py").read_text())
    assert {camel(name) for name in named} == {*PACE, *SIZE}
    for role in MODULES:
        read_by = {camel(name) for name in re.findall(r"\blimits\.([a-z_]+)\b", code(role))}
        assert read_by <= {*PACE, *(SIZE if role == "scanner" else ())}


def test_of_its_own_section_a_worker_reads_only_what_rolls_it() -> None:
    named = re.findall(r"\bspec\.worker\.([a-z_]+)", code("worker"))
    assert {camel(name) for name in named} == set(WORKER_FIELDS)
    assert set(WORKER_FIELDS) <= set(FIELDS.values())


@pytest.mark.parametrize("names", [SCANNER_READS, WORKER_READS])
def test_what_rolls_pods_is_part_of_the_document(names: tuple[str, ...]) -> None:
    assert set(names) <= set(SECTIONS.values())
