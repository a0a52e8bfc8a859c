#!/usr/bin/env python3
"""Make the chart's Grafana dashboard: `.venv/bin/python tools/chart-dashboard.py`; with --check only compare.

The panels are the three tables below. Not here: what the metrics mean
(delayq.contract.metrics, docs/reference/metrics.md).
"""
# ruff: noqa: T201 -- a script for the shell

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "charts" / "delayq" / "files" / "dashboard.json"
COLUMNS, WIDTH, HEIGHT = 24, 8, 7
SOURCE = {"type": "prometheus", "uid": "${datasource}"}

QUEUE = 'namespace=~"$namespace",queue=~"$queue"'


@dataclass(frozen=True)
class Panel:
    """A graph; `queries` are legend to PromQL."""

    title: str
    about: str
    unit: str
    queries: dict[str, str]


def total(metric: str, by: str = "") -> str:
    """A gauge of the chosen queues, summed over pods and shards."""
    return f"sum{f' by ({by}) ' if by else ''}({metric}{{{QUEUE}}})"


def rate(metric: str, by: str = "", where: str = QUEUE) -> str:
    """A counter's rise a second."""
    selector = f"{{{where}}}" if where else ""
    return f"sum{f' by ({by}) ' if by else ''}(rate({metric}{selector}[$__rate_interval]))"


def quantiles(metric: str, where: str = QUEUE) -> dict[str, str]:
    """A histogram's middle and its slow end."""
    buckets = rate(f"{metric}_bucket", "le", where)
    return {f"p{round(share * 100)}": f"histogram_quantile({share}, {buckets})" for share in (0.5, 0.99)}


