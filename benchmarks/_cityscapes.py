"""Pictures of streets with a mask of classes, in the shape of Cityscapes (Cordts et al. 2016), and a small UNet for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

CLASSES = 4  # sky, building, road, car
#: Groups of Cityscapes in table 4 of Kingpin.
CITIES = 44


def pictures(con: duckdb.DuckDBPyConnection, name: str, rows: int, size: int = 16, cities: int = CITIES) -> None:
    """Create a table of ``city``, ``image`` (3·size·size bytes, channel by channel) and ``mask`` (a class per pixel)."""
    random = np.random.default_rng(0)
    share = np.arange(1, cities + 1) ** -0.8
    city = np.sort(random.choice(cities, size=rows, p=share / share.sum()))
    palettes = random.integers(40, 216, size=(cities, CLASSES, 3))
    masks = np.stack([_mask(random, size) for _ in range(rows)])
    noise = random.normal(0, 25, size=(rows, size, size, 3))
    images = np.clip(palettes[city[:, None, None], masks] + noise, 0, 255).astype(np.uint8).transpose(0, 3, 1, 2)
    arrow = pa.table(
        {
            "city": city,
            "image": pa.array([image.tobytes() for image in images], pa.binary()),
            "mask": pa.array([mask.tobytes() for mask in masks], pa.binary()),
        }
    )
    con.register("arrow", arrow)
    con.execute(f"CREATE OR REPLACE TABLE {name} AS FROM arrow")
    con.unregister("arrow")


def _mask(random: np.random.Generator, size: int) -> np.ndarray:
    """Return sky above a skyline, the road below a horizon, and two cars on it."""
    mask = np.zeros((size, size), dtype=np.uint8)
    horizon = int(random.integers(size // 2, 3 * size // 4))
    skyline = np.repeat(random.integers(1, horizon, size=4), -(-size // 4))[:size]
    mask[np.arange(size)[:, None] >= skyline] = 1
    mask[horizon:] = 2
    for _ in range(2):
        left, top = random.integers(0, size - size // 4), random.integers(horizon, size - 1)
        mask[top : top + size // 8 + 1, left : left + size // 4] = 3
    return mask


def unet(problem: Any, config: Mapping[str, Any]) -> Any:
    """Return a UNet (Ronneberger et al. 2015) of two levels; ``width`` filters on the first, as in Kingpin 8."""
    import torch
    from torch import nn

    size, width = int((problem.n_features / 3) ** 0.5), int(config["width"])

    def block(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = block(3, width), block(width, 2 * width)
            self.bottom = block(2 * width, 4 * width)
            self.up_second = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
            self.join_second = block(4 * width, 2 * width)
            self.up_first = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
            self.join_first = block(2 * width, width)
            self.classes = nn.Conv2d(width, problem.n_classes, 1)
            self.shrink = nn.MaxPool2d(2)

        def forward(self, x: Any) -> Any:
            first = self.first(x.unflatten(1, (3, size, size)))
            second = self.second(self.shrink(first))
            up = self.up_second(self.bottom(self.shrink(second)))
            up = self.up_first(self.join_second(torch.cat([up, second], 1)))
            return self.classes(self.join_first(torch.cat([up, first], 1)))  # (rows, classes, size, size)

    return UNet()
