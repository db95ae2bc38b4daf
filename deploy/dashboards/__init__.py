"""The six dashboards as values; `python -m deploy.dashboards` writes them for Grafana.

Gauges of the dispatcher tell of the whole installation, every dispatcher the same: `max`, never `sum`.
"""

from deploy.dashboards.engine import CACHES, ENGINE
from deploy.dashboards.images import FETCH, SWEEPS
from deploy.dashboards.service import BATCHES, OVERVIEW

DASHBOARDS = (OVERVIEW, BATCHES, ENGINE, CACHES, FETCH, SWEEPS)
