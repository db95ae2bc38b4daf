"""Whether Prometheus is there for a test."""

import os
import shutil

import pytest


def need_prometheus() -> None:
    """Skips where VQUEUE_SKIP_PROMETHEUS=1 leaves it out; elsewhere its lack is a failure."""
    if os.environ.get("VQUEUE_SKIP_PROMETHEUS") == "1" and shutil.which("promtool") is None:
        pytest.skip("prometheus is not installed and VQUEUE_SKIP_PROMETHEUS=1")
