"""Draws the dashboards from what a real run told: `python -m deploy.pictures`, as docs/dashboards/*.png.

Grafana draws them better; these show what a panel is about, on a machine that has none.
"""

import argparse
import re
import tempfile
from pathlib import Path
from typing import Any

import matplotlib as mpl

from deploy.dashboards import DASHBOARDS
from deploy.grafana_json import ACROSS, Dashboard, Panel
from deploy.monitoring import Monitored, check_run, own_run
from deploy.prometheus_server import Series

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "dashboards"
DPI = 80
MOST_NAMED = 10  # series that a legend has room for
ROUNDS = 8  # so that there is something to see
COLOURS = {"green": "#3d8b40", "yellow": "#c79100", "red": "#c4162a", "text": "#555555"}
SCALES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
Drawn = list[tuple[str, Series]]


def main() -> None:
    """Draw all, and say what is wrong with a panel."""
    argparse.ArgumentParser(prog="scripts/dashboards", description=__doc__).parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, own_run(Path(folder), rounds=ROUNDS) as monitored:
        faults = check_run(monitored)
        for dashboard in DASHBOARDS:
            draw(monitored, dashboard)
    for fault in faults:
        print(fault)
    panels = sum(len(dashboard.panels) for dashboard in DASHBOARDS)
    print(f"dashboards: boards={len(DASHBOARDS)} panels={panels} faults={len(faults)}")
    raise SystemExit(bool(faults))


def draw(monitored: Monitored, dashboard: Dashboard) -> None:
    panels = [panel for panel in dashboard.panels if not panel.needs_gpu]
    rows = -(-len(panels) // ACROSS)
    figure, axes = plt.subplots(
        rows, ACROSS, figsize=(15, 3.1 * rows + 0.6), squeeze=False, layout="constrained"
    )
    figure.suptitle(dashboard.title, x=0.01, ha="left", fontsize=15, weight="bold")
    for place, axis in enumerate(axes.flat):
        if place >= len(panels):
            axis.set_axis_off()
            continue
        _panel(axis, panels[place], _series(monitored, panels[place]), monitored)
    figure.savefig(FOLDER / f"{dashboard.name}.png", dpi=DPI)
    plt.close(figure)


def _series(monitored: Monitored, panel: Panel) -> Drawn:
    return [
        (_legend(query.legend, series), series)
        for query in panel.queries
        for series in monitored.series(query)
    ]


def _legend(pattern: str, series: Series) -> str:
    return re.sub(r"{{(\w+)}}", lambda found: series.labels.get(found[1], ""), pattern).strip()


def _panel(axis: Any, panel: Panel, drawn: Drawn, monitored: Monitored) -> None:
    started = monitored.started
    axis.set_title(panel.title, loc="left", fontsize=11)
    if panel.kind == "stat":
        _stat(axis, panel, drawn)
        return
    if panel.stacked:
        _stack(axis, drawn, started)
    else:
        for name, series in drawn:
            moments, values = zip(*series.points, strict=True)
            axis.plot([moment - started for moment in moments], values, label=name, linewidth=1.4)
    _bounds(axis, panel, drawn)
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: said(value, panel.unit)))
    axis.set_xlim(0, monitored.ended - started)
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f} s"))
    axis.tick_params(labelsize=8)
    axis.grid(alpha=0.25)
    if len(drawn) <= MOST_NAMED:
        axis.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=4, frameon=False)


def _stack(axis: Any, drawn: Drawn, started: float) -> None:
    moments = sorted({moment for _, series in drawn for moment, _ in series.points})
    values = [dict(series.points) for _, series in drawn]
    heights = [[of.get(moment, 0.0) for moment in moments] for of in values]
    names = [name for name, _ in drawn]
    axis.stackplot([moment - started for moment in moments], heights, labels=names, alpha=0.75)


def _bounds(axis: Any, panel: Panel, drawn: Drawn) -> None:
    values = [value for _, series in drawn for _, value in series.points if value == value]
    if panel.unit == "percentunit" or not any(values):
        axis.set_ylim(0, 1.02)
    elif not panel.signed and not panel.stacked:
        axis.set_ylim(0, 1.1 * max(values))
    for threshold in panel.thresholds:
        if threshold.value <= max(values, default=0):
            axis.axhline(threshold.value, color=COLOURS[threshold.colour], linewidth=0.8, linestyle="--")


def _stat(axis: Any, panel: Panel, drawn: Drawn) -> None:
    axis.set_axis_off()
    for place, (name, series) in enumerate(drawn):
        value = series.points[-1][1]
        height = 1 - (place + 0.5) / len(drawn)
        axis.text(
            0.5,
            height,
            said(value, panel.unit),
            fontsize=30,
            ha="center",
            va="center",
            color=COLOURS[_colour(panel, value)],
            transform=axis.transAxes,
        )
        axis.text(
            0.5, height - 0.2 / len(drawn) - 0.08, name, fontsize=9, ha="center", transform=axis.transAxes
        )


def _colour(panel: Panel, value: float) -> str:
    reached = [threshold.colour for threshold in panel.thresholds if value >= threshold.value]
    return reached[-1] if reached else panel.base


def said(value: float, unit: str) -> str:
    """A value as Grafana says it, roughly."""
    match unit:
        case "percentunit":
            return f"{value:.0%}"
        case "s":
            return _seconds(value)
        case "bytes":
            return f"{_scaled(value)}B"
        case "reqps" | "ops":
            return f"{_scaled(value)}/s"
        case _:
            return _scaled(value)


def _seconds(value: float) -> str:
    if value == 0 or abs(value) >= 1:
        return f"{value:.3g} s"
    return f"{value * 1000:.3g} ms"


def _scaled(value: float) -> str:
    for size, letter in SCALES:
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


if __name__ == "__main__":
    main()
