"""TPC on digits through the Python interface."""

from triphase import TPC, Memory, Recipe, class_incremental, run
from triphase.data.sources import digits
from triphase.models import small_cnn


def main(epochs: int = 20) -> float:
    """Learn ten digits, two at a time, with a memory of 100 images."""
    train, test, names = digits()
    stream = class_incremental(train, test, names, first=2, then=2)
    learner = TPC(small_cnn(10), Memory(100, seed=0), t=0.5, s=0.05, w_bc=5.0, seed=0)
    first = Recipe(epochs=epochs, lr=0.01, csf_lr=0.02, n_mbe=32)
    rest = Recipe(epochs=epochs, lr=0.01, csf_lr=0.02, n_mbe=32, n_mbr=32)
    report = run(learner, stream, first=first, rest=rest)
    print(f"AMCA {100 * report.amca:.1f} %, final accuracy {100 * report.final_accuracy:.1f} %")
    return report.final_accuracy


if __name__ == "__main__":
    main()
