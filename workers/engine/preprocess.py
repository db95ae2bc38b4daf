"""Pixels to patches: Qwen3-VL's image preprocessing in numpy, equal to the library's PIL processor."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from app.errors import FatalWork
from app.visual_tokens import MERGE, PATCH, patch_grid
from workers.engine.base import Pixels

Patches = NDArray[np.float32]
# Newer saves put the image processor's settings into the processor's own file, under "image_processor".
CONFIG_FILES = ("preprocessor_config.json", "processor_config.json")
FRAMES = 2  # temporal patch: a still picture is shown twice
CHANNELS = 3


@dataclass(frozen=True)
class Grid:
    """An image's size in patches, both sides even; four patches make one visual token."""

    height: int
    width: int

    @property
    def tokens(self) -> int:
        return self.height * self.width // MERGE**2


@dataclass(frozen=True)
class Preprocessor:
    """How a checkpoint wants its pictures; the pixel budget is in pixels of area after the resize."""

    min_pixels: int
    max_pixels: int
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    rescale: float = 1 / 255
    resample: int = PIL.Image.Resampling.BICUBIC

    def grid(self, width: int, height: int, max_pixels: int | None = None) -> Grid:
        """The grid for a picture of this size under the checkpoint's budget, or a lower one.

        Raises ValueError where the aspect ratio is above 200.
        """
        most = min(self.max_pixels, max_pixels or self.max_pixels)
        least = min(self.min_pixels, most)
        _, rows, columns = patch_grid(width, height, min_pixels=least, max_pixels=most)
        return Grid(rows, columns)

    def patches(self, pixels: Pixels, grid: Grid) -> Patches:
        """Resize to the grid, normalise, and cut into rows of one patch each, in visual tokens' order."""
        return self._cut(self._normalise(np.asarray(self.resized(pixels, grid))), grid)

    def resized(self, pixels: Pixels, grid: Grid) -> PIL.Image.Image:
        """The picture at the grid's size, which every processor of Qwen3-VL leaves as it is."""
        size = (grid.width * PATCH, grid.height * PATCH)
        return PIL.Image.fromarray(pixels).resize(size, resample=self.resample)

    def _normalise(self, picture: Pixels) -> NDArray[np.float32]:
        """By a table of each channel's 256 values, computed as the library does; channels first."""
        values = (np.arange(256) * self.rescale).astype(np.float32)[:, None]
        table = (values - np.array(self.mean, np.float32)) / np.array(self.std, np.float32)
        return np.stack([table[picture[..., channel], channel] for channel in range(CHANNELS)])

    def _cut(self, picture: NDArray[np.float32], grid: Grid) -> Patches:
        blocks = picture.reshape(
            CHANNELS,
            grid.height // MERGE,
            MERGE,
            PATCH,
            grid.width // MERGE,
            MERGE,
            PATCH,
        )
        blocks = blocks.transpose(1, 4, 2, 5, 0, 3, 6)[:, :, :, :, :, None]
        shown = np.broadcast_to(blocks, (*blocks.shape[:5], FRAMES, PATCH, PATCH))
        return shown.reshape(grid.height * grid.width, -1)


def read_preprocessor(folder: Path, *, max_pixels: int | None) -> Preprocessor:
    """Read a checkpoint's settings; `max_pixels` lowers its pixel budget.

    Raises FatalWork("model_unsupported") where they are missing or not Qwen3-VL's.
    """
    config = _read_config(folder)
    sizes = [config["patch_size"], config["merge_size"], config["temporal_patch_size"]]
    if sizes != [PATCH, MERGE, FRAMES]:
        raise FatalWork("model_unsupported", f"{folder}: patch, merge and temporal sizes are {sizes}")
    size = config["size"]
    most = min(size["longest_edge"], max_pixels or size["longest_edge"])
    return Preprocessor(
        min_pixels=min(size["shortest_edge"], most),
        max_pixels=most,
        mean=tuple(config["image_mean"]),
        std=tuple(config["image_std"]),
        rescale=config.get("rescale_factor", 1 / 255),
        resample=config.get("resample", PIL.Image.Resampling.BICUBIC),
    )


def _read_config(folder: Path) -> dict[str, Any]:
    """The image settings as JSON; values of several types, read field by field by the caller."""
    for name in CONFIG_FILES:
        path = folder / name
        if path.is_file():
            config = json.loads(path.read_text())
            return config.get("image_processor", config)
    raise FatalWork("model_unsupported", f"{folder} has neither {' nor '.join(CONFIG_FILES)}")
