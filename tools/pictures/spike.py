"""Draw docs/images/spike.svg from the figures of benchmarks.md: `.venv/bin/python -m tools.pictures.spike`.

`make bench-node BENCH_ARGS=--keep` records the figures; this only draws them, with the workers of the same run.
"""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "explanation" / "benchmarks.md"
FILE = DOCS / "images" / "spike.svg"
LEFT, RIGHT, TOP, BOTTOM, FIRST, LAST, MOST = 70, 890, 90, 330, -16.0, 16.0, 5
HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 920 400" font-family="Helvetica, Arial, sans-serif"'
    ' font-size="13" fill="#0f172a" role="img" aria-labelledby="title">'
)
WORKER = re.compile(
    r"^orders-worker-\S+ +([-+.\d]+) +([-+.\d]+) +([-+.\d]+) +([-+.\d]+) +([-+.\d]+)$", re.MULTILINE
)


def x(second: float) -> float:
    return LEFT + (second - FIRST) / (LAST - FIRST) * (RIGHT - LEFT)


def y(workers: float) -> float:
    return BOTTOM - workers / MOST * (BOTTOM - TOP)


def figure(page: str, name: str) -> list[str]:
    """The values of one line of the table of the rush: measured, simulated, reactive."""
    line = next(each for each in page.splitlines() if re.match(rf"[AB]  {re.escape(name)}  ", each))
    return re.findall(r"-?[\d.]+ s", line.split(name, 1)[1])


def steps(up: list[float], down: list[float]) -> str:
    """A path through the number of workers: one more at each time of `up`, one less at each of `down`."""
    path, count = f"M{x(FIRST):.1f} {y(0):.1f}", 0
    for second, change in sorted([(each, 1) for each in up] + [(each, -1) for each in down]):
        count += change
        path += f"H{x(second):.1f}V{y(count):.1f}"
    return f"{path}H{x(LAST):.1f}"


def text(at: tuple[float, float], words: str, more: str = "") -> str:
    return f'<text x="{at[0]:.0f}" y="{at[1]:.0f}"{more}>{words}</text>'


def picture(page: str) -> str:
    """The picture as SVG, on a background of its own, so that it is legible on dark pages."""
    rows = [[float(each) for each in row] for row in WORKER.findall(page)]
    asked, _, claims, leaves, gone = (list(column) for column in zip(*rows, strict=True))
    p50, p99 = (figure(page, f"lateness {each}")[0] for each in ("p50", "p99"))
    reactive = x(
        float(figure(page, "the first worker is asked for, from the due time")[-1].removesuffix(" s"))
    )
    middle = ' text-anchor="middle"'
    parts = [
        HEAD,
        '<title id="title">Workers of a rush of 2,000 tasks, from the due time</title>',
        '<rect x="1" y="1" width="918" height="398" rx="10" fill="#f8fafc" stroke="#94a3b8"/>',
        text(
            (LEFT, 34),
            "2,000 tasks of 0.5 s, due at one instant, no worker before",
            ' font-size="17" font-weight="bold"',
        ),
        text((LEFT, 56), f"measured on a real node: late by {p50} (p50), {p99} (p99); the objective is 2 s"),
        f'<rect x="{x(0):.1f}" y="{TOP}" width="{x(2) - x(0):.1f}" height="{BOTTOM - TOP}" fill="#dcfce7"/>',
    ]
    for workers in range(MOST + 1):
        parts.append(f'<path d="M{LEFT} {y(workers):.1f}H{RIGHT}" stroke="#e2e8f0"/>')
        parts.append(text((LEFT - 18, y(workers) + 4), str(workers)))
    parts += [
        text((x(second), BOTTOM + 20), f"{second:+d} s" if second else "due", middle)
        for second in range(-15, 16, 5)
    ]
    parts += [
        f'<path d="{steps(asked, gone)}" fill="none" stroke="#6d28d9" stroke-width="2" stroke-dasharray="6 4"/>',
        f'<path d="{steps(claims, leaves)}" fill="#1d4ed8" fill-opacity="0.15" stroke="#1d4ed8" stroke-width="2.5"/>',
        f'<path d="M{x(0):.1f} {TOP}V{BOTTOM}" stroke="#b91c1c" stroke-width="2"/>',
        f'<path d="M{reactive:.1f} {TOP}V{BOTTOM}" stroke="#b45309" stroke-dasharray="2 4" stroke-width="2"/>',
        text((x(-12.4), y(4) - 8), "4 workers requested"),
        text((x(-9), y(3.5)), "they claim"),
        text((x(0) + 6, y(4.6)), "tasks due; green: the objective"),
        text((x(12), y(2.3)), "simulated: KEDA and an HPA", ' text-anchor="end"'),
        text((x(12), y(1.95)), "request their first worker", ' text-anchor="end"'),
        text((LEFT - 50, TOP - 10), "workers"),
        text((LEFT, 378), "dashed: pods that exist · blue: workers that claim · seconds from the due time"),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    FILE.write_text(picture(PAGE.read_text()))
