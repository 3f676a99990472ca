"""Images as LLaVA-NeXT and OneVision see them: the whole, and tiles of a grid that fits it best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from satchel.errors import CheckpointError, ProgramFormatError
from satchel.vision_language.encoder import VisionEncoder
from satchel.vision_language.preprocess import (
    CLIP_MEAN,
    CLIP_STD,
    Frames,
    edges,
    in_rgb,
    in_square,
    normalized,
    require_usual,
    resized,
)
from satchel.vision_language.shown import Rows, View

_BICUBIC = 3  # Pillow's number
_MOST_TILES = 64
_SLACK = 1.1  # so much more than the most is let be


@dataclass(frozen=True)
class GridPreprocessing:
    """The image in the size of one tile; and scaled into the best of ``grids``, black around it."""

    tile: int
    side: int  # patches of a tile's side
    grids: tuple[tuple[int, int], ...]  # height and width in pixels
    most: int | None = None  # tiles' worth of rows; more are averaged. Several images: no tiles
    mean: tuple[float, ...] = CLIP_MEAN
    std: tuple[float, ...] = CLIP_STD
    resample: int = _BICUBIC

    def __post_init__(self) -> None:
        sizes = [n for grid in self.grids for n in grid]
        whole = all(isinstance(n, int) and n > 0 for n in (self.tile, self.side, *sizes))
        whole = whole and all(len(grid) == 2 for grid in self.grids) and bool(sizes)
        fits = whole and all(n % self.tile == 0 and n // self.tile <= _MOST_TILES for n in sizes)
        fits = fits and len(self.mean) == len(self.std) == 3 and all(s > 0 for s in self.std)
        if not fits or self.resample not in range(6) or (self.most is not None and self.most < 1):
            raise ProgramFormatError(f"the preprocessing {asdict(self)} is not possible")

    @staticmethod
    def from_processor(
        processor: Mapping[str, Any], config: Mapping[str, Any], encoder: VisionEncoder
    ) -> GridPreprocessing:
        """From preprocessor_config.json, whose fields may be absent, and the model's own."""
        require_usual(processor, ("do_resize", "do_rescale", "do_normalize"))
        size = edges(processor, "size")
        tile = size.get("shortest_edge", size.get("height", encoder.size))
        if tile != encoder.size:
            raise CheckpointError(
                f"preprocessor_config.json has tiles of {tile}, and the model sees {encoder.size}"
            )
        grids = config.get("image_grid_pinpoints") or processor.get("image_grid_pinpoints")
        if not grids:
            raise CheckpointError("the configuration has no image_grid_pinpoints")
        ratio = config.get("vision_aspect_ratio")
        return GridPreprocessing(
            tile,
            encoder.side,
            tuple((int(height), int(width)) for height, width in grids),
            int(str(ratio).rpartition("_")[2]) if ratio else None,
            tuple(processor.get("image_mean") or CLIP_MEAN),
            tuple(processor.get("image_std") or CLIP_STD),
            processor.get("resample", _BICUBIC),
        )

    @staticmethod
    def from_dict(parts: Mapping[str, Any]) -> GridPreprocessing:
        try:
            fixed: dict[str, Any] = {**parts, "grids": tuple(tuple(g) for g in parts["grids"])}
            fixed |= {name: tuple(parts[name]) for name in ("mean", "std")}
            return GridPreprocessing(**fixed)
        except (TypeError, KeyError) as error:
            raise ProgramFormatError(f"the preprocessing is damaged: {error}") from None

    def to_dict(self) -> dict[str, Any]:
        made = asdict(self)
        return (
            made
            | {"grids": [list(g) for g in self.grids], "mean": list(self.mean)}
            | {"std": list(self.std)}
        )

    def frames(self, image: Any, among: int = 1) -> Frames:
        """The whole first, and then tiles line by line; of several images the whole only."""
        picture, tile = in_rgb(image), self.tile
        width, height = picture.size
        if among > 1 and self.most is not None:
            whole = resized(in_square(picture, self.mean), (tile, tile), self.resample)
            return Frames([self._normalized(whole)], size=(height, width))
        rows, columns = self._grid(height, width)
        parts = [resized(picture, (tile, tile), self.resample)]
        large = self._padded(picture, rows * tile, columns * tile)
        for top in range(0, rows * tile, tile):
            for left in range(0, columns * tile, tile):
                parts.append(large.crop((left, top, left + tile, top + tile)))
        return Frames([self._normalized(p) for p in parts], rows, columns, (height, width))

    def text_of(self, frames: Frames, mark: str) -> str:
        """One mark, however many tiles there are."""
        return mark

    def views(self, frames: Frames, rows: int) -> list[View]:
        """One, of the whole and of the tiles put together as they lie."""
        if not frames.rows:
            return [View(frames.pixels, rows + 1, lambda seen: seen[0])]
        top, left, height, width = self._unpadded(frames)
        lines, columns = self._lines(height, width)

        def arrange(seen: Sequence[Rows]) -> Rows:
            whole, newline = seen[0][:-1], seen[0][-1]
            tiles = np.stack([each[:-1] for each in seen[1:]])
            tiles = tiles.reshape(frames.rows, frames.columns, self.side, self.side, -1)
            map_ = tiles.transpose(0, 2, 1, 3, 4).reshape(
                frames.rows * self.side, frames.columns * self.side, -1
            )[top : top + height, left : left + width]
            if (lines, columns) != (height, width):
                map_ = _scaled(_scaled(map_, lines, 0), columns, 1)
            ends = np.broadcast_to(newline, (lines, 1, len(newline)))
            flat = np.concatenate([map_, ends], axis=1).reshape(-1, len(newline))
            return np.concatenate([whole, flat]).astype(np.float32)

        return [View(frames.pixels, rows + lines * (columns + 1), arrange)]

    def _grid(self, height: int, width: int) -> tuple[int, int]:
        """Lines and columns of the grid that keeps most of an image, and wastes least."""

        def worth(grid: tuple[int, int]) -> tuple[int, int]:
            scale = min(grid[1] / width, grid[0] / height)
            kept = min(int(width * scale) * int(height * scale), width * height)
            return kept, kept - grid[0] * grid[1]

        best = max(self.grids, key=worth)
        return best[0] // self.tile, best[1] // self.tile

    def _padded(self, picture: Any, height: int, width: int) -> Any:
        """Scaled to fit, in the middle of black."""
        have_width, have_height = picture.size
        across, down = width / have_width, height / have_height
        if across < down:
            size = (width, min(math.ceil(have_height * across), height))
        else:
            size = (min(math.ceil(have_width * down), width), height)
        scaled = resized(picture, size, self.resample)
        place = ((width - size[0]) // 2, (height - size[1]) // 2)
        return scaled.crop((-place[0], -place[1], width - place[0], height - place[1]))

    def _normalized(self, picture: Any) -> Rows:
        return normalized(np.asarray(picture), self.mean, self.std)

    def _unpadded(self, frames: Frames) -> tuple[int, int, int, int]:
        """Where the image lies among the patches of all tiles: top, left, height, width."""
        height, width = frames.size
        lines, columns = frames.rows * self.side, frames.columns * self.side
        if width / height > columns / lines:
            kept = int(round(height * (columns / width), 7))
            edge = (lines - kept) // 2
            return edge, 0, lines - 2 * edge, columns
        kept = int(round(width * (lines / height), 7))
        edge = (columns - kept) // 2
        return 0, edge, lines, columns - 2 * edge

    def _lines(self, height: int, width: int) -> tuple[int, int]:
        """The lines and columns that are left where there are too many."""
        if self.most is None:
            return height, width
        ratio = math.sqrt(height * width / (self.most * self.side**2))
        return (int(height // ratio), int(width // ratio)) if ratio > _SLACK else (height, width)


def _scaled(rows: Rows, count: int, axis: int) -> Rows:
    """So many along an axis, each between its two neighbours."""
    have = rows.shape[axis]
    at = np.maximum((np.arange(count) + 0.5) * (have / count) - 0.5, 0)
    low = at.astype(np.int64)
    high = np.minimum(low + 1, have - 1)
    shape = [-1 if n == axis else 1 for n in range(rows.ndim)]
    part = (at - low).astype(np.float32).reshape(shape)
    made: Rows = np.take(rows, low, axis) * (1 - part) + np.take(rows, high, axis) * part
    return made
