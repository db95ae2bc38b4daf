"""GPU use and memory as NVML tells them; nothing where there is no NVML."""

from importlib import import_module
from typing import Any

from app import telemetry


def watch_gpus() -> int:
    """Let every scrape of the GPU gauges ask NVML; how many GPUs there are."""
    try:
        # The library's classes are made at run time from NVML's own list: there is no type to name.
        nvml: Any = import_module("pynvml")
        nvml.nvmlInit()
        count: int = nvml.nvmlDeviceGetCount()
    except Exception:  # no library, no driver or no GPU: all mean that there is nothing to watch
        return 0
    for index in range(count):
        _watch(nvml, nvml.nvmlDeviceGetHandleByIndex(index), str(index))
    return count


def _watch(nvml: Any, handle: Any, gpu: str) -> None:
    telemetry.GPU_UTILISATION.labels(gpu).set_function(
        lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
    )
    for kind in ("used", "total"):
        telemetry.GPU_MEMORY.labels(gpu, kind).set_function(
            lambda kind=kind: getattr(nvml.nvmlDeviceGetMemoryInfo(handle), kind)
        )
