"""Picture to patches: what a vision model sees, and what each of its tokens stands for.

A vision model cuts its picture into square patches and reads them row by row, often behind a
[CLS] token and registers, which stand for no place in the picture (Dosovitskiy et al. 2021;
Darcet et al. 2024).
"""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image, ImageOps
from torch import Tensor

from attnviz.tokens import Tokens, named

if TYPE_CHECKING:
    from transformers import PretrainedConfig

MAX_BYTES = 5_000_000
MAX_PIXELS = 20_000_000
PLAIN_MEAN = PLAIN_DEVIATION = 0.5  # where a model's folder does not say how to scale colours

TOO_MANY_PIXELS = (
    f"This picture has {{}} pixels; at most {MAX_PIXELS / 1e6:.0f} million can be read. "
    "Make it smaller."
)

# A header may promise more pixels than memory holds: as an error, it becomes a sentence.
warnings.simplefilter("error", Image.DecompressionBombWarning)


class UnusablePicture(ValueError):  # noqa: N818 - the picture is the person's, the message too
    """A picture cannot be shown to a model; the message says why and what to do."""


@dataclass(frozen=True)
class Picture:
    """A picture as a model sees it: `pixels` go in, `seen` is the same for the eye.

    `own_processor` is True where the model's folder says how pictures are prepared.
    """

    pixels: Float[Tensor, "1 channel height width"]
    seen: Image.Image
    patch: tuple[int, int]
    own_processor: bool

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        height, width = self.pixels.shape[2:]
        return height // self.patch[0], width // self.patch[1]


def opened(data: bytes) -> Image.Image:
    """Open a PNG or JPEG file; raises `UnusablePicture` if it is none, or too large."""
    if len(data) > MAX_BYTES:
        raise UnusablePicture(
            f"This file has {len(data) / 1e6:.1f} MB; at most {MAX_BYTES / 1e6:.0f} MB can be "
            "read. Make the picture smaller."
        )
    try:
        image = Image.open(io.BytesIO(data), formats=["PNG", "JPEG"])
        if image.width * image.height > MAX_PIXELS:
            raise UnusablePicture(TOO_MANY_PIXELS.format(f"{image.width:,} × {image.height:,}"))
        return _on_white(_in_8_bits(ImageOps.exif_transpose(image)))
    except UnusablePicture:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UnusablePicture(TOO_MANY_PIXELS.format("too many")) from error
    except Exception as error:  # a broken file can be broken in any way
        raise UnusablePicture(
            "This file cannot be read as a PNG or JPEG picture. Save it again, or choose another."
        ) from error


def _in_8_bits(image: Image.Image) -> Image.Image:
    """Grey of 16 bits scaled to 8, which Pillow would clip to white; others as they are."""
    if not image.mode.startswith("I"):
        return image
    grey = np.asarray(image)
    scaled = (grey / 257).round().clip(0, 255).astype(np.uint8)
    clear = image.info.get("transparency", -1)
    return Image.fromarray(np.stack([scaled, np.where(grey == clear, 0, 255)], -1).astype(np.uint8))


def _on_white(image: Image.Image) -> Image.Image:
    """The colours as a page shows them: what is transparent lets white through."""
    if not image.has_transparency_data:
        return image.convert("RGB")
    white = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")


def prepare(image: Image.Image, config: PretrainedConfig, processor: Any = None) -> Picture:
    """Prepare a picture as the model's own processor does, or by its configuration alone.

    Raises `UnusablePicture` if the model takes pictures in another form than one square grid.
    """
    vision = getattr(config, "vision_config", None) or getattr(config, "encoder", None) or config
    patch = _pair(getattr(vision, "patch_size", None))
    if patch is None:
        raise UnusablePicture(
            "This model does not cut its picture into one grid of patches, so its tokens have "
            "no place to be named after. Choose another model."
        )
    pixels, mean, deviation = _processed(image, processor) if processor else _plain(image, vision)
    return Picture(pixels, _seen(pixels, mean, deviation), patch, own_processor=bool(processor))


def patch_tokens(picture: Picture, count: int, registers: int = 0) -> Tokens | None:
    """Name the tokens of a picture: [CLS] and registers first, then r0c0, r0c1, … row by row.

    None if so many tokens do not fit the grid, as where a model looks within windows.
    """
    rows, columns = picture.grid
    others = count - rows * columns
    if not registers <= others <= registers + 2:
        return None
    leading = ["[CLS]", "[DIST]"][: others - registers]  # DeiT's distillation token
    leading += [f"[REG{number}]" for number in range(registers)]
    places = [f"r{row}c{column}" for row in range(rows) for column in range(columns)]
    return named(leading + places, [True] * len(leading) + [False] * len(places))


def _pair(size: Any) -> tuple[int, int] | None:
    """Height and width from one number or two."""
    if isinstance(size, int):
        return size, size
    if isinstance(size, list | tuple) and len(size) == 2:
        return int(size[0]), int(size[1])
    return None


def _processed(image: Image.Image, processor: Any) -> tuple[Tensor, Any, Any]:
    try:
        pixels = processor(images=image, return_tensors="pt")["pixel_values"]
    except Exception as error:  # a processor may want more than a picture
        raise UnusablePicture(
            "The model's own image processor cannot prepare this picture. Try another one."
        ) from error
    if not isinstance(pixels, Tensor) or pixels.dim() != 4 or len(pixels) != 1:
        raise UnusablePicture(
            "This model takes a picture in several parts, which attnviz does not read yet. "
            "Choose another model."
        )
    if not getattr(processor, "do_normalize", True):
        return pixels, 0.0, 1.0
    return pixels, processor.image_mean, processor.image_std


def _plain(image: Image.Image, vision: PretrainedConfig) -> tuple[Tensor, float, float]:
    height, width = _pair(getattr(vision, "image_size", None)) or (224, 224)
    mode = "L" if getattr(vision, "num_channels", 3) == 1 else "RGB"
    resized = image.convert(mode).resize((width, height), Image.Resampling.BICUBIC)
    colours = torch.from_numpy(np.array(resized, dtype=np.float32) / 255)
    pixels = (colours.reshape(height, width, -1).permute(2, 0, 1) - PLAIN_MEAN) / PLAIN_DEVIATION
    return pixels[None], PLAIN_MEAN, PLAIN_DEVIATION


def _seen(pixels: Tensor, mean: Any, deviation: Any) -> Image.Image:
    """The prepared picture with its colours undone: cut and sized as the model sees it."""
    undo = [
        torch.as_tensor(value, dtype=torch.float32).reshape(-1, 1, 1) for value in (deviation, mean)
    ]
    colours = (pixels[0] * undo[0] + undo[1]).clamp(0, 1).expand(3, -1, -1)
    return Image.fromarray((colours.permute(1, 2, 0).numpy() * 255).round().astype(np.uint8))
