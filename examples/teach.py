"""Teach a model from folders of photos, lesson by lesson, and ask it: what `triphase teach` does, in Python.

The photos are made here (coloured shapes); take your own folders of class/photo.jpg instead.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image, ImageDraw

from triphase.app.predictor import Predictor
from triphase.app.teach import teach


def make_photos(folder: Path, name: str, colour: str, n: int) -> None:
    """n pictures of a coloured disc or square, each somewhere else and of another size."""
    (folder / name).mkdir(parents=True)
    for k in range(n):
        x, y, side = k * 7 % 16, k * 5 % 16, 8 + k * 5 % 8
        image = Image.new("RGB", (32, 32), "white")
        draw = ImageDraw.Draw(image)
        shape = draw.ellipse if "disc" in name else draw.rectangle
        shape((x, y, x + side, y + side), fill=colour)
        image.save(folder / name / f"{k}.png")


def main(**options: str | int) -> None:
    """Two lessons; the second brings a class that the first did not have. `options` are those of a new model."""
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        make_photos(folder / "monday", "red disc", "red", 12)
        make_photos(folder / "monday", "blue square", "blue", 12)
        make_photos(folder / "friday", "green disc", "green", 12)
        for day in ("monday", "friday"):
            outcome = teach(folder / "model", folder / day, options)
            print(f"{day}: version {outcome.version}, {outcome.learned} photos, {outcome.seconds:.1f} s")
        predictor = Predictor.open(folder / "model")
        names = ("monday/red disc", "monday/blue square", "friday/green disc")
        answers = predictor.answer_files([folder / name / "0.png" for name in names])
        for name, answer in zip(names, answers, strict=True):
            assert not isinstance(answer, str), answer  # a sentence about a file that cannot be read
            print(f"{name}: {answer.best} ({answer.probability:.0%})")


if __name__ == "__main__":
    main()
