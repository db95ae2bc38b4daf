"""`python -m deploy.dashboards` writes deploy/grafana/dashboards/*.json anew."""

from deploy.dashboards import DASHBOARDS
from deploy.grafana_json import FOLDER, to_json

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for dashboard in DASHBOARDS:
        (FOLDER / f"{dashboard.name}.json").write_text(to_json(dashboard))
