"""The commands: what they print and what they write."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import triphase as package
from triphase.bench.benchmarks import BENCHMARKS, NOTATIONS
from triphase.bench.learners import LEARNERS
from triphase.bench.run import Report
from triphase.bench.sweep import scheduler as cells
from triphase.cli import main
from triphase.cli.show import Show

COMMAND = str(Path(sys.executable).with_name("triphase"))


@dataclass(frozen=True)
class Answer:
    status: int
    out: str
    err: str

    def document(self) -> Any:
        """Stdout as one JSON document without NaN; text before or after it would not parse."""

        def refuse(constant: str) -> None:
            raise AssertionError(f"{constant} is not JSON")

        return json.loads(self.out, parse_constant=refuse)


Call = Callable[..., Answer]


@pytest.fixture
def triphase(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    """Calls the command in this process, in a folder of the test's own and in a wide terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["triphase", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        return Answer(int(end.value.code or 0), out, err)

    return call


def test_the_module_is_the_command() -> None:
    texts = [
        subprocess.run([*line, "--version"], capture_output=True, text=True, check=True).stdout
        for line in ([COMMAND], [sys.executable, "-m", "triphase"])
    ]
    assert texts[0] == texts[1] != ""


def test_the_package_imports_nothing_until_it_is_asked() -> None:
    code = "import sys, triphase; print('torch' in sys.modules); triphase.TPC; print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "True"]
    assert set(package.__all__) <= set(dir(package))
    for name in package.__all__:
        assert getattr(package, name).__name__ == name
    code = "import triphase; print(triphase.data.Recipe is triphase.Recipe, triphase.learners.TPC.__name__)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["True", "TPC"]
    with pytest.raises(AttributeError, match="no attribute 'tpc2'"):
        _ = package.tpc2


def test_the_command_waits_for_whoever_is_still_writing(tmp_path: Path) -> None:
    code = (
        "import sys, threading, time, triphase.cli\n"
        "def write(): time.sleep(0.5); open(sys.argv[1], 'w').write('whole')\n"
        "def command(): threading.Thread(target=write).start(); sys.exit(3)\n"
        "triphase.cli.main = command\n"
        "from triphase.__main__ import main; main()"
    )
    run = subprocess.run([sys.executable, "-c", code, tmp_path / "file"])
    assert run.returncode == 3 and (tmp_path / "file").read_text() == "whole"


@pytest.mark.parametrize(("ending", "status"), [(">&-", 0), ("> /dev/full", 1)])
def test_nobody_needs_to_read_what_is_printed(ending: str, status: int) -> None:
    run = subprocess.run(f"{COMMAND} --version {ending}", shell=True, capture_output=True, text=True)
    assert run.returncode == status and "Traceback" not in run.stderr


def test_help_lists_the_commands() -> None:
    process = subprocess.run([COMMAND, "--help"], capture_output=True, text=True)
    assert process.returncode == 0 and process.stderr == ""
    for word in ("demo", "bench", "without forgetting"):
        assert word in process.stdout


@pytest.mark.parametrize(
    "command", [["demo"], ["bench"], ["bench", "list"], ["bench", "run"], ["bench", "sweep"], ["bench", "ablate"]]
)
def test_every_command_explains_itself(command: list[str], triphase: Call) -> None:
    answer = triphase(*command, "--help")
    assert answer.status == 0 and answer.err == ""
    assert re.search(rf"Usage: .*{' '.join(command)} ", answer.out) and "--help" in answer.out


def test_no_command_shows_the_help(triphase: Call) -> None:
    answer = triphase()
    assert "Usage: " in answer.out and "demo" in answer.out and "bench" in answer.out


def test_bench_list_names_every_benchmark_and_learner(triphase: Call) -> None:
    answer = triphase("bench", "list")
    assert answer.status == 0 and answer.err == ""
    for benchmark in BENCHMARKS.values():
        (line,) = (line for line in answer.out.splitlines() if line.split()[:1] == [benchmark.name])
        assert benchmark.title in line and f"{benchmark.rest.n_mbe}:{benchmark.rest.n_mbr}" in line
    assert "Learners: " + ", ".join(LEARNERS) in answer.out
    assert all(notation in answer.out for notation in NOTATIONS)


