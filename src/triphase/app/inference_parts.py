"""The parts of a version that answers come from."""

from __future__ import annotations

import math
from typing import Any

from triphase.app.model import Model
from triphase.app.refit import inference_with_held_out
from triphase.image_size import size_state
from triphase.models.inference import ensemble_state


def inference_parts(model: Model) -> dict[str, Any]:
    """What a predictor needs of a model, one entry for each part that can change alone."""
    state, calibration = ensemble_state(inference_with_held_out(model)), model.calibration
    csfs = {f"inference_csf_{i}": member.pop("csf") for i, member in enumerate(state["members"])}
    return {
        "inference": {
            "backbone": model.options.backbone,
            **size_state(model.size),
            "names": list(model.names),
            "temperature": calibration.temperature,
            "thresholds": [t if t > -math.inf else None for t in calibration.thresholds],
        },
        "inference_llf": dict(model.llf.state_dict()),
        "inference_scores": state,
        **csfs,
    }
