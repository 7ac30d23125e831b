"""Files of pre-trained weights that benchmarks look for in the data folder."""

import warnings
from pathlib import Path

from triphase.data.sources.integrity import Count, DatasetInfo, Integrity
from triphase.errors import BadData, TriphaseWarning
from triphase.models import build

WEIGHTS = {
    info.name: info
    for info in (
        DatasetInfo(
            "mobilenet_v1_folded.safetensors",
            "MobileNetV1 1.0, trained on ImageNet",
            "made from a public checkpoint such as TensorFlow's MobileNet_v1_1.0_224, "
            "https://github.com/tensorflow/models/blob/master/research/slim/nets/mobilenet_v1.md",
            "this file: conv0.weight, conv0.bias and the same of dw1, pw1 to dw13, pw13 with batch normalisation "
            "folded into them, for RGB in -1 to 1, padded at right and bottom",
        ),
        DatasetInfo(
            "resnet18_places365.pth.tar",
            "ResNet-18, trained on Places365",
            "the Places365 models of MIT CSAIL, https://github.com/CSAILVision/places365, as "
            "http://places2.csail.mit.edu/models_places365/resnet18_places365.pth.tar",
            "the file as downloaded",
        ),
    )
}


def check_weights(data: Path, name: str, backbone: str) -> Integrity:
    """Whether the file is there and fills the backbone, tensor by tensor."""
    path = data / name
    if not path.is_file():
        without = "Without it, benchmarks start from random weights unless --weights names another file."
        return Integrity(WEIGHTS[name], (Count("files", 0, 1),), (without,))
    problems = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TriphaseWarning)  # layers that stay random are the benchmark's choice
            build(backbone, weights=path)
    except BadData as error:
        problems = [f"{error} Get it again."]
    return Integrity(WEIGHTS[name], (Count("files", 1, 1),), tuple(problems))