def test_bench_list_as_one_document(triphase: Call) -> None:
    document = triphase("bench", "list", "--json").document()
    assert [b["name"] for b in document["benchmarks"]] == list(BENCHMARKS)
    assert document["learners"] == list(LEARNERS)
    (core50,) = (b for b in document["benchmarks"] if b["name"] == "core50-41")
    assert core50["title"] == "CORe50 41/10-1" and core50["memory"] == 1500
    assert (core50["rest"]["n_mbe"], core50["rest"]["n_mbr"]) == (158, 98)
    assert core50["grids"]["bic"] == {"stage2_epochs": [4, 8, 12]}


def test_demo_as_one_document_with_a_page_that_needs_nothing_else(triphase: Call, tmp_path: Path) -> None:
    answer = triphase("demo", "--epochs-scale", "0.1", "--out", "shown", "--json")
    assert answer.status == 0 and answer.err == ""
    document = answer.document()
    assert list(document["learners"]) == ["tpc", "replay", "finetune", "joint"]
    for name, learner in document["learners"].items():
        report = Report.from_json(learner)
        assert report.final_accuracy == learner["final_accuracy"]
        assert len(report.accuracy) == (1 if name == "joint" else 5)
    accuracy = {name: learner["final_accuracy"] for name, learner in document["learners"].items()}
    assert accuracy["finetune"] < min(accuracy["tpc"], accuracy["replay"]), "fine-tuning did not forget"

    assert document["report"] == "shown/report.html"
    page = (tmp_path / document["report"]).read_text()
    assert not re.search(r"""(src|href|url\()\s*=?\s*["']?\s*(https?:)?//""", page), "the page fetches something"
    assert not re.search(r"<(script|link|iframe)[^>]+(src|href)=", page)
    sources = re.findall(r'<img[^>]+src="([^"]*)"', page)
    assert len(sources) == 4 and all(source.startswith("data:image/png;base64,") for source in sources)
    for title, learner in (("TPC", "tpc"), ("Fine-tuning", "finetune")):
        assert title in page and f"{100 * accuracy[learner]:.1f}" in page
    with Image.open(tmp_path / "shown" / "accuracy.png") as picture:
        assert picture.format == "PNG" and min(picture.size) > 300
    assert {file.name for file in (tmp_path / "shown").iterdir()} == {"accuracy.png", "report.html"}


def test_demo_prints_a_table_and_where_the_page_is(triphase: Call) -> None:
    answer = triphase("demo", "--epochs-scale", "0.1", "--out", "shown")
    assert answer.status == 0
    for word in ("TPC", "Replay", "Fine-tuning", "Joint training", "AMCA", "final accuracy"):
        assert word in answer.out
    assert "The curves are in shown/report.html" in answer.out
    (joint,) = (line for line in answer.out.splitlines() if "Joint training" in line)
    assert "–" in joint, "one accuracy is no average over experiences"
    assert "tpc        experience 5/5  accuracy" in answer.err


def test_bench_run_as_one_document(triphase: Call, tmp_path: Path) -> None:
    answer = triphase("bench", "run", "digits-5", "--epochs", "3", "--threads", "1", "--out", "run", "--json")
    assert answer.status == 0 and answer.err == ""
    document = answer.document()
    assert document["run"] == "run"
    report = Report.from_json(document)
    assert report.evaluated_after == [1, 2, 3, 4, 5] and report.n_seen == [2, 4, 6, 8, 10]
    assert document["amca"] == pytest.approx(sum(report.curve) / 5)
    assert document["final_accuracy"] == report.curve[-1] > 0.5
    assert document["ceiling"] == 1.0
    assert report.names == [str(digit) for digit in range(10)]
    assert sum(map(sum, report.confusion)) == 450
    assert report.settings["benchmark"] == "digits-5" and report.settings["learner"] == "tpc"
    written = json.loads((tmp_path / "run" / "report.json").read_text())
    assert {"run": "run", **written} == document
    again = triphase("bench", "run", "digits-5", "--epochs", "3", "--threads", "1", "--out", "run", "--json")
    assert again.document() == document


def test_bench_run_tells_people_what_it_measured(triphase: Call, tmp_path: Path) -> None:
    command = ["bench", "run", "digits:2/3-2", "--learner", "finetune", "--epochs", "3", "--order", "2"]
    answer = triphase(*command, "--seed", "7")
    assert answer.status == 0
    out = tmp_path / "runs" / "digits-2-3-2-finetune-order2-seed7"  # where nothing is said about --out
    report = Report.from_json(json.loads((out / "report.json").read_text()))
    assert report.n_seen == [3, 5]
    assert f"{100 * report.amca:.1f} %" in answer.out and f"{100 * report.final_accuracy:.1f} %" in answer.out
    assert answer.err.count("accuracy") == 2
    assert f"experience 2/2  accuracy {100 * report.final_accuracy:.1f} %" in answer.err


