"""What people get wrong: one sentence that says what to do, exit status 1, and nothing half-written."""

import errno
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from triphase import TPC
from triphase import state as files
from triphase.cli import main

COMMAND = str(Path(sys.executable).with_name("triphase"))
DIGITS = ["bench", "run", "digits-5", "--per-class", "60", "--epochs", "3", "--threads", "1"]

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def triphase(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Calls the command in this process; returns exit status, stdout and stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["triphase", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    return call


@pytest.fixture(autouse=True)
def somewhere_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Relative paths mean a folder of the test's own."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A finished run, made by the installed command. Do not change it."""
    out = tmp_path_factory.mktemp("finished") / "run"
    subprocess.run([COMMAND, *DIGITS, "--out", str(out)], check=True, capture_output=True)
    before = contents(out)
    yield out
    assert contents(out) == before


def contents(folder: Path) -> dict[Path, bytes]:
    """All but LOCK, which says who held it last."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "LOCK"}


def refused(answer: tuple[int, str, str], *parts: str) -> None:
    """One sentence on stderr that holds all the parts, and status 1."""
    status, out, err = answer
    assert status == 1 and out == ""
    last = err.splitlines()[-1]
    assert last.startswith("error: ") and last.endswith("."), err
    assert "Traceback" not in err
    for part in parts:
        assert part in last, f"{part!r} is not in: {last}"


def assert_same_weights(out: Path, reference: Path) -> None:
    found, expected = (files.load(run / "weights.safetensors") for run in (out, reference))
    assert json.dumps(found, default=torch.Tensor.tolist) == json.dumps(expected, default=torch.Tensor.tolist)


# Values


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--set", "t=1.5"], ["t must be in [0, 1]", "1.5"]),
        (["--set", "t=-0.1"], ["t must be in [0, 1]", "-0.1"]),
        (["--set", "t=NaN"], ["t of the learner tpc must be a finite number", "nan"]),
        (["--set", "t=much"], ["t of the learner tpc must be a finite number", "'much'"]),
        (["--learner", "bic", "--set", "stage2_epochs=2.5"], ["stage2_epochs", "a whole number, got 2.5"]),
        (["--order", "-1"], ["--order must not be negative, got -1"]),
        (["--epochs", "3", "--epochs-scale", "0.5"], ["contradict each other"]),
        (["--learner", "bic", "--trainable", "all"], ["BiC shares llf", "train csf only"]),
        (["--set", "s=0"], ["s must be above 0"]),
        (["--set", "masking=both"], ["masking must be one of tpc, none, single, group", "'both'"]),
        (["--set", "tolerance=0.5"], ["no option tolerance", "it has t, s, w_bc,"]),
        (["--set", "seed=1"], ["no option seed", "it has t, s, w_bc,"]),
        (["--learner", "finetune", "--set", "t=0.5"], ["no option t", "it has none"]),
        (["--set", "t"], ["--set takes NAME=VALUE", "'t'"]),
        (["--set", "t=[1]"], ["--set takes one value for t", "'[1]'"]),
        (["--epochs", "2"], ["2 epochs", "at least 3"]),
        (["--epochs", "0"], ["--epochs must be at least 1, got 0"]),
        (["--epochs-scale", "0"], ["--epochs-scale must be above 0", "0.0"]),
        (["--epochs-scale", "nan"], ["--epochs-scale", "finite"]),
        (["--memory", "5"], ["memory of 5 cannot hold 10 classes", "at least 10"]),
        (["--memory", "5", "--learner", "replay"], ["memory of 5 cannot hold 10 classes"]),
        (["--memory", "-1"], ["at least 1 sample, got -1"]),
        (["--learner", "replay", "--replay", "none"], ["replay needs a memory"]),
        (["--learner", "tcp"], ["No learner is called 'tcp'", "tpc, ar1, bic, derpp, finetune, replay, joint"]),
        (["--replay", "cooked"], ["--replay is one of raw, latent, none", "'cooked'"]),
        (["--head", "big"], ["--head is one of fixed, incremental", "'big'"]),
        (["--backbone", "resnet"], ["No backbone is called 'resnet'", "resnet18"]),
        (["--augment", "twirl"], ["no augmentation 'twirl'", "crop"]),
        (["--image-size", "0"], ["--image-size must be at least 1"]),
        (["--per-class", "0"], ["--per-class must be at least 1"]),
        (["--classes", "cats"], ["--classes takes different numbers", "'cats'"]),
        (["--classes", "5-12"], ["--classes names class 10", "0 to 9"]),
        (["--lr", "0"], ["lr must be above 0"]),
        (["--lr", "nan"], ["lr must be above 0", "nan"]),
        (["--n-mbe", "0"], ["n_mbe must be at least 1"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_value_out_of_range_is_refused_before_anything_is_written(
    options: list[str], parts: list[str], triphase: Call, tmp_path: Path
) -> None:
    refused(triphase(*DIGITS, "--out", "run", *options), *parts)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("benchmark", "parts"),
    [
        (
            "digits-6",
            ["No benchmark is called 'digits-6'", "core50-41", "cifar100-11", "digits-5", "A/B-C", "folder"],
        ),
        ("digits:5/2", ["No benchmark is called", "digits-5"]),
        ("mnist:5/2-2", ["No benchmark is called", "digits, cifar100, core50, imagenet, folder"]),
        ("digits:6/2-2", ["needs 12 classes", "has 10"]),
        ("digits:0/2-2", ["at least 1 experience"]),
        ("digits:2/2-0", ["1 class in each"]),
    ],
)
def test_an_unknown_benchmark_is_refused_with_those_that_exist(
    benchmark: str, parts: list[str], triphase: Call, tmp_path: Path
) -> None:
    refused(triphase("bench", "run", benchmark, "--out", "run"), *parts)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["--no-such-option"],
        ["no-such-command"],
        ["bench", "no-such-command"],
        ["bench", "run"],
        ["bench", "run", "digits-5", "--no-such-option"],
        ["bench", "run", "digits-5", "--epochs", "many"],
        ["bench", "run", "digits-5", "--threads", "0"],
        ["bench", "run", "digits-5", "--norm", "none"],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_2(arguments: list[str], triphase: Call, tmp_path: Path) -> None:
    status, out, err = triphase(*arguments)
    assert status == 2 and out == ""
    assert "Usage:" in err and "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


# Data


@pytest.mark.parametrize(
    ("benchmark", "parts"),
    [
        ("cifar100:10/10-10", ["no CIFAR-100 in nowhere", "cs.toronto.edu"]),
        ("cifar100-11", ["no CIFAR-100 in nowhere"]),
        ("core50-41", ["no CORe50 images in nowhere"]),
        ("core50-nicv2-391", ["no CORe50 images in nowhere"]),
        ("imagenet-100", ["no folder nowhere/train", "image-net.org"]),
        ("folder:2/1-1", ["no folder nowhere", "check the spelling"]),
    ],
)
def test_missing_data_is_refused_and_says_where_to_get_it(
    benchmark: str, parts: list[str], triphase: Call, tmp_path: Path
) -> None:
    refused(triphase("bench", "run", benchmark, "--data", "nowhere", "--out", "run"), *parts)
    assert list(tmp_path.iterdir()) == []


def photos(root: Path, n: int = 6) -> Path:
    """Two classes of n photos each."""
    for name, grey in (("cat", 20), ("dog", 200)):
        (root / name).mkdir(parents=True)
        for i in range(n):
            pixels = np.full((9, 9, 3), (grey, grey + i, 9 * i), dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{i}.png")
    return root


def teach_folder(root: Path) -> list[str]:
    quick = ["--backbone", "small_cnn", "--image-size", "8", "--epochs", "3", "--lr", "0.01", "--threads", "1"]
    return ["bench", "run", "folder:2/1-1", "--data", str(root), "--out", "run", *quick]


def test_a_folder_without_classes_or_images_is_refused(triphase: Call, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    refused(triphase(*teach_folder(Path("empty"))), "empty has no class folders", "empty/cat/1.jpg")
    (tmp_path / "hollow" / "cat").mkdir(parents=True)
    refused(triphase(*teach_folder(Path("hollow"))), "No folder in hollow holds an image")
    (tmp_path / "file").write_text("not a folder")
    refused(triphase(*teach_folder(Path("file"))), "file is a file")
    assert not (tmp_path / "run").exists()


def test_a_class_with_one_photo_is_refused_by_name(triphase: Call, tmp_path: Path) -> None:
    root = photos(tmp_path / "photos")
    for i in range(1, 6):
        (root / "dog" / f"{i}.png").unlink()
    refused(triphase(*teach_folder(root)), "Class dog has one photo only", "at least 2")
    assert not (tmp_path / "run").exists()


def test_a_broken_image_is_refused_by_name(triphase: Call, tmp_path: Path) -> None:
    root = photos(tmp_path / "photos")
    broken = root / "dog" / "3.png"
    broken.write_bytes(broken.read_bytes()[:50])
    refused(triphase(*teach_folder(root)), str(broken), "cannot be read as an image", "mend or remove it")
    assert not (tmp_path / "run").exists()


def test_skip_bad_goes_on_and_counts(triphase: Call, tmp_path: Path) -> None:
    root = photos(tmp_path / "photos")
    (root / "dog" / "3.png").write_bytes(b"not an image")
    (root / "cat" / "0.png").write_bytes(b"")
    status, _, err = triphase(*teach_folder(root), "--skip-bad")
    assert status == 0
    assert (
        f"warning: 2 of 12 photos cannot be read and were left out, the first is {root / 'cat' / '0.png'}." in err
    )
    assert (tmp_path / "run" / "report.json").exists()


# Runs that exist


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--order", "1"], "order 0 (now 1)"),
        (["--seed", "1"], "seed 0 (now 1)"),
        (["--learner", "replay"], "learner 'tpc' (now 'replay')"),
        (["--learner", "joint"], "learner 'tpc' (now 'joint')"),
        (["--epochs", "4"], "first.epochs 3 (now 4)"),
        (["--lr", "0.001"], "first.lr 0.005 (now 0.001)"),
        (["--memory", "50"], "memory.capacity 100 (now 50)"),
        (["--per-class", "20"], "per_class 60 (now 20)"),
        (["--set", "t=0.25"], "t 0.5 (now 0.25)"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_run_is_not_continued_as_another_one(
    options: list[str], part: str, triphase: Call, finished: Path
) -> None:
    refused(triphase(*DIGITS, *options, "--out", finished), str(finished), part, "give another --out")


def interrupted(out: Path, lines: int = 5) -> None:
    """A run of the installed command, stopped by Ctrl-C after its first experience."""
    command = [COMMAND, *DIGITS, "--save-every", "0", "--out", str(out)]

    def listen() -> None:  # shells start background jobs deaf to Ctrl-C, and their children with them
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, preexec_fn=listen) as process:
        deadline = time.monotonic() + 60
        while not (out / "events.jsonl").exists() or (out / "events.jsonl").read_bytes().count(b"\n") < lines:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        output, error = process.communicate(timeout=60)
    refused((process.returncode, output, error), f"{out} is saved", "Run again to continue")


def test_ctrl_c_keeps_what_was_done(triphase: Call, finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    interrupted(out)
    assert not (out / "report.json").exists()
    status, _, err = triphase(*DIGITS, "--out", out)
    assert status == 0 and "continuing at experience" in err
    assert_same_weights(out, finished)


def test_ctrl_c_before_a_run_says_so(triphase: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(import_module("triphase.cli.bench"), "prepare", interrupt)
    status, out, err = triphase(*DIGITS, "--out", "run")
    assert status == 1 and out == "" and err.strip() == "Stopped."
    assert list(tmp_path.iterdir()) == []


class _Full:
    """A disk that is full from the n-th sync on."""

    def __init__(self, n: int) -> None:
        self.left = n

    def fsync(self, descriptor: int) -> None:
        self.left -= 1
        if self.left <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("save_every", ["0", "0.01"])
@pytest.mark.parametrize("n", [1, 3, 60])
def test_a_full_disk_is_told_and_nothing_is_lost(
    n: int, save_every: str, triphase: Call, monkeypatch: pytest.MonkeyPatch, finished: Path, tmp_path: Path
) -> None:
    command = [*DIGITS, "--save-every", save_every, "--out", "run"]
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", _Full(n).fsync)
        refused(triphase(*command), "Cannot write run/", "No space left on device", "make room and run again")
    assert not list(tmp_path.rglob("*.tmp"))
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    assert triphase(*command)[0] == 0
    assert_same_weights(tmp_path / "run", finished)


def test_a_file_that_may_not_grow_is_told(finished: Path, tmp_path: Path) -> None:
    """The system itself refuses: the weights are larger than a file of this process may be."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))

    command = [COMMAND, *DIGITS, "--save-every", "0", "--out", str(tmp_path / "run")]
    process = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit)
    refused((process.returncode, process.stdout, process.stderr), "File too large", "make room and run again")
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize("file", ["settings.json", "state/index.json", "state/csf", "state/memory"])
def test_a_damaged_run_is_named_and_left_alone(
    file: str, triphase: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", _Full(300).fsync)
        refused(triphase(*DIGITS, "--save-every", "0", "--out", "run"), "make room")
    index = files.read_json(tmp_path / "run" / "state" / "index.json")["parts"]
    path = tmp_path / "run" / "state" / index[file[6:]] if file[6:] in index else tmp_path / "run" / file
    path.write_bytes(path.read_bytes()[:-20])
    before = contents(tmp_path / "run")
    refused(triphase(*DIGITS, "--out", "run"), str(path.relative_to(tmp_path)), "is damaged", "to start again")
    assert contents(tmp_path / "run") == before


# Where to write


@pytest.mark.parametrize("out", ["taken", "taken/run"])
@pytest.mark.parametrize("command", [DIGITS, ["demo"]], ids=["bench run", "demo"])
def test_a_file_in_the_way_is_told_before_training(
    command: list[str], out: str, triphase: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def learn(*arguments: object) -> None:
        raise AssertionError("it trained first")

    monkeypatch.setattr(TPC, "learn", learn)
    (tmp_path / "taken").write_text("mine")
    refused(triphase(*command, "--out", out), "Cannot write taken", "a file is where a folder should be")
    assert (tmp_path / "taken").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_folder_that_may_not_be_written_is_told(triphase: Call, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    refused(triphase(*DIGITS, "--out", "locked/run"), "Cannot write locked/run", "permissions")
