"""The contract between people, the operator and the processes: the document, metric names, file names.

Standard library only, no I/O: the one part of delayq that the operator imports.
"""

from __future__ import annotations

from delayq.contract.api import Api
from delayq.contract.autoscaling import Autoscaling
from delayq.contract.check import Check
from delayq.contract.delivery import Backoff, Delivery, Exponential
from delayq.contract.document import parse, to_document
from delayq.contract.guard import Guard
from delayq.contract.handler import ExecHandler, Handler, HttpHandler, KindHandler, PythonHandler
from delayq.contract.limits import Finished, Limits, Objective, Retention
from delayq.contract.problems import Problem, SpecError
from delayq.contract.processes import Reaper, Scanner, Worker
from delayq.contract.queue import DelayQueue, Metadata, Spec
from delayq.contract.references import SecretRef
from delayq.contract.store import Cluster, Redis, Sentinel, Standalone, Tls
from delayq.contract.surroundings import (
    Monitoring,
    NetworkPolicy,
    PodDisruptionBudget,
    PodMonitor,
    PrometheusRule,
)

__all__ = [
    "Api",
    "Autoscaling",
    "Backoff",
    "Check",
    "Cluster",
    "DelayQueue",
    "Delivery",
    "ExecHandler",
    "Exponential",
    "Finished",
    "Guard",
    "Handler",
    "HttpHandler",
    "KindHandler",
    "Limits",
    "Metadata",
    "Monitoring",
    "NetworkPolicy",
    "Objective",
    "PodDisruptionBudget",
    "PodMonitor",
    "Problem",
    "PrometheusRule",
    "PythonHandler",
    "Reaper",
    "Redis",
    "Retention",
    "Scanner",
    "SecretRef",
    "Sentinel",
    "Spec",
    "SpecError",
    "Standalone",
    "Tls",
    "Worker",
    "parse",
    "to_document",
]
