"""TPC on a from-scratch benchmark, going on from the first experience as its rivals learned it.

    python benchmarks/same_start.py --data DIR --first runs/stream1/cifar100-11/first-order0

TPC learns the first experience in its own way, with the rows of its head held to one size, and so, in few epochs,
less of it than plain cross-entropy does. Here it takes over the weights that a sweep trained for all others, with
the head's rows at its own size (Eq. 9), so that what is compared is what comes after. Prints one JSON document.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file

from triphase import TPC
from triphase.bench.benchmarks import find
from triphase.bench.run.options import RunOptions
from triphase.bench.run.setup import prepare
from triphase.data.batches import Batches
from triphase.data.feature_cache import latents, unpack
from triphase.learners.training import set_trainable
from triphase.maths.bias import normalize_


def main() -> None:
    """Take over, go on, evaluate after each experience."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="directory that holds cifar-100-binary/")
    parser.add_argument("--first", type=Path, required=True, help="run of the first experience in a sweep")
    parser.add_argument("--benchmark", default="cifar100-11")
    parser.add_argument("--epochs-scale", type=float, default=0.03)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    options = RunOptions(learner="tpc", lr=arguments.lr, epochs_scale=arguments.epochs_scale)
    setup = prepare(find(arguments.benchmark), options, arguments.data)
    learner, stream = setup.learner, setup.stream
    assert isinstance(learner, TPC) and learner.memory is not None
    weights = load_file(arguments.first / "weights.safetensors")
    learner.model.load_state_dict({name.strip("/").replace("/", "."): part for name, part in weights.items()})
    begun, *others = stream.experiences
    learner.known = set(begun.classes)
    normalize_(learner.model.head.weight, frozenset(learner.known), learner.s)
    set_trainable(learner.model, llf=False, csf=True)
    Batches(learner.model, begun, learner.memory, replace(setup.first, epochs=0), seed=learner.seed).update_memory()

    z, y = latents(learner.model, stream.test), stream.test.labels
    accuracy = []
    for experience in (begun, *others):
        if experience is not begun:
            learner.learn(experience, setup.rest)
        rows = (y < stream.n_seen[experience.index - 1]).nonzero().view(-1)
        guess = torch.cat([learner.logits(unpack(z[some])).argmax(1) for some in rows.split(500)])
        accuracy.append(100 * float((guess == y[rows]).float().mean()))
    document = {"amca": sum(accuracy) / len(accuracy), "final": accuracy[-1], "accuracy": accuracy}
    print(json.dumps(document))


if __name__ == "__main__":
    main()
