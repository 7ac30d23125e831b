"""The paper's own results, as printed (Tables 3 to 6), for reports to show beside ours."""

from __future__ import annotations

COLUMNS = ("core50-41", "imagenet-100", "cifar100-11", "core50-nicv2-391")
ROWS = ("ar1", "bic", "derpp", "tpc")


def _table(*rows: tuple[float, float, float, float]) -> dict[str, dict[str, float]]:
    return {name: dict(zip(COLUMNS, row, strict=True)) for name, row in zip(ROWS, rows, strict=True)}


AMCA = _table(  # per cent
    (48.03, 46.11, 54.44, 52.48),
    (39.29, 38.51, 59.62, 27.08),
    (48.72, 44.73, 55.48, 53.21),
    (50.46, 47.35, 59.64, 53.51),
)
FINAL = _table(  # per cent
    (75.14, 27.92, 40.70, 78.97),
    (52.59, 0.34, 47.94, 21.67),
    (74.08, 25.53, 41.38, 81.11),
    (78.32, 29.46, 48.28, 81.14),
)
SECONDS = _table(
    (257, 83135, 1797, 1224),
    (572, 137746, 3494, 2827),
    (558, 83104, 3170, 3031),
    (265, 82606, 1892, 1599),
)
OVERALL = {  # mean ratio to TPC; as printed, for the paper averaged ratios that were rounded already
    "amca": dict(zip(ROWS, (0.95, 0.78, 0.96, 1.00), strict=True)),
    "final": dict(zip(ROWS, (0.93, 0.49, 0.92, 1.00), strict=True)),
    "time": dict(zip(ROWS, (0.93, 1.86, 1.68, 1.00), strict=True)),
}
ABLATION: dict[tuple[str, bool], dict[str, float]] = {  # AMCA by benchmark and with replay or not, per cent
    ("core50-41", True): {
        "": 50.46,
        "no bias correction": 48.08,
        "no gradient masking": 50.35,
        "no Phase III": 49.58,
    },
    ("core50-41", False): {"": 44.50, "no bias correction": 14.63, "no gradient masking": 32.22},
}


def ratio(table: dict[str, dict[str, float]], learner: str, benchmark: str) -> float:
    """A learner's number as a multiple of TPC's: what the paper prints in brackets.

    >>> f"{ratio(SECONDS, 'bic', 'core50-41'):.2f}"
    '2.16'
    """
    return table[learner][benchmark] / table["tpc"][benchmark]
