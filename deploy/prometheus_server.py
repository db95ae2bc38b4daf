"""A real Prometheus on this machine with the repository's rules, and questions to it."""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from app.local.probes import http_status
from deploy.alarms import PROMETHEUS
from tests.processes import free_port
from tests.waiting import eventually


@dataclass(frozen=True)
class Series:
    """Its labels, and its values by Unix time."""

    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]

    @property
    def has_values(self) -> bool:
        """Whether any of them is a number: the mean of nothing is none."""
        return any(value == value for _, value in self.points)


class QueryRefused(Exception):
    """PromQL that Prometheus does not take."""


@dataclass(frozen=True)
class PrometheusServer:
    url: str

    def at(self, expression: str) -> list[Series]:
        """What the expression is now."""
        found = self._ask("query", query=expression)["result"]
        return [Series(one["metric"], _points([one["value"]])) for one in found]

    def over(self, expression: str, *, start: float, end: float, step_s: float) -> list[Series]:
        """What the expression was from `start` to `end`."""
        found = self._ask("query_range", query=expression, start=start, end=end, step=step_s)["result"]
        return [Series(one["metric"], _points(one["values"])) for one in found]

    def rules(self) -> list[dict[str, Any]]:
        """Alarms and recorded series, with `health` and `lastError`."""
        groups: list[dict[str, Any]] = self._ask("rules")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def targets_up(self) -> set[str]:
        """The jobs that have been read without an error."""
        targets: list[dict[str, Any]] = self._ask("targets")["activeTargets"]
        return {one["labels"]["job"] for one in targets if one["health"] == "up"}

    def is_ready(self) -> bool:
        return http_status(f"{self.url}/-/ready") == 200

    def _ask(self, call: str, **values: Any) -> dict[str, Any]:
        answer = httpx.get(f"{self.url}/api/v1/{call}", params=values, timeout=30)
        if answer.is_error:
            raise QueryRefused(f"{values}: {answer.text}")
        return answer.json()["data"]


@contextmanager
def running_prometheus(targets: Mapping[str, int], folder: Path) -> Iterator[PrometheusServer]:
    """With the configuration for Compose, but that services are ports of this machine, read each second."""
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(PROMETHEUS / name) for name in config["rule_files"]]
    for job in config["scrape_configs"]:
        del job["dns_sd_configs"]
        job["static_configs"] = [{"targets": [f"127.0.0.1:{targets[job['job_name']]}"]}]
    path, port = folder / "prometheus.yml", free_port()
    path.write_text(yaml.safe_dump(config))
    command = [
        "prometheus",
        f"--config.file={path}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--query.lookback-delta=10s",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    server = PrometheusServer(f"http://127.0.0.1:{port}")
    try:
        eventually(server.is_ready, within_s=60)
        yield server
    finally:
        process.kill()
        process.wait()


def _points(values: Sequence[tuple[float, str]]) -> list[tuple[float, float]]:
    return [(float(moment), float(value)) for moment, value in values]