QUEUES = (
    Panel("Tasks", "By state.", "short", {"{{state}}": total("delayq_tasks", "state")}),
    Panel(
        "Overdue tasks",
        "Due and not claimed. Should stay near zero.",
        "short",
        {"{{queue}}": "sum by (queue) (delayq_tasks{" + QUEUE + ',state="due"})'},
    ),
    Panel(
        "Most overdue task",
        "How long it has been due.",
        "s",
        {"{{queue}}": f"max by (queue) (delayq_oldest_due_seconds{{{QUEUE}}})"},
    ),
    Panel(
        "Lateness",
        "From due to claimed.",
        "s",
        quantiles("delayq_worker_due_to_claimed_seconds"),
    ),
    Panel("Handlers", "How long they run.", "s", quantiles("delayq_worker_handler_seconds")),
    Panel(
        "What falls due",
        "Within so many seconds from now.",
        "short",
        {"{{horizon_seconds}} s": total("delayq_due_within_tasks", "horizon_seconds")},
    ),
    Panel(
        "Tasks a second",
        "Over all processes.",
        "ops",
        {
            verb: rate(f"delayq_queue_{verb}_total")
            for verb in ("scheduled", "claimed", "acked", "retried", "buried")
        },
    ),
    Panel(
        "Outcomes",
        "Of the tasks that workers claimed.",
        "ops",
        {"{{outcome}}": rate("delayq_worker_settled_total", "outcome")},
    ),
    Panel(
        "Slots",
        "Tasks that workers may run at a time, and those they run.",
        "short",
        {"all": total("delayq_worker_slots"), "busy": total("delayq_worker_busy_slots")},
    ),
    Panel(
        "Trouble",
        "Leases that ran out or were lost, handlers that ran too long, calls to Redis and steps of loops that failed.",
        "ops",
        {
            "reclaimed": rate("delayq_queue_reclaimed_total"),
            "leases lost": rate("delayq_worker_leases_lost_total"),
            "handler timeouts": rate("delayq_worker_handler_timeouts_total"),
            "Redis errors": rate("delayq_redis_errors_total"),
            "loop errors": rate("delayq_loop_errors_total"),
        },
    ),
    Panel(
        "Recovery",
        "What checks said of tasks whose lease ran out, and how often one gave no verdict.",
        "ops",
        {
            "completed": rate("delayq_queue_check_completed_total"),
            "recovery deferred": rate("delayq_queue_recovery_deferred_total"),
            "checks failed": rate("delayq_queue_checks_failed_total"),
        },
    ),
    Panel(
        "Awaiting a verdict",
        "Tasks whose lease ran out and on which no check has decided yet. Should come back to zero.",
        "short",
        {"{{queue}}": total("delayq_expired_leases", "queue")},
    ),
    Panel(
        "Guards",
        "Runs under the guard, by how they ended, and workers that the guard serves.",
        "short",
        {
            "{{outcome}} a second": rate("delayq_worker_guard_runs_total", "outcome"),
            "{{queue}} serves": total("delayq_worker_guard_up", "queue"),
        },
    ),
    Panel(
        "Shards led",
        "Every shard needs a scanner that leads it.",
        "short",
        {"{{queue}}": total("delayq_shard_leader", "queue")},
    ),
    Panel(
        "Shards by shard map",
        "Where tasks are stored, where they may still be, and what was asked for: three numbers while tasks move.",
        "short",
        {"{{queue}} {{version}}": f"max by (queue, version) (delayq_shard_map_shards{{{QUEUE}}})"},
    ),
    Panel(
        "Tasks that change shards",
        "Tasks to check, tasks that were checked, and tasks that migrated; others run where they are.",
        "short",
        {
            "{{queue}} to check": total("delayq_resharding_tasks", "queue"),
            "{{queue}} checked": total("delayq_resharding_checked_tasks", "queue"),
            "{{queue}} migrated": total("delayq_resharding_migrated_tasks", "queue"),
            "{{queue}} wait to run": total("delayq_resharding_waiting_tasks", "queue"),
        },
    ),
    Panel(
        "Shards not served",
        "Of each server of Redis that does not serve some scanner; their tasks wait.",
        "short",
        {
            "{{queue}} {{server}} {{cause}}": "count by (queue, server, cause) "
            f"(max by (queue, shard, server, cause) (delayq_shard_down{{{QUEUE}}}))"
        },
    ),
    Panel(
        "Replicas of Redis",
        "Those that keep up; a fail-over may lose what they have not.",
        "short",
        {"{{queue}}": f"min by (queue) (delayq_redis_replicas{{{QUEUE}}})"},
    ),
    Panel(
        "Redis' clock",
        "How far it is ahead of the scanners' clocks. It alone decides what is due.",
        "s",
        {
            "{{queue}} at most": f"max by (queue) (delayq_redis_clock_offset_seconds{{{QUEUE}}})",
            "{{queue}} at least": f"min by (queue) (delayq_redis_clock_offset_seconds{{{QUEUE}}})",
        },
    ),
    Panel(
        "Workers",
        "Pods there should be, pods there are, and pods that the work asks for, before bounds and behavior.",
        "short",
        {
            "{{name}} {{type}}": 'sum by (name, type) (delayq_operator_worker_replicas{namespace=~"$namespace"})'
        },
    ),
    Panel(
        "What scaling has learnt",
        "From creating a worker to its first claim (p95), and how long a handler takes (mean).",
        "s",
        {
            "{{name}} start-up": 'max by (name) (delayq_operator_worker_lead_seconds{namespace=~"$namespace"})',
            "{{name}} handler": 'max by (name) (delayq_operator_worker_handler_seconds{namespace=~"$namespace"})',
        },
    ),
)

REQUESTS = "delayq_api_requests_total"


def answered(statuses: str, by: str = "") -> str:
    """Requests a second that got one of these statuses, a regular expression."""
    return rate(REQUESTS, by, f'{QUEUE},status=~"{statuses}"')


HTTP_API = (
    Panel(
        "Requests",
        "By class of status. 4xx are mistakes or missing rights of callers, 5xx are Redis or delayq.",
        "reqps",
        {"2xx": answered("2.."), "4xx": answered("4.."), "5xx": answered("5..")},
    ),
    Panel(
        "Requests by operation",
        "The operationId of openapi.json; none is a path that does not exist.",
        "reqps",
        {"{{operation}}": rate(REQUESTS, "operation")},
    ),
    Panel(
        "Errors",
        "By status and operation. 429 is a full queue, 401 and 403 are tokens and rights.",
        "reqps",
        {"{{status}} {{operation}}": answered("[45]..", "status, operation")},
    ),
)

