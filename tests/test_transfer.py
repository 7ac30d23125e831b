"""Copies to CUDA run beside the computation; without a GPU, only their order can be seen."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from triphase.data.transfer import Upload


def test_a_copy_to_cuda_is_made_from_pinned_memory_in_a_stream_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []
    computing = SimpleNamespace(wait_stream=lambda other: done.append(("computing waits for", other)))
    there = SimpleNamespace(record_stream=lambda stream: done.append(("read by", stream)))

    def copy(device: torch.device, **how: Any) -> object:
        done.append(("copy", how))
        return there

    pinned = SimpleNamespace(to=copy)
    host: Any = SimpleNamespace(pin_memory=lambda: pinned)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: "copies")
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext() if stream == "copies" else None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: computing)
    found: Any = Upload(torch.device("cuda"))(host)
    assert found is there
    order = [
        ("copy", {"non_blocking": True}),
        ("computing waits for", "copies"),
        ("read by", computing),
    ]
    assert done == order


def test_elsewhere_a_tensor_stays_or_is_copied_plainly() -> None:
    upload, x = Upload(torch.device("cpu")), torch.rand(3)
    assert upload(x) is x and upload.pinned(x) is x and upload.empty((2, 3)).shape == (2, 3)
    assert Upload(torch.device("meta"))(x).device.type == "meta"
