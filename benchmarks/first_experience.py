"""Why TPC is slow to start from scratch: its first experience with one setting changed at a time.

    python benchmarks/first_experience.py --data DIR --out FILE.jsonl      # DIR holds cifar-100-binary/; 25 minutes

ResNet-32 from random weights on 20 classes of CIFAR-100 (class order 0), 200 images a class, 16 x 16 pixels, one
thread; the recipe of cifar100-11 with 10 epochs in place of 200 and a constant rate. After every epoch it measures
the accuracy on the test images of these classes, the head's rows (their standard deviation over s) and the size of
the features. A setting that is in the file already is not run again.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from triphase import TPC, FineTune, Memory, Recipe
from triphase.bench.datasets import class_order, load
from triphase.data.images import Images, select_classes, subsample
from triphase.data.streams import Experience, class_incremental
from triphase.learners.protocol import Step
from triphase.learners.training import eval_mode
from triphase.models import SplitClassifier, build

N_CLASSES, PER_CLASS, SIZE, EPOCHS = 20, 200, 16, 10


@dataclass(frozen=True)
class Setting:
    """One row of the table."""

    name: str
    learner: type[TPC] | type[FineTune] = TPC
    options: dict[str, Any] = field(default_factory=dict)
    recipe: dict[str, Any] = field(default_factory=dict)
    memory: bool = True
    seed: int = 0


SETTINGS = (
    Setting("plain cross-entropy", FineTune, memory=False),
    Setting("TPC"),
    Setting("TPC without L_BC, Eq. 9 at the end", options={"bc": "final_only"}),
    Setting("TPC, s = 0.1", options={"s": 0.1}),
    Setting("TPC, s = 0.2", options={"s": 0.2}),
    Setting("TPC, w_bc = 0.5", options={"w_bc": 0.5}),
    Setting("TPC, explicit normalisation at each step", options={"bc": "explicit"}),
    Setting("TPC, no Phase III", options={"share_3": 0.0}),
    Setting("TPC, no Phases I and III", options={"share_1": 0.0, "share_3": 0.0}),
    Setting("TPC, momentum kept across phases", options={"reset_momentum": "never"}),
    Setting("TPC, eps = 1e-2", options={"eps": 1e-2}),
    Setting("TPC, mean of Eq. 10 over 100 classes", options={"bc_scope": "all"}),
    Setting("TPC, rate 0.3 below the head", recipe={"csf_lr": 0.3}),
    Setting("TPC, rate 0.03", recipe={"lr": 0.03}),
    Setting("TPC, eps = 0.1", options={"eps": 0.1}),
    Setting("TPC, eps = 1e-2, mean over 100 classes", options={"eps": 1e-2, "bc_scope": "all"}),
)
REPEATED = ("plain cross-entropy", "TPC", "TPC, eps = 1e-2", "TPC, mean of Eq. 10 over 100 classes")
SEEDS = [replace(s, name=f"{s.name}, seed {i}", seed=i) for i in (1, 2) for s in SETTINGS if s.name in REPEATED]


def measure(model: SplitClassifier, test: Images) -> dict[str, float]:
    """Accuracy on the test images, and the size of what makes the logits."""
    with eval_mode(model), torch.no_grad():
        parts = [model.features(model.encode(test.read(rows))) for rows in torch.arange(len(test)).split(500)]
        f, W = torch.cat(parts), model.head.weight[:N_CLASSES]
        logits = f @ W.T
        right = logits.argmax(1) == test.labels
        return {
            "accuracy": round(100 * float(right.float().mean()), 2),
            "row_std": round(float(W.std(1, correction=0).mean()), 4),
            "feature_std": round(float(f.std(1, correction=0).mean()), 4),
            "logit_std": round(float(logits.std(1, correction=0).mean()), 4),
        }


def train(setting: Setting, experience: Experience, test: Images) -> dict[str, Any]:
    """Learn the experience; what was measured after each epoch."""
    model = build("resnet32", 100, image_size=SIZE, channels=3, seed=setting.seed)
    memory = Memory(2000 * N_CLASSES // 50, seed=setting.seed) if setting.memory else None
    learner = setting.learner(model, memory, pretrained=False, seed=setting.seed, **setting.options)
    recipe: dict[str, Any] = {
        "epochs": EPOCHS,
        "lr": 0.1,
        "n_mbe": 128,
        "weight_decay": 2e-4,
        "augment": "crop+flip",
    }
    epochs: list[dict[str, Any]] = []

    def tick(step: Step) -> None:
        if step.step == step.steps:
            epochs.append({"phase": step.phase, **measure(model, test)})
            model.train()

    started = time.process_time()
    learner.learn(experience, Recipe(**(recipe | setting.recipe)), tick)
    end = measure(model, test)
    return {"name": setting.name, "end": end, "epochs": epochs, "seconds": round(time.process_time() - started)}


def main() -> None:
    """Run what is left, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="directory that holds cifar-100-binary/")
    parser.add_argument("--out", type=Path, required=True, help="results, one line each")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    train_images, test, names = load("cifar100", arguments.data, SIZE, False)
    order = class_order("cifar100", len(names), 0)
    chosen = [select_classes(images, order[:N_CLASSES]) for images in (train_images, test)]
    source = class_incremental(subsample(chosen[0], PER_CLASS), chosen[1], names, first=N_CLASSES, then=1)
    done = [json.loads(line) for line in arguments.out.read_text().splitlines()] if arguments.out.exists() else []
    for setting in (*SETTINGS, *SEEDS):
        if setting.name not in [result["name"] for result in done]:
            done.append(train(setting, source.experiences[0], source.test))
            with arguments.out.open("a") as file:
                file.write(json.dumps(done[-1]) + "\n")
    print(
        "| | accuracy after 2, 4, 6, 8 epochs | at the end | logits, std | features, std |\n|---|---|---|---|---|"
    )
    for result in done:
        course = ", ".join(f"{result['epochs'][i - 1]['accuracy']:.1f}" for i in (2, 4, 6, 8))
        end = result["end"]
        sizes = f"{end['logit_std']:.2f} | {end['feature_std']:.2f}"
        print(f"| {result['name']} | {course} | {end['accuracy']:.1f} | {sizes} |")


if __name__ == "__main__":
    main()
