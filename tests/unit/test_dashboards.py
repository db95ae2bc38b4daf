"""The dashboards that Grafana reads are those that the code makes."""

import pytest

from deploy.alarms import check_metrics
from deploy.dashboards import DASHBOARDS
from deploy.grafana_json import Dashboard, to_json
from deploy.monitoring import as_prometheus, check_committed

dashboards = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda one: one.name)


def test_the_committed_dashboards_are_those_of_the_code() -> None:
    assert check_committed() == []


@dashboards
def test_panels_say_what_they_show_under_a_name_of_their_own(dashboard: Dashboard) -> None:
    assert all(panel.description and panel.queries for panel in dashboard.panels)
    assert len({panel.title for panel in dashboard.panels}) == len(dashboard.panels)


@dashboards
def test_the_variables_of_queries_are_those_of_the_dashboard(dashboard: Dashboard) -> None:
    text = to_json(dashboard)
    for name in ("model", "tenant"):
        assert (f'=~\\"${name}\\"' in text) == (name in dashboard.variables)
    queries = [query.expression for panel in dashboard.panels for query in panel.queries]
    assert "$" not in "".join(as_prometheus(query) for query in queries)


def test_series_that_nobody_makes_are_told_and_those_of_histograms_and_rules_are_known() -> None:
    looks = {
        "misspelt": "rate(vqueue_dead_chunk[5m])",
        "recorded": "vqueue:model_workers + vqueue:model_worker",
        "histogram": "rate(vqueue_http_seconds_count[5m]) + vqueue_gpu_memory_bytes",
    }
    assert [fault.split(", ")[0] for fault in check_metrics(looks)] == [
        "misspelt: there is no metric vqueue_dead_chunk",
        "recorded: there is no metric vqueue:model_worker",
    ]