def test_options_reach_the_learner(triphase: Call) -> None:
    options = ["--set", "t=0.25", "--set", "masking=none", "--memory", "20", "--replay", "latent", "--n-mbr", "5"]
    options += ["--latent-dtype", "float16", "--csf-lr", "0.002", "--norm", "brn", "--head", "incremental"]
    answer = triphase("bench", "run", "digits:2/1-1", "--epochs", "3", *options, "--out", "run", "--json")
    settings = answer.document()["settings"]
    assert (settings["t"], settings["masking"]) == (0.25, "none")
    assert (settings["memory"]["capacity"], settings["memory"]["store"]) == (20, "latent")
    assert settings["memory"]["dtype"] == "torch.float16"
    assert settings["rest"]["n_mbr"] == 5 and settings["first"]["n_mbr"] == 0
    assert settings["rest"]["csf_lr"] == 0.002
    assert (settings["norm"], settings["head"]) == ("brn", "incremental")


PAPERS = ("core50-41", "imagenet-100", "cifar100-11", "core50-nicv2-391")


def test_a_dry_sweep_lists_the_papers_257_runs_without_any_data(triphase: Call, tmp_path: Path) -> None:
    answer = triphase("bench", "sweep", *PAPERS, "--learners", "tpc,ar1,bic,derpp", "--orders", "0-3", "--dry-run")
    lines = answer.out.splitlines()
    assert answer.status == 0 and answer.err == "" and lines[-1] == "257 runs"
    assert sum(line.startswith(PAPERS) for line in lines) == 257
    assert "core50-41  bic  order 0 lr 0.05 stage2_epochs 4" in lines
    assert list(tmp_path.iterdir()) == []
    document = triphase("bench", "sweep", *PAPERS, "--dry-run", "--json").document()
    assert document["runs"] == len(document["rows"]) == 257


