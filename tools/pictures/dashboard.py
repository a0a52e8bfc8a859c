"""Draw docs/images/dashboard.svg: the first panels of the chart's Grafana dashboard, with data of a real run.

`.venv/bin/python -m tools.pictures.dashboard` runs three queues for five minutes, and a Prometheus beside them
(`apt-get install prometheus`). It sends the queries of the panels to Prometheus, and draws the answers in the layout
of the dashboard.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from html import escape
from pathlib import Path
from typing import Any, Final

from tools.pictures.demo import PORTS, ROOT, queues_at_work

FILE: Final = ROOT / "docs" / "images" / "dashboard.svg"
DASHBOARD: Final = ROOT / "charts" / "delayq" / "files" / "dashboard.json"
ROWS: Final = 3
SECONDS: Final = 300
STEP_SECONDS: Final = 5
PROMETHEUS: Final = "127.0.0.1:19190"
VARIABLES: Final = {"$namespace": "shop", "$queue": ".+", "$__rate_interval": "30s"}
WIDTH, HEIGHT, GAP, PLOT_TOP, PLOT_HEIGHT = 380, 230, 12, 38, 130
KILO: Final = 1000
COLORS: Final = ("#2563eb", "#ea580c", "#16a34a", "#9333ea", "#dc2626", "#0891b2")
HEAD: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, sans-serif"'
    ' font-size="12" fill="#0f172a" role="img" aria-labelledby="title">\n<title id="title">{title}</title>\n'
    '<rect width="{width}" height="{height}" fill="#e2e8f0"/>'
)
Series = tuple[str, list[tuple[float, float]]]


def configuration() -> str:
    """The scrape configuration of Prometheus, as JSON, which is YAML."""
    targets = [
        {
            "targets": [f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"],
            "labels": {"namespace": "shop", "queue": name},
        }
        for name, port in PORTS.items()
    ]
    job = {
        "job_name": "delayq",
        "scrape_interval": f"{STEP_SECONDS}s",
        "honor_labels": True,
        "static_configs": targets,
    }
    return json.dumps({"scrape_configs": [job]})


def ask(expression: str, legend: str, start: float) -> list[Series]:
    """The series of one query, each with its legend and its points."""
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    query = {"query": expression, "start": start, "end": start + SECONDS, "step": STEP_SECONDS}
    with urllib.request.urlopen(
        f"http://{PROMETHEUS}/api/v1/query_range?{urllib.parse.urlencode(query)}"
    ) as answer:  # the server above
        found = json.load(answer)["data"]["result"]
    series = []
    for each in found:
        name = legend
        for label, value in each["metric"].items():
            name = name.replace(f"{{{{{label}}}}}", value)
        points = [(float(at) - start, float(value)) for at, value in each["values"] if value != "NaN"]
        series.append((name, points))
    return series


def label(value: float, unit: str) -> str:
    """A value of the axis with its unit."""
    if unit == "s" and 0 < value < 1:
        return f"{value * KILO:.3g} ms"
    short = f"{value / KILO:.3g} K" if value >= KILO else f"{value:.3g}"
    return f"{short} s" if unit == "s" else short


def drawn(panel: dict[str, Any], series: list[Series], left: float, top: float) -> list[str]:
    """One panel."""
    unit = panel["fieldConfig"]["defaults"].get("unit", "short")
    most = max((value for _, points in series for _, value in points), default=0) or 1
    x0, width, bottom = left + 58, WIDTH - 84, top + PLOT_TOP + PLOT_HEIGHT
    lines = [
        f'<rect x="{left}" y="{top}" width="{WIDTH}" height="{HEIGHT}" rx="4" fill="#fff" stroke="#cbd5e1"/>',
        f'<text x="{left + 12}" y="{top + 22}" font-weight="bold">{escape(panel["title"])}</text>',
    ]
    for part in range(3):
        y = bottom - PLOT_HEIGHT * part / 2
        lines.append(f'<path d="M{x0} {y:.0f}h{width}" stroke="#e2e8f0"/>')
        lines.append(
            f'<text x="{x0 - 6}" y="{y + 4:.0f}" text-anchor="end">{label(most * part / 2, unit)}</text>'
        )
    for minute in range(SECONDS // 60 + 1):
        x = x0 + width * minute * 60 / SECONDS
        lines.append(
            f'<text x="{x:.0f}" y="{bottom + 16}" text-anchor="middle" fill="#64748b">{minute} min</text>'
        )
    at, line = left + 12.0, bottom + 36
    for (name, points), color in zip(series, COLORS, strict=False):
        path = " ".join(
            f"{x0 + width * s / SECONDS:.1f},{bottom - PLOT_HEIGHT * v / most:.1f}" for s, v in points
        )
        lines.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.5"/>')
        if at + 24 + 6.5 * len(name) > left + WIDTH:
            at, line = left + 12.0, line + 18
        lines.append(f'<path d="M{at:.0f} {line - 4}h14" stroke="{color}" stroke-width="3"/>')
        lines.append(f'<text x="{at + 19:.0f}" y="{line}">{escape(name)}</text>')
        at += 34 + 6.5 * len(name)
    return lines


def picture(start: float) -> str:
    panels = [each for each in json.loads(DASHBOARD.read_text())["panels"] if each["type"] == "timeseries"]
    lines = []
    for panel in panels[: ROWS * 3]:
        column, row = (
            panel["gridPos"]["x"] // panel["gridPos"]["w"],
            panel["gridPos"]["y"] // panel["gridPos"]["h"],
        )
        series = [one for each in panel["targets"] for one in ask(each["expr"], each["legendFormat"], start)]
        lines += drawn(panel, series, GAP + column * (WIDTH + GAP), GAP + row * (HEIGHT + GAP))
    size = {"width": GAP + 3 * (WIDTH + GAP), "height": GAP + ROWS * (HEIGHT + GAP)}
    title = "The first nine panels of the dashboard: three queues for five minutes"
    return "\n".join([HEAD.format(**size, title=title), *lines, "</svg>\n"])


def main() -> None:
    program = shutil.which("prometheus")
    if program is None:
        raise SystemExit("prometheus is not on the PATH: apt-get install prometheus")
    with queues_at_work(), tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "prometheus.yml"
        config.write_text(configuration())
        options = (
            f"--config.file={config}",
            f"--storage.tsdb.path={folder}",
            f"--web.listen-address={PROMETHEUS}",
        )
        prometheus = subprocess.Popen([program, *options, "--log.level=error"])  # noqa: S603 -- from the PATH
        try:
            start = time.time() + 15  # two scrapes, so that rates have values
            time.sleep(SECONDS + 15)
            FILE.write_text(picture(start))
        finally:
            prometheus.terminate()
            prometheus.wait()


if __name__ == "__main__":
    main()
