"""ContinualClassifier: scikit-learn's manners, any kind of picture, names that stay."""

import copy
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import check_array

from lessons import flat
from triphase import ContinualClassifier
from triphase.app import classifier as classifier_module
from triphase.app import learning, removal
from triphase.app.inference_parts import inference_parts
from triphase.app.manage import forget, rename
from triphase.app.model import Model
from triphase.app.pictures import as_images
from triphase.app.plan import KEEP, LessonSettings
from triphase.app.predictor import Predictor
from triphase.app.store.versions import Store
from triphase.app.teach import teach
from triphase.errors import BadData, Busy, InvalidValue, Mismatch, TriphaseError, TriphaseWarning

SMALL: dict[str, Any] = {"backbone": "small_cnn", "image_size": 16, "memory": 60}


def pictures(classes: list[int], n: int = 12, side: int = 32, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Noise around a mean picture of each class, four by four patches of colour, uint8 NHWC."""
    noise = np.random.default_rng([seed, *classes])
    patches = [np.random.default_rng(c).uniform(0, 255, (4, 4, 3)) for c in classes]
    means = [patch.repeat(side // 4, 0).repeat(side // 4, 1) for patch in patches]
    x = np.concatenate([noise.normal(mean, 25, (n, side, side, 3)) for mean in means])
    return x.clip(0, 255).astype(np.uint8), np.repeat(classes, n)


@pytest.fixture(scope="module")
def fitted() -> ContinualClassifier:
    """Two lessons: three classes, then a new one and more of an old one."""
    classifier = ContinualClassifier(**SMALL)
    classifier.partial_fit(*pictures([5, 3, 9]))
    return classifier.partial_fit(*pictures([7, 3], seed=1))


def test_it_learns_labels_that_it_never_saw_and_keeps_the_old_ones(fitted: ContinualClassifier) -> None:
    assert fitted.classes_.tolist() == [5, 3, 9, 7] and fitted.n_lessons_ == 2  # order of arrival
    x, y = pictures([5, 3, 9, 7], seed=2)
    assert fitted.score(x, y) > 0.8
    probabilities = fitted.predict_proba(x)
    assert probabilities.shape == (48, 4)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)
    assert (fitted.classes_[probabilities.argmax(1)] == fitted.predict(x)).all()


@pytest.mark.slow
def test_unlike_anything_taught_is_unknown() -> None:
    classifier = ContinualClassifier(image_size=32, memory=200).fit(*pictures([5, 3, 9, 7], n=40))
    answers = classifier.predict(pictures([5, 3, 9, 7], n=25, seed=3)[0], unknown=True)
    assert (answers == "unknown").mean() < 0.2 and set(answers) <= {5, 3, 9, 7, "unknown"}
    noise = np.random.default_rng(0).integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
    assert (classifier.predict(noise, unknown=True) == "unknown").mean() > 0.8
    assert "unknown" not in classifier.predict(noise)


def test_save_keeps_the_versions_asked_for(fitted: ContinualClassifier, tmp_path: Path) -> None:
    classifier = copy.deepcopy(fitted)
    for _ in range(3):
        classifier.save(tmp_path / "model", keep=2)
    assert Store(tmp_path / "model").version_numbers() == [2, 3]


def test_saved_and_loaded_it_is_the_same_and_learns_on_alike(fitted: ContinualClassifier, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    loaded = ContinualClassifier.load(tmp_path / "model")
    x, _ = pictures([5, 3, 9, 7], seed=2)
    assert loaded.get_params() == fitted.get_params()
    assert loaded.classes_.tolist() == [5, 3, 9, 7]
    np.testing.assert_array_equal(loaded.predict_proba(x), fitted.predict_proba(x))
    files = {path.suffix or path.name for path in (tmp_path / "model").rglob("*") if path.is_file()}
    assert files <= {".safetensors", ".json", ".jsonl", "CURRENT", "LOCK"}
    again = ContinualClassifier.load(tmp_path / "model")
    more = pictures([11, 5], seed=4)
    np.testing.assert_array_equal(
        again.partial_fit(*more).predict_proba(x), loaded.partial_fit(*more).predict_proba(x)
    )


def test_saving_never_covers_what_others_have_done_unless_told_to(
    fitted: ContinualClassifier, tmp_path: Path
) -> None:
    place = tmp_path / "model"
    fitted.save(place, force=True)
    one, other = (ContinualClassifier.load(place) for _ in range(2))
    one.save(place)
    one.save(place)  # its own version lies there
    for stale in (other, ContinualClassifier.load(place).fit(*pictures([0, 1], n=6))):
        with pytest.raises(Mismatch, match="holds version 3, which this model does not go on from"):
            stale.save(place)
    assert Store(place).version_numbers() == [1, 2, 3]
    forget(place, "9", everywhere=True)  # the version keeps its number
    with pytest.raises(Mismatch, match="save over it with force=True"):
        one.save(place)
    one.save(place, force=True)
    assert ContinualClassifier.load(place).classes_.tolist() == [5, 3, 9, 7]
    place.rename(tmp_path / "moved")
    one.save(tmp_path / "moved")


def test_saving_keeps_no_more_versions_than_lessons_do(fitted: ContinualClassifier, tmp_path: Path) -> None:
    for _ in range(KEEP + 2):
        fitted.save(tmp_path / "model", force=True)
    assert Store(tmp_path / "model").version_numbers() == list(range(3, KEEP + 3))


def test_a_place_without_a_model_and_a_model_without_a_lesson_say_so(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="holds no model"):
        ContinualClassifier.load(tmp_path)
    with pytest.raises(NotFittedError, match="learned nothing yet"):
        ContinualClassifier().predict(pictures([0])[0])


def test_pictures_of_every_kind_are_the_same_picture(tmp_path: Path) -> None:
    x, y = pictures([0, 1], n=10)
    paths = []
    for i, pixels in enumerate(x):
        Image.fromarray(pixels).save(tmp_path / f"{i}.png")
        paths.append(tmp_path / f"{i}.png")
    classifier = ContinualClassifier(**(SMALL | {"image_size": 32})).fit(x, y)
    expected = classifier.predict_proba(x)
    kinds: list[Any] = [
        paths,
        [str(path) for path in paths],
        [Image.open(path) for path in paths],
        list(x),
        x.transpose(0, 3, 1, 2),
    ]
    for kind in kinds:
        np.testing.assert_allclose(classifier.predict_proba(kind), expected, atol=1e-4)


def test_grey_pictures_and_other_sizes_are_taken() -> None:
    classifier = ContinualClassifier(**SMALL).fit(*pictures([0, 1], n=8))
    grey = np.random.default_rng(0).integers(0, 256, (3, 20, 30), dtype=np.uint8)
    for some in (grey, grey[..., None], grey[:, None], [grey[0], grey[1][:10], grey[2][:, :7]]):
        assert classifier.predict_proba(some).shape == (3, 2)
    assert classifier.predict_proba(grey[:0]).shape == (0, 2)


@pytest.mark.parametrize(
    ("x", "y", "complaint"),
    [
        (np.zeros((2, 8, 8, 3), np.float32), [0, 1], "must be uint8"),
        (np.zeros((2, 8), np.uint8), [0, 1], "put it in a list"),
        (np.zeros((2, 8, 8, 4), np.uint8), [0, 1], "1 or 3 channels"),
        (np.zeros((2, 8, 8, 3), np.uint8), [0], "2 images and 1 labels"),
        (np.zeros((0, 8, 8, 3), np.uint8), [], "no image to learn from"),
        (np.zeros((2, 8, 8, 3), np.uint8), [0, "a"], "all strings or all whole numbers"),
        (np.zeros((2, 8, 8, 3), np.uint8), [0.5, 1.5], "all strings or all whole numbers"),
        (np.zeros((2, 8, 8, 3), np.uint8), ["ｕｎｋｎｏｗｎ", "a"], "unlike any class"),
        (np.zeros((2, 8, 8, 3), np.uint8), ["", "a"], "A class cannot be called ''"),
        (np.zeros((2, 8, 8, 3), np.uint8), ["b", "a"], "are the same with labels b and a"),
        (["/nowhere/x.png"], ["a"], "There is no file /nowhere/x.png"),
        ([3, 4], ["a", "b"], "a path, a PIL image or a uint8 array"),
        (3, ["a", "b"], "Give a list of paths"),
    ],
)
def test_bad_input_gets_a_sentence_and_changes_nothing(x: Any, y: Any, complaint: str) -> None:
    classifier = ContinualClassifier(**SMALL)
    with pytest.raises(TriphaseError, match=complaint):
        classifier.fit(x, y)
    assert not hasattr(classifier, "model_")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"memory": "much"}, "number of samples"),
        ({"memory": 0}, "number of samples"),
        ({"memory": 10**400}, "memory is at most"),
        ({"image_size": 1025}, "1 to 1024 pixels"),
        ({"replay": "some"}, "replay is"),
        ({"learner": "ranpac"}, "take slda"),
        ({"learner": "bic"}, "No learner is called"),
        ({"backbone": "vgg"}, "No backbone is called"),
        ({"memory": "10B"}, "number of samples"),
        ({"backbone": None}, "backbone is the name of a network"),
        ({"device": 3}, "device is a name"),
        ({"seed": None}, "seed must be a whole number, got None"),
    ],
)
def test_options_are_checked_when_learning_begins(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidValue, match=complaint):
        ContinualClassifier(**(SMALL | options)).fit(*pictures([0, 1], n=4))


@pytest.mark.parametrize(
    "options", [{"replay": "raw"}, {"replay": "none"}, {"learner": "slda"}, {"learner": "tpc"}]
)
def test_every_way_of_remembering_learns(options: dict[str, Any]) -> None:
    classifier = ContinualClassifier(**(SMALL | options))
    classifier.partial_fit(*pictures([0, 1])).partial_fit(*pictures([2]))
    assert classifier.score(*pictures([0, 1, 2], seed=5)) > 0.6
    memory = classifier.model_.memory
    assert (memory is None) == (options.get("replay") == "none")
    if options.get("replay") == "raw":
        assert memory is not None and "x" in memory.columns and "z" not in memory.columns


def test_images_that_come_back_are_recognised_and_corrections_are_learned() -> None:
    x, y = pictures([0, 1], n=10)
    classifier = ContinualClassifier(**SMALL).fit(x, y)
    taught = dict(classifier.model_.taught)
    classifier.partial_fit(x, y)
    assert classifier.n_lessons_ == 1 and classifier.model_.taught == taught
    corrected = y.copy()
    corrected[0] = 1
    classifier.partial_fit(x, corrected)
    assert classifier.n_lessons_ == 2
    changed = [id_ for id_, label in classifier.model_.taught.items() if label != taught[id_]]
    assert len(changed) == 1
    classifier.partial_fit(np.stack([x[0], x[0]]), [0, 0])  # corrected back, given twice
    assert classifier.model_.taught == taught
    classifier.partial_fit(x, corrected)
    memory = classifier.model_.memory
    assert memory is not None and memory["y"][memory["id"] == changed[0]].tolist() in ([1], [])


def test_strings_stay_strings_and_kinds_do_not_mix() -> None:
    x, y = pictures([0, 1], n=6)
    classifier = ContinualClassifier(**SMALL).fit(x, np.array(["cat", "dog"])[y])
    assert classifier.classes_.tolist() == ["cat", "dog"]
    assert set(classifier.predict(x)) <= {"cat", "dog"}
    with pytest.raises(InvalidValue, match="keep to one kind"):
        classifier.partial_fit(x, y)
    apart = np.array([unicodedata.normalize("NFD", name) for name in ("thé", "café")])
    classifier.fit(x, apart[y])
    assert classifier.classes_.tolist() == [unicodedata.normalize("NFC", name) for name in ("café", "thé")]


def test_it_works_where_scikit_learn_expects_estimators_to() -> None:
    classifier = ContinualClassifier(**SMALL)
    assert clone(classifier).get_params() == classifier.get_params()
    assert classifier.set_params(seed=3).seed == 3
    x, y = pictures([0, 1], n=9)
    assert cross_val_score(classifier, x, y, cv=3).mean() > 0.6
    pipeline = make_pipeline(FunctionTransformer(lambda a: a[:, ::2, ::2]), ContinualClassifier(**SMALL))
    assert pipeline.fit(x, y).score(x, y) > 0.6


def test_scorers_that_need_probabilities_find_them_in_the_order_that_they_expect() -> None:
    x, y = pictures([10, 2, 7], n=12)  # as numbers they are sorted, not as words
    classifier = ContinualClassifier(**SMALL, learner="slda").fit(x, y)
    assert classifier.classes_.tolist() == [2, 7, 10]
    assert roc_auc_score(y, classifier.predict_proba(x), multi_class="ovr") > 0.9


def test_fit_starts_anew() -> None:
    classifier = ContinualClassifier(**SMALL).fit(*pictures([0, 1], n=6))
    assert classifier.fit(*pictures([2, 3], n=6)).classes_.tolist() == [2, 3]


@pytest.mark.parametrize(
    ("classes", "kilobytes", "options"),
    [
        (3, 40, {}),
        (8, 40, {}),  # room for two of each class: half of what is stored are exemplars
        (8, 200, {}),
        (8, 80, {"replay": "raw"}),
        (8, 22, {"learner": "slda"}),
        (8, 20, {"learner": "tpc"}),
    ],
)
def test_memory_in_bytes_is_kept(classes: int, kilobytes: int, options: dict[str, Any]) -> None:
    classifier = ContinualClassifier(**(SMALL | {"image_size": 16} | options | {"memory": f"{kilobytes}KB"}))
    for first in (0, classes // 2):
        classifier.partial_fit(*pictures(list(range(first, classes)), n=8, seed=first))
        held = classifier.model_.describe()["memory"]
        assert 0 < held["bytes"] <= 1000 * kilobytes and held["exemplars"] > 0
    again = Model.from_state(classifier.model_.state_dict())
    assert again.describe() == classifier.model_.describe()


def test_no_class_gets_more_exemplars_over_lessons_than_it_may() -> None:
    classifier = ContinualClassifier(backbone="small_cnn", image_size=16, learner="ncm", memory=4000)
    found = []
    for lesson in range(4):
        noise = np.random.default_rng(lesson).integers(0, 256, (200, 16, 16, 3), np.uint8)  # no two alike
        classifier.partial_fit(noise, [0] * 100 + [1] * 100)
        found.append(classifier.model_.exemplars()[1].bincount().tolist())
    assert found == [[20, 20], [40, 40], [50, 50], [50, 50]]


class OnRows(ContinualClassifier):
    """For scikit-learn's checks, which know tables only: a row of numbers becomes a picture of stripes."""

    def _lesson(self, X: Any, y: Any, *, in_order: bool) -> ContinualClassifier:
        return super()._lesson(stripes(X), y, in_order=in_order)

    def _predict(self, X: Any) -> Any:
        return super()._predict(stripes(X))


def stripes(X: Any) -> np.ndarray:
    values = (128 + 24 * check_array(X, dtype="numeric")) % 256
    rows = np.concatenate([values, values % 1 * 255], axis=1).astype(np.uint8)
    return np.repeat(rows[:, None, :], rows.shape[1], axis=1)


TABLES = "tables have a number of columns, pictures may be of any size"
NOT_FOR_PICTURES = {
    "check_n_features_in_after_fitting": TABLES,
    "check_n_features_in": TABLES,
    "check_estimators_partial_fit_n_features": TABLES,
    "check_classifiers_train": "expects accuracy on tables that a network for photos lacks",
    "check_classifiers_regression_target": "labels that are no whole numbers are refused in our words",
    "check_supervised_y_2d": "labels in a column are refused, not flattened with a warning",
    "check_methods_subset_invariance": "batches of other sizes round differently in the sixth digit",
    "check_methods_sample_order_invariance": "batches of other company round differently in the sixth digit",
}


@pytest.mark.slow
def test_scikit_learn_s_checks_pass_where_they_make_sense_for_pictures() -> None:
    small = OnRows(backbone="small_cnn", image_size=16, memory=60)
    results = check_estimator(small, expected_failed_checks=NOT_FOR_PICTURES, on_fail=None, on_skip=None)
    failed = {r["check_name"]: str(r["exception"])[:200] for r in results if r["status"] == "failed"}
    assert not failed
    assert sum(r["status"] == "passed" for r in results) > 25


@pytest.mark.parametrize("labels", [[5, 5, 1], [3, 3, 3]])  # a new class, and corrections
def test_an_interrupted_lesson_leaves_the_classifier_as_it_was(
    labels: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = pictures([5, 3])
    classifier = ContinualClassifier(**SMALL).fit(x, y)
    before = classifier.predict_proba(x)

    real = learning.learn

    def interrupted(*arguments: Any) -> None:
        real(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(classifier_module, "learn", interrupted)
    more = np.concatenate([x[:2], pictures([1], n=1)[0]])
    with pytest.raises(KeyboardInterrupt):
        classifier.partial_fit(more, labels)
    monkeypatch.undo()
    assert classifier.classes_.tolist() == [3, 5] and len(classifier.model_.taught) == 24
    np.testing.assert_array_equal(classifier.predict_proba(x), before)
    assert classifier.partial_fit(more, labels).score(x[12:], y[12:]) > 0.5


def test_numbers_stay_numbers_until_the_command_line_brings_a_name(tmp_path: Path) -> None:
    x, y = pictures([0, 1])
    ContinualClassifier(**SMALL).fit(x, y).save(tmp_path / "model")
    (tmp_path / "photos" / "2").mkdir(parents=True)
    for number, pixels in enumerate(pictures([2])[0]):
        Image.fromarray(pixels).save(tmp_path / "photos" / "2" / f"{number}.png")
    teach(tmp_path / "model", tmp_path / "photos", settings=LessonSettings(force=True))
    assert ContinualClassifier.load(tmp_path / "model").classes_.tolist() == [0, 1, 2]
    rename(tmp_path / "model", "1", "one")
    assert ContinualClassifier.load(tmp_path / "model").classes_.tolist() == ["0", "one", "2"]


@pytest.mark.parametrize(
    ("labels", "name"),
    [([False, True], "red"), ([1, 2], "1_0"), ([1, 2], "02"), ([1.0, 2.0], "2"), ([1.0, 2.0], "nan")],
)
def test_a_name_that_no_label_has_makes_strings_of_all(labels: list[Any], name: str, tmp_path: Path) -> None:
    x, y = pictures([0, 1], n=6)
    ContinualClassifier(**SMALL).fit(x, np.array(labels)[y]).save(tmp_path / "model")
    assert ContinualClassifier.load(tmp_path / "model").classes_.tolist() == labels
    rename(tmp_path / "model", str(labels[0]), name)
    assert ContinualClassifier.load(tmp_path / "model").classes_.tolist() == [name, str(labels[1])]


def test_arrays_that_run_backwards_or_cannot_be_written_are_taken(fitted: ContinualClassifier) -> None:
    x = pictures([5], n=2)[0]
    np.testing.assert_array_equal(fitted.predict(x[..., ::-1]), fitted.predict(x[..., ::-1].copy()))
    fixed = x.copy()
    fixed.setflags(write=False)
    np.testing.assert_array_equal(fitted.predict(fixed), fitted.predict(x))


class Indexed:
    """Pictures that are looked up by a label, as a pandas Series that was filtered."""

    def __init__(self, values: Any) -> None:
        self.values = dict(enumerate(values, start=100))

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Any:
        return iter(self.values.values())

    def __getitem__(self, label: int) -> Any:
        return self.values[label]


def test_pictures_that_are_looked_up_by_a_label_are_taken() -> None:
    x, y = pictures([0, 1], n=4)
    series: Any = Indexed(x)
    classifier = ContinualClassifier(**SMALL).fit(series, y)
    np.testing.assert_array_equal(classifier.predict(series), classifier.predict(x))


@pytest.mark.parametrize("options", [{}, {"replay": "none"}])
def test_a_model_cut_down_to_few_classes_still_lets_both_members_speak(options: dict[str, Any]) -> None:
    classifier = ContinualClassifier(**(SMALL | options)).fit(*pictures(list(range(11)), n=4))
    for name in list(classifier.model_.names)[2:]:
        removal.forget(classifier.model_, name)
    x, _ = pictures([0, 1], n=8)
    probabilities, _ = Predictor(inference_parts(classifier.model_)).predict(as_images(x, classifier.model_.size))
    assert len(np.unique(probabilities[:, 0].numpy().round(6))) > 4, "more than who agrees with whom"


def test_a_backbone_without_weights_warns() -> None:
    untrained: dict[str, Any] = {"backbone": "small_cnn", "image_size": 8}
    with pytest.warns(TriphaseWarning, match="small_cnn comes without pre-trained weights"):
        ContinualClassifier(**untrained).fit(*pictures([0, 1], n=2))


def test_parameters_that_changed_after_fit_are_refused() -> None:
    x, y = pictures([0, 1], n=4)
    classifier = ContinualClassifier(**SMALL).fit(x, y).set_params(memory=61)
    with pytest.raises(Mismatch, match="made with memory 60, not 61"):
        classifier.partial_fit(x, y)


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    options = SMALL | {"seed": np.int64(3), "image_size": np.int32(16), "memory": np.int64(40)}
    ContinualClassifier(**options).fit(*pictures([0, 1], n=4)).save(tmp_path / "model")
    assert ContinualClassifier.load(tmp_path / "model").get_params()["seed"] == 3


@pytest.mark.parametrize("options", [{"image_size": 8.5}, {"seed": "x"}, {"image_size": True}])
def test_a_size_must_be_whole(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match="must be a whole number"):
        ContinualClassifier(**(SMALL | options)).fit(*pictures([0, 1], n=4))


def test_a_second_lesson_at_the_same_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = pictures([0, 1], n=4)
    classifier = ContinualClassifier(**SMALL).fit(x, y)
    refused: list[str] = []
    real = learning.learn

    def learn(*arguments: Any) -> Any:
        try:
            classifier.partial_fit(x, y)
        except Busy as error:
            refused.append(str(error))
        return real(*arguments)

    monkeypatch.setattr(classifier_module, "learn", learn)
    more = pictures([2], n=4)
    classifier.partial_fit(*more)
    assert refused == ["Another thread is teaching this classifier; wait until that lesson is over."]
    monkeypatch.undo()
    assert classifier.partial_fit(*pictures([3], n=4)).classes_.tolist() == [0, 1, 2, 3]


def test_answers_from_many_threads_change_nothing(fitted: ContinualClassifier) -> None:
    x = pictures([5], n=4)[0]
    expected = fitted.predict_proba(x)
    before = copy.deepcopy(fitted.model_.state_dict())
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: fitted.predict_proba(x), range(60)))
    assert all(np.array_equal(answer, expected) for answer in answers)
    after = flat(fitted.model_.state_dict())
    for name, leaf in flat(before).items():
        same = torch.equal(after[name], leaf) if isinstance(leaf, torch.Tensor) else after[name] == leaf
        assert same, name