def test_a_dry_ablation_lists_its_runs(triphase: Call, tmp_path: Path) -> None:
    answer = triphase("bench", "ablate", "core50-41", "--lr", "0.02", "--dry-run")
    assert answer.status == 0 and answer.out.splitlines()[-1] == "26 runs"
    assert "core50-41  tpc  order 3 lr 0.02 with replay: no Phase III" in answer.out
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_runs_the_installed_command_and_shares_the_first_experience(triphase: Call, tmp_path: Path) -> None:
    sweep = ["bench", "sweep", "digits:2/2-1", "--learners", "replay", "--orders", "0", "--lr-grid", "0.01"]
    sweep += ["--epochs", "3", "--per-class", "10", "--memory", "20", "--threads", "1", "--out", "s", "--json"]
    document = triphase(*sweep).document()
    (tried,) = document["benchmarks"]["digits:2/2-1"]["replay"]["grid"]
    report, first = (
        Report.from_json(json.loads((tmp_path / "s" / run / "report.json").read_text()))
        for run in (tried["run"], "digits-2-2-1/first-order0-lr0.01")
    )
    assert (report.amca, report.train_seconds) == (tried["amca"], tried["train_seconds"])
    assert report.phase_seconds["E_1"] == first.train_seconds and first.n_seen == [2]
    assert report.settings["threads"] == 1
    assert triphase(*sweep).document() == document


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps call something quick in the place of `triphase`."""
    command = (sys.executable, "-S", str(Path(__file__).with_name("fake_run.py")))
    monkeypatch.setattr(import_module("triphase.cli.sweep"), "COMMAND", command)
    monkeypatch.setattr(cells, "POLL", 0.01)


@pytest.mark.usefixtures("fake")
def test_a_sweep_and_its_ablation_end_with_tables_and_are_not_done_twice(triphase: Call, tmp_path: Path) -> None:
    sweep = ["bench", "sweep", "digits-5", "--learners", "tpc,replay,slda", "--orders", "0-2", "--out", "s"]
    answer = triphase(*sweep, "--workers", "2")
    assert answer.status == 0 and "digits-5 slda-order2  AMCA 11.0 %" in answer.err
    document = json.loads((tmp_path / "s" / "sweep.json").read_text())
    assert document["runs"] == 5 + 5 + 3 and document["failed"] == {}
    entries = document["benchmarks"]["digits-5"]
    assert entries["tpc"]["chosen"] == {"lr": 0.005} and entries["slda"]["chosen"] == {}
    for name, entry in entries.items():
        assert f"{100 * entry['amca']['mean']:.1f} % ± 0.0" in answer.out and name in answer.out
    done = (tmp_path / "s" / "log").read_text().split()
    assert triphase(*sweep, "--json").document() == document
    assert (tmp_path / "s" / "log").read_text().split() == done

    answer = triphase("bench", "ablate", "digits-5", "--sweep", "s", "--orders", "0-2")
    assert answer.status == 0 and "no gradient masking" in answer.out and "digits-5, no replay" in answer.out
    ablation = json.loads((tmp_path / "s" / "ablation.json").read_text())["benchmarks"]["digits-5"]
    assert ablation["replay"]["columns"]["full"]["tests"] == entries["tpc"]["tests"]
    done += (tmp_path / "s" / "log").read_text().split()[len(done) :]
    assert len(done) == len(set(done)), "the full algorithm was run by the sweep"


@pytest.mark.usefixtures("fake")
def test_runs_that_fail_are_named_at_the_end(
    triphase: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TROUBLE", "tpc-order0:refuse")
    command = ["bench", "sweep", "digits-5", "--learners", "tpc,slda", "--orders", "0", "--lr-grid", "0.1"]
    answer = triphase(*command, "--out", "s", "--json")
    assert answer.status == 1 and answer.document()["failed"] == {"digits-5/tpc-order0-lr0.1": "There is no data."}
    assert answer.err.endswith(
        "error: 1 of 2 runs failed: digits-5/tpc-order0-lr0.1 (There is no data). Run again to try them again.\n"
    )
    other = triphase(*command, "--out", "s", "--epochs", "4")
    assert other.status == 1 and "holds runs with epochs not given (now 4); give another --out" in other.err


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["sweep", "digits-6"], ["No benchmark is called 'digits-6'", "digits-5", "DATASET:nic-A/B-C"]),
        (["sweep", "digits-5", "--learners", "tpc,ar2"], ["No learner is called 'ar2'", "tpc, ar1, bic, derpp"]),
        (["sweep", "digits-5", "--orders", "3-1"], ["--orders takes", "'3-1'"]),
        (["sweep", "digits-5", "--lr-grid", "0.1,big"], ["--lr-grid takes learning rates above 0", "'0.1,big'"]),
        (["sweep", "digits-5", "--set", "x=1"], ["None of tpc, ar1, bic, derpp has an option x"]),
        (["sweep", "cifar100-11", "--data", "nowhere"], ["nowhere"]),
        (["ablate", "digits-5", "--set", "x=1"], ["tpc has no option x", "it has t, s,"]),
        (
            ["ablate", "digits-5", "--sweep", "nowhere"],
            ["no finished search", "bench sweep digits-5 --learners tpc"],
        ),
    ],
)
def test_a_sweep_that_cannot_be_is_refused_before_anything_runs(
    words: list[str], parts: list[str], triphase: Call, tmp_path: Path
) -> None:
    answer = triphase("bench", *words)
    assert answer.status == 1 and answer.out == "" and answer.err.startswith("error: ")
    assert all(part in answer.err for part in parts), answer.err
    assert not list(tmp_path.rglob("report.json"))


@pytest.mark.parametrize(("option", "choices"), [("--grid", "paper"), ("--rows", "no-replay")])
def test_a_wrong_choice_lists_the_right_ones(option: str, choices: str, triphase: Call) -> None:
    answer = triphase("bench", "sweep" if option == "--grid" else "ablate", "digits-5", option, "some")
    assert answer.status == 2 and choices in answer.err


def test_the_terminal_shows_the_phase_and_each_class() -> None:
    show = Show("tpc", quiet=True)
    show.watch({"event": "begin", "experience": 2, "of": 5, "images": 9, "classes": ["cat", "dog"]})
    show.watch({"event": "evaluated", "experience": 1, "accuracy": 0.5, "classes": {"cat": 0.5, "dog": None}})
    step = {"experience": 2, "phase": "II", "epoch": 1, "epochs": 2, "step": 1, "steps": 2, "loss": 0.25, "lr": 0.1}
    step |= {"images_per_second": 1234.5, "shares": {"data": 0.25, "csf": 0.75}}
    show.watch({"event": "step", **step})
    lines = "\n".join("".join(segment.text for segment in line) for line in show.console.render_lines(show.draw()))
    assert "experience 2/5, 9 images: cat, dog" in lines
    assert "Phase II" in lines and "epoch 1/2" in lines and "loss 0.250" in lines
    assert "50.0 %" in lines
    show.watch({"event": "epoch", **step, "loss": None})
    assert "not finite" in str(show.console.render_lines(show.draw()))
