"""What a dashboard is made of, and the JSON that Grafana reads. Pure: the same values give the same bytes."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

FOLDER = Path(__file__).parent / "grafana" / "dashboards"
SCHEMA = 39  # of dashboards, as Grafana 11 and 12 write them
DATASOURCE = {"type": "prometheus", "uid": "prometheus"}
WIDTH = 24  # columns of Grafana's grid
ACROSS, HEIGHT = 3, 8  # panels in a row, and the rows of the grid that each takes

Kind = Literal["timeseries", "stat"]
Unit = Literal["short", "s", "percentunit", "bytes", "reqps", "ops", "none"]


@dataclass(frozen=True)
class Query:
    """PromQL, and how its series are named: `{{label}}` is the label's value."""

    expression: str
    legend: str


@dataclass(frozen=True)
class Threshold:
    """From `value` on (below it, where less is worse) the panel is coloured."""

    value: float
    colour: Literal["yellow", "red", "green"]


@dataclass(frozen=True)
class Panel:
    """One question, and the series that answer it. `needs_gpu`: none without NVML."""

    title: str
    description: str
    unit: Unit
    queries: tuple[Query, ...]
    kind: Kind = "timeseries"
    thresholds: tuple[Threshold, ...] = ()
    base: Literal["green", "red", "text"] = "green"  # the colour under the first threshold
    stacked: bool = False
    signed: bool = False  # may lie below zero
    needs_gpu: bool = False


@dataclass(frozen=True)
class Dashboard:
    """`variables` are labels of the metric named: a choice of their values stands above the panels."""

    name: str
    title: str
    description: str
    panels: tuple[Panel, ...]
    variables: dict[str, str] = field(default_factory=dict)


def to_json(dashboard: Dashboard) -> str:
    """The file of a dashboard, ready for Grafana's provisioning."""
    return json.dumps(_dashboard(dashboard), indent=2, ensure_ascii=False) + "\n"


def _dashboard(dashboard: Dashboard) -> dict[str, Any]:
    return {
        "uid": f"vqueue-{dashboard.name}",
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["vqueue"],
        "schemaVersion": SCHEMA,
        "editable": False,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "graphTooltip": 1,
        "links": [
            {
                "type": "dashboards",
                "title": "vqueue",
                "tags": ["vqueue"],
                "asDropdown": True,
                "keepTime": True,
                "includeVars": True,
            }
        ],
        "templating": {"list": [_variable(*pair) for pair in dashboard.variables.items()]},
        "annotations": {"list": [_alarms()]},
        "panels": [_panel(number, panel) for number, panel in enumerate(dashboard.panels)],
    }


def _variable(label: str, metric: str) -> dict[str, Any]:
    query = f"label_values({metric}, {label})"
    return {
        "name": label,
        "type": "query",
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": label},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
        "sort": 1,
    }


def _alarms() -> dict[str, Any]:
    """Alarms that ring, as marks on every panel."""
    return {
        "name": "Alarms",
        "enable": True,
        "datasource": DATASOURCE,
        "expr": 'ALERTS{alertstate="firing",alertname=~"Vqueue.*"}',
        "titleFormat": "{{alertname}}",
        "iconColor": "red",
        "step": "60s",
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(number, ACROSS)
    width = WIDTH // ACROSS
    return {
        "id": number + 1,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "gridPos": {"x": column * width, "y": row * HEIGHT, "w": width, "h": HEIGHT},
        "targets": [_target(place, query) for place, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": _field(panel), "overrides": []},
        "options": _options(panel),
    }


def _target(place: int, query: Query) -> dict[str, Any]:
    return {
        "refId": chr(ord("A") + place),
        "datasource": DATASOURCE,
        "expr": query.expression,
        "legendFormat": query.legend,
    }


def _field(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": panel.base, "value": None}]
    steps += [{"color": one.colour, "value": one.value} for one in panel.thresholds]
    found: dict[str, Any] = {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps}}
    if not panel.signed:
        found["min"] = 0
    if panel.unit == "percentunit":
        found["max"] = 1
    if panel.kind == "timeseries":
        found["custom"] = {
            "fillOpacity": 20 if panel.stacked else 0,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"mode": "normal" if panel.stacked else "none"},
            "thresholdsStyle": {"mode": "line" if panel.thresholds else "off"},
        }
    return found


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "stat":
        return {
            "colorMode": "background",
            "graphMode": "area",
            "textMode": "value_and_name" if "{{" in panel.queries[0].legend else "value",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        }
    return {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
