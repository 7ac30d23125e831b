"""A model as one ONNX file: pixels in; probabilities, class and unknown flag out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

import torch
from onnx import ModelProto, helper
from onnx.checker import ValidationError

from triphase import state
from triphase.app import quantization
from triphase.app.answer_graph import answer_graph
from triphase.app.export_check import Parity, check_latents, check_pixels, run_latents, run_pixels
from triphase.app.export_samples import Samples, photo_samples, stored_samples
from triphase.app.predictor import PARTS, Predictor
from triphase.app.store.versions import Store
from triphase.data.decoding import DRAFT
from triphase.errors import BadData, InvalidValue, Mismatch
from triphase.events import OnEvent, ignore_event
from triphase.image_size import scaling_of
from triphase.onnx_session import open_session

SUFFIX = ".onnx"


@dataclass(frozen=True)
class Exported:
    """A file that was written, and how it was checked."""

    file: str
    bytes: int
    version: int  # of the model
    classes: tuple[str, ...]
    image_size: int
    checked_on: str  # "photos", "stored photos" or "generated images"
    parity: Parity  # of the whole graph
    latents: Parity | None  # of what follows llf, on stored latents
    quantization: quantization.QuantizationLoss | None
    skipped: tuple[str, ...]  # a sentence for each photo that cannot be read


def export(
    model: Path | str,
    out: Path | str,
    *,
    photos: Path | str | None = None,
    quantize: bool = False,
    skip_bad: bool = False,
    on_event: OnEvent = ignore_event,
    device: str | torch.device = "cpu",
) -> Exported:
    """Write the version in use as an ONNX file, after checking that it answers like the model.

    Answers are compared on `photos`, a folder; without it on the photos that the model stores, or on generated
    images and stored latents. The model answers on `device`, the file on the CPU.
    `quantize` computes the network in 8-bit integers, calibrated on the same photos.
    `on_event` gets {"event": "decode", "done": n, "total": n} and {"event": "stage", "name": ...}.
    """
    store, out = Store(model), Path(out)
    _check_target(out, store.path)
    parts, version = store.load(parts=PARTS if photos is not None else (*PARTS, "memory"))
    if quantize and photos is None and version.info["replay"] != "raw":
        raise BadData(
            "8-bit integers are calibrated on photos, and this model stores no pixels: give a folder with --photos."
        )
    predictor = Predictor(parts, device, torch.get_num_threads())
    if photos is None:
        samples = stored_samples(parts.get("memory"), predictor.size)
    else:
        samples = photo_samples(Path(photos), predictor.names, predictor.size, skip_bad=skip_bad, on_event=on_event)
    on_event({"event": "stage", "name": "Exporting"})
    graph, parity, latents = _checked_graph(parts, predictor, samples, on_event)
    loss = None
    if quantize:
        on_event({"event": "stage", "name": "Calibrating 8-bit integers"})
        graph, loss = quantization.quantize(graph, samples)
    describe_(graph, predictor, version.number, "int8" if quantize else "float32")
    content = graph.SerializeToString()
    state.write(out, content)
    return Exported(
        file=str(out),
        bytes=len(content),
        version=version.number,
        classes=predictor.names,
        image_size=predictor.size,
        checked_on=samples.kind,
        parity=parity,
        latents=latents,
        quantization=loss,
        skipped=samples.skipped,
    )


def describe_(graph: ModelProto, predictor: Predictor, version: int, precision: str) -> None:
    """Write the metadata that a program needs into a graph, in place."""
    preprocessing = {
        "size": predictor.size,
        "layout": "NHWC",
        "dtype": "uint8",
        "channels": "RGB",
        "range": [0, 255],
        "orientation": "as EXIF says",
        "background": "white",
        **_fit(predictor.size),
    }
    about = {
        "classes": json.dumps(predictor.names),
        "preprocessing": json.dumps(preprocessing),
        "precision": precision,
        "model_version": str(version),
        "triphase_version": installed_version("triphase"),
    }
    graph.producer_version = about["triphase_version"]
    helper.set_model_props(graph, about)


def _fit(size: int) -> dict[str, Any]:
    """How a photo becomes a square of this size; "jpeg_draft" is the least side at which a JPEG is decoded."""
    scaling = scaling_of(size)
    if scaling is None:
        return {"fit": "cover, then crop the centre", "resample": "bicubic", "jpeg_draft": max(DRAFT, size)}
    own = {"crop_pct": scaling.crop_pct, "crop_mode": scaling.crop_mode, "fill": list(scaling.fill)}
    return {"fit": "as timm does for evaluation", "resample": scaling.interpolation, "jpeg_draft": None, **own}


def _check_target(out: Path, model: Path) -> None:
    """Refuse a file that cannot be written, or should not be."""
    if out.suffix.lower() != SUFFIX:
        raise InvalidValue(f"{out} does not end in {SUFFIX}; give the file to write, such as {out.stem}{SUFFIX}.")
    if out.exists() and not out.is_file():
        raise InvalidValue(f"{out} is no file; give another name for the file to write.")
    if model.resolve() in out.resolve().parents:
        raise InvalidValue(
            f"{out} lies in the folder of the model, which holds only what belongs to it; write elsewhere."
        )


def _checked_graph(
    parts: Mapping[str, Any], predictor: Predictor, samples: Samples, on_event: OnEvent
) -> tuple[ModelProto, Parity, Parity | None]:
    """The graph of inference parts, checked to answer as their predictor does."""
    try:
        graph = answer_graph(parts)
        whole = run_pixels(open_session(graph.SerializeToString(), torch.get_num_threads()))
        tail = None
        if len(samples.latents):
            content = answer_graph(parts, "latents").SerializeToString()
            tail = run_latents(open_session(content, torch.get_num_threads()))
    except (RuntimeError, ValueError, ValidationError) as error:
        raise Mismatch(f"This model cannot be written as ONNX ({error}).") from error
    on_event({"event": "stage", "name": "Comparing its answers with the model's"})
    parity = check_pixels(predictor, whole, samples.pixels)
    return graph, parity, None if tail is None else check_latents(predictor, tail, samples.latents)
