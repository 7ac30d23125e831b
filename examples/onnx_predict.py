"""Ask a model that `triphase export` wrote, with onnxruntime, Pillow and numpy alone.

python onnx_predict.py model.onnx photo.jpg ...
"""

import json
import sys

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from PIL import Image, ImageOps


def prepare(path: str, size: int, jpeg_draft: int) -> NDArray[np.uint8]:
    """A photo as uint8 (size, size, 3): upright, on white, scaled to cover the square, its centre cropped."""
    with Image.open(path) as image:
        image.draft("RGB", (jpeg_draft, jpeg_draft))  # decodes a large JPEG at a fraction of its size
        photo = ImageOps.exif_transpose(image)
    photo = photo.convert("RGBA" if photo.has_transparency_data else "RGB")
    photo = ImageOps.fit(photo, (size, size), Image.Resampling.BICUBIC)
    if photo.mode == "RGBA":
        photo = Image.alpha_composite(Image.new("RGBA", photo.size, "white"), photo)
    return np.asarray(photo.convert("RGB"))


def main(model: str, photos: list[str]) -> None:
    """Print what the model says about each photo."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    about = session.get_modelmeta().custom_metadata_map
    names, how = json.loads(about["classes"]), json.loads(about["preprocessing"])
    for path in photos:
        pixels = prepare(path, how["size"], how["jpeg_draft"])[None]  # any number of photos may be stacked
        probabilities, labels, unknown = session.run(["probabilities", "class", "unknown"], {"pixels": pixels})
        best, share = names[labels[0]], f"{probabilities[0, labels[0]]:.1%}"
        print(f"{path}: unknown (best guess: {best}, {share})" if unknown[0] else f"{path}: {best} ({share})")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python onnx_predict.py model.onnx photo.jpg ...")
    main(sys.argv[1], sys.argv[2:])
