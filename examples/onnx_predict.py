"""Ask a model that `triphase export` wrote, with onnxruntime, Pillow and numpy alone.

python onnx_predict.py model.onnx photo.jpg ...
"""

import json
import sys
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from PIL import Image, ImageOps


def prepare(path: str, how: dict[str, Any]) -> NDArray[np.uint8]:
    """A photo as uint8 (size, size, 3): upright, on white, scaled and cropped as the file says."""
    with Image.open(path) as image:
        if how["jpeg_draft"]:
            image.draft("RGB", (how["jpeg_draft"],) * 2)  # decodes a large JPEG at a fraction of its size
        photo = eight_bits(ImageOps.exif_transpose(image), path)
    photo = photo.convert("RGBA" if photo.has_transparency_data else "RGB")
    resample = Image.Resampling[how["resample"].upper()]
    if "crop_pct" not in how:
        return np.asarray(on_white(ImageOps.fit(photo, (how["size"],) * 2, resample)))
    scaled = on_white(photo.resize(scaled_size(*photo.size, how), resample))
    square = Image.new("RGB", (how["size"],) * 2, tuple(how["fill"]))
    square.paste(scaled, (offset(scaled.width, how["size"]), offset(scaled.height, how["size"])))
    return np.asarray(square)


def eight_bits(photo: Image.Image, path: str) -> Image.Image:
    """A photo with 8 bits per channel: Pillow would cut 16-bit grey off at 255."""
    if photo.mode == "F":
        sys.exit(f"{path} has floating point pixels, which have no defined white: save it with 8 bits per channel")
    if not photo.mode.startswith("I"):
        return photo
    deep = np.clip(np.asarray(photo).astype(np.int32), 0, 65535)
    return Image.fromarray(((deep + 128) // 257).astype(np.uint8))


def on_white(photo: Image.Image) -> Image.Image:
    """A photo in RGB, on white where it is transparent."""
    if photo.mode == "RGBA":
        photo = Image.alpha_composite(Image.new("RGBA", photo.size, "white"), photo)
    return photo.convert("RGB")


def scaled_size(width: int, height: int, how: dict[str, Any]) -> tuple[int, int]:
    """Width and height to which a network of timm has a photo scaled before it is cropped."""
    side = int(how["size"] / how["crop_pct"])
    if how["crop_mode"] == "squash":
        return side, side
    if how["crop_mode"] == "border":
        ratio = max(width, height) / side
        return max(1, round(width / ratio)), max(1, round(height / ratio))
    short = min(width, height)
    return int(side * width / short), int(side * height / short)


def offset(length: int, size: int) -> int:
    """Where a photo begins in a square, along one side."""
    return (size - length) // 2 if length < size else -round((length - size) / 2)


def main(model: str, photos: list[str]) -> None:
    """Print what the model says about each photo."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    about = session.get_modelmeta().custom_metadata_map
    names, how = json.loads(about["classes"]), json.loads(about["preprocessing"])
    for path in photos:
        try:
            pixels = prepare(path, how)[None]  # any number of photos may be stacked
        except OSError as error:
            sys.exit(f"{path} cannot be read as an image: {error}")
        probabilities, labels, unknown = session.run(["probabilities", "class", "unknown"], {"pixels": pixels})
        best, share = names[labels[0]], f"{probabilities[0, labels[0]]:.1%}"
        print(f"{path}: unknown (best guess: {best}, {share})" if unknown[0] else f"{path}: {best} ({share})")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python onnx_predict.py model.onnx photo.jpg ...")
    main(sys.argv[1], sys.argv[2:])
