"""A random model of Qwen3-VL-8B's shape on a GPU: questions per second, step fill, caches; 8 minutes."""

import argparse
import importlib
import sys
from importlib.metadata import version

TRANSFORMERS = "5.24"
NEEDED = (
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "numpy",
    "PIL",
    "jinja2",
    "workers.engine.transformers",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", help="cpu to see that it runs, with --size tiny")
    parser.add_argument("--size", default="8b", choices=("8b", "tiny"))
    parser.add_argument("--pictures", type=int, default=20)
    parser.add_argument("--rows", type=int, default=128, help="rows of a step")
    parser.add_argument(
        "--limit", type=float, default=420.0, help="seconds after which nothing more is begun"
    )
    options = parser.parse_args()
    missing = [*absent(NEEDED), *wrong_device(options.device)]
    if missing:
        sys.exit("\n".join(["gpu: this cannot run here:", *missing]))
    device = importlib.import_module("bench.device")
    line = device.run(
        device.SIZES[options.size],
        device=options.device,
        pictures=options.pictures,
        rows=options.rows,
        limit_s=options.limit,
    )
    print(line)


def absent(names: tuple[str, ...]) -> list[str]:
    """Why each of these cannot be imported, before any minute of a lent machine is spent."""
    found: list[str] = []
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            found.append(f"{name}: {error}")
    if not found and not version("transformers").startswith(TRANSFORMERS):
        found.append(f"transformers is {version('transformers')}, not {TRANSFORMERS}")
    return found


def wrong_device(device: str) -> list[str]:
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return []
    return ["torch sees no GPU"] if device == "cuda" and not torch.cuda.is_available() else []


if __name__ == "__main__":
    main()
