"""Stands in for `triphase bench run` where only the order of runs matters; fails as TROUBLE says, NAME:KIND,..."""

import json
import os
import sys
from pathlib import Path


def main(words: list[str]) -> None:
    """Write a report into --out, after the trouble that was asked for."""
    out = Path(words[words.index("--out") + 1])
    with open(out.parent.parent / "log", "a") as log:
        log.write(out.name + "\n")
    for trouble in filter(None, os.environ.get("TROUBLE", "").split(",")):
        name, _, kind = trouble.partition(":")
        if name in out.name:
            if kind == "refuse":
                sys.exit("warning: careful\nerror: There is no data.")
            if kind == "diverge":
                (out / "diverged.json").write_text('{"reason": "It diverged: lower --lr."}')
                sys.exit("error: It diverged: lower --lr.")
            if kind == "crash" or not (out / "tried").exists():
                (out / "tried").touch()
                os._exit(7)
    if "--first-from" in words:
        assert (Path(words[words.index("--first-from") + 1]) / "report.json").exists()
    numbers = {"amca": len(out.name) / 100, "final_accuracy": 0.5, "train_seconds": 2.0}
    (out / "report").write_text(json.dumps(numbers))
    os.replace(out / "report", out / "report.json")  # whole at once, as the real one: a sweep looks at any instant


if __name__ == "__main__":
    main(sys.argv[1:])
