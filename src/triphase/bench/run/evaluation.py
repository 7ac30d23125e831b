"""Evaluation of a learner on the test images of a stream."""

from __future__ import annotations

import torch
from torch import Tensor

from triphase.bench import metrics
from triphase.bench.run.results import Report
from triphase.data.feature_cache import latents, unpack
from triphase.data.images import Images
from triphase.data.streams import Stream
from triphase.errors import BadData
from triphase.learners.protocol import Learner
from triphase.learners.training import eval_mode

BATCH = 256


class TestImages:
    """Test images; their latents are computed once for as long as llf does not change."""

    __test__ = False  # for pytest: no test class

    def __init__(self, learner: Learner, images: Images) -> None:
        self.model, self.context, self.images = learner.model, learner.context, images
        self._key: list[tuple[int, int]] = []
        self._z = torch.empty(0)

    def predict(self, learner: Learner, n_classes: int) -> tuple[Tensor, Tensor]:
        """Predicted and true classes of the test images that belong to the first n classes.

        An image whose scores are no numbers, as those of a network that diverged in float16, is predicted as -1.
        """
        key = [(p.data_ptr(), p._version) for p in self.model.llf.state_dict().values()]
        if key != self._key or len(self._z) == 0:
            with eval_mode(self.model):
                self._z = latents(self.model, self.images, context=self.context)
            self._key = key
        rows = (self.images.labels < n_classes).nonzero().view(-1)
        batches = list(zip(rows.split(BATCH), (predicted := torch.zeros_like(rows)).split(BATCH), strict=True))
        for some, out in batches[self.context.processes.shard()]:  # each process has its share of them
            scores = learner.logits(unpack(self._z[some]))
            out.copy_(scores.argmax(1).masked_fill(scores.isnan().any(1), -1))
        return self.context.processes.sum_(predicted), self.images.labels[rows]


def evaluate(learner: Learner, test: TestImages, stream: Stream, index: int, report: Report) -> Tensor | None:
    """Add an evaluation after experience `index` to the report; returns the confusion matrix.

    Where scores are no numbers, nothing is added and None is returned.
    """
    n_seen = stream.n_seen[index - 1]
    n_classes = max(len(stream.names), learner.model.n_classes)
    predicted, y = test.predict(learner, n_classes if stream.evaluation == "all" else n_seen)
    if bool((predicted < 0).any()):
        return None
    row = metrics.class_accuracy(predicted, y, n_classes)
    confusion = metrics.confusion(predicted, y, n_classes)
    report.accuracy.append([None if v != v else v for v in row.tolist()])
    report.confusion = confusion.tolist()
    report.evaluated_after.append(index)
    report.n_seen.append(n_seen)
    return confusion


def check_test_images(stream: Stream) -> None:
    """Refuse a stream without test images for its first evaluation."""
    tested, index = stream.test.labels, stream.evaluate_after[0]
    if len(tested) == 0 or (stream.evaluation == "seen" and int(tested.min()) >= stream.n_seen[index - 1]):
        raise BadData(f"There is no test image of the classes that have been seen after experience {index}.")
