"""A predictor answers as the model does, from any number of threads, and changes nothing."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor

from triphase.app.model import Model
from triphase.app.predictor import Predictor, inference_parts, predict_files
from triphase.app.store.versions import Store
from triphase.data.images import Images, decode
from triphase.errors import CorruptState
from triphase.models.inference import ensemble_state