OPERATOR = (
    Panel(
        "DelayQueues",
        "By whether they are Ready.",
        "short",
        {"Ready={{ready}}": "max by (ready) (delayq_operator_queues)"},
    ),
    Panel(
        "Reconciles",
        "By how they ended.",
        "ops",
        {"{{result}}": rate("delayq_operator_reconciles_total", "result", "")},
    ),
    Panel("Time to reconcile", "One queue.", "s", quantiles("delayq_operator_reconcile_seconds", "")),
    Panel(
        "Waiting",
        "DelayQueues that wait to be reconciled.",
        "short",
        {"waiting": "sum(delayq_operator_workqueue_depth)"},
    ),
    Panel(
        "Writes to the API server",
        "None when nothing changes.",
        "ops",
        {"{{verb}} {{resource}}": rate("delayq_operator_api_writes_total", "verb, resource", "")},
    ),
    Panel(
        "Age of lists and watches",
        "Time since all kinds were last listed, which is done each minute, and since the API server last answered a "
        "watch: each begins anew every 300 s.",
        "s",
        {
            "{{namespace}} lists": "max by (namespace) (delayq_operator_list_age_seconds)",
            "{{namespace}} watches": "max by (namespace) (delayq_operator_watch_answer_age_seconds)",
        },
    ),
    Panel("Leader", "Exactly one pod works.", "short", {"{{pod}}": "max by (pod) (delayq_operator_leader)"}),
    Panel(
        "Readings of pods",
        "Of scanners' and workers' metrics, by which it scales. Of a worker that starts, the first ones fail.",
        "ops",
        {
            "{{component}} worked": rate("delayq_operator_scrapes_total", "component", ""),
            "{{component}} failed": rate("delayq_operator_scrape_errors_total", "component", ""),
        },
    ),
    Panel(
        "Time to decide",
        "On the workers of one queue.",
        "s",
        quantiles("delayq_operator_decision_seconds", ""),
    ),
    Panel(
        "Event loop",
        "How late it runs timers.",
        "s",
        {"{{pod}}": "max by (pod) (delayq_operator_loop_lag_seconds)"},
    ),
)


def graph(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    """A panel as Grafana has it."""
    targets = [
        {"refId": chr(ord("A") + at), "datasource": SOURCE, "expr": query, "legendFormat": legend}
        for at, (legend, query) in enumerate(panel.queries.items())
    ]
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": targets,
    }


def rows() -> list[dict[str, Any]]:
    """Every panel in its place, under a heading for each table."""
    made: list[dict[str, Any]] = []
    top = 0
    for title, panels in (("Queues", QUEUES), ("HTTP API", HTTP_API), ("Operator", OPERATOR)):
        heading = {"h": 1, "w": COLUMNS, "x": 0, "y": top}
        made.append({"id": len(made) + 1, "type": "row", "title": title, "gridPos": heading, "panels": []})
        for at, panel in enumerate(panels):
            row, column = divmod(at * WIDTH, COLUMNS)
            place = {"h": HEIGHT, "w": WIDTH, "x": column, "y": top + 1 + row * HEIGHT}
            made.append(graph(panel, len(made) + 1, place))
        top += 1 + -(-len(panels) * WIDTH // COLUMNS) * HEIGHT
    return made


def variable(name: str, label: str, query: str) -> dict[str, Any]:
    """Something to choose at the top of the page; everything is chosen at first."""
    return {
        "type": "query",
        "name": name,
        "label": label,
        "datasource": SOURCE,
        "query": query,
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def dashboard() -> dict[str, Any]:
    """The whole page."""
    return {
        "uid": "delayq",
        "title": "delayq",
        "tags": ["delayq"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"type": "datasource", "name": "datasource", "label": "Prometheus", "query": "prometheus"},
                variable("namespace", "Namespace", "label_values(delayq_tasks, namespace)"),
                variable("queue", "Queue", 'label_values(delayq_tasks{namespace=~"$namespace"}, queue)'),
            ]
        },
        "panels": rows(),
    }


def main() -> int:
    """Write the file, or with --check compare; 1 when it differs."""
    text = json.dumps(dashboard(), indent=1) + "\n"
    if "--check" in sys.argv:
        return int(not FILE.exists() or FILE.read_text() != text)
    FILE.write_text(text)
    print(FILE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
