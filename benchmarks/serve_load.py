"""Many clients that ask a server at once, with and without lessons, and what HTTP costs on top of one answer.

    python benchmarks/serve_load.py [--clients 50] [--minutes 10] [--rounds 500] [--out FILE]

A server is started with a model that was taught generated photos. First one client asks on one connection, taking
turns with a `Predictor` in this process: the ratio is what HTTP costs. Processor time says more than the clock
where other work runs. Then it asks once more, and a lesson begins in the middle. Then all clients ask without
pause, for half of the minutes alone, and for half of them while lessons run one after the other. Whatever is not
an answer with status 200 is an error. Memory is what the server holds (RSS), read every second: its median over
the first and over the last fifth of the time tells whether it grows. At a terminal, standard error shows how far
it has come.
"""

from __future__ import annotations

import argparse
import http.client
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

sys.path.insert(0, str(Path(__file__).resolve().parent))
from generated_photos import draw, make_photos
from http_client import MULTIPART, TOKEN, Client, multipart

from triphase.app.predictor import Predictor
from triphase.app.teach import teach

TITLE = "# A server under load"


@dataclass(frozen=True)
class Load:
    """What all clients together have seen."""

    answers: int
    errors: int
    per_second: float
    p50_ms: float
    p99_ms: float
    worst_ms: float
    lessons: int
    memory_first_mb: float
    memory_last_mb: float


@dataclass(frozen=True)
class OneAnswer:
    """Milliseconds of one warm answer: medians by the clock, and means of processor time."""

    over_http: float
    in_process: float
    over_http_cpu: float  # of the server
    in_process_cpu: float


def progress() -> Progress:
    """How far a part has come, for a person at a terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[said]}"),
    )
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def counted(rounds: int, what: str) -> Iterator[int]:
    """Count to a number, with progress."""
    with progress() as shown:
        yield from shown.track(range(rounds), task_id=shown.add_task(what, said=""))


def in_turns(rounds: int, server: int, port: int, model: Path, photo: Path) -> OneAnswer:
    """One answer over HTTP and by a predictor in this process, taking turns."""
    torch.set_num_threads(1)
    predictor, client, body = Predictor.open(model), Client(port), multipart([(photo.name, photo.read_bytes())])
    over_http, in_process, own = [], [], 0.0
    before = processor_seconds(server)
    for _ in counted(rounds, "one client and a predictor in turns"):
        over_http.append(milliseconds(lambda: client.answer(body)))
        begun = time.process_time()
        in_process.append(milliseconds(lambda: predictor.answer_files([photo])))
        own += time.process_time() - begun
    used = processor_seconds(server) - before
    return OneAnswer(
        statistics.median(over_http), statistics.median(in_process), 1000 * used / rounds, 1000 * own / rounds
    )


def with_lesson(rounds: int, port: int, photo: Path) -> tuple[float, float]:
    """Median and worst milliseconds of one client's answers, of which the second half come during a lesson."""
    client, body, taken = Client(port), multipart([(photo.name, photo.read_bytes())]), list[float]()
    upload(client, 0)
    number = None
    for turn in counted(rounds, "one client, then a lesson"):
        if turn == rounds // 2:
            number = client.post("/lessons", {"draft": "load", "force": True})["id"]
        taken.append(milliseconds(lambda: client.answer(body)))
    while client.ask("GET", f"/lessons/{number}", b"", "text/plain")[1]["state"] == "running":
        time.sleep(0.5)
    return statistics.median(taken), max(taken)


def processor_seconds(process: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def milliseconds(work: Callable[[], object]) -> float:
    """How long something takes."""
    begun = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - begun)


def load(seconds: float, clients: int, server: int, port: int, bodies: Sequence[bytes], *, lessons: bool) -> Load:
    """Let clients ask without pause, while lessons run or not."""
    end = time.perf_counter() + seconds
    taken: list[list[float]] = [[] for _ in range(clients)]
    errors, memory, taught = [0] * clients, list[float](), [0]

    def ask(number: int) -> None:
        client, turn = Client(port), number
        while time.perf_counter() < end:
            begun = time.perf_counter()
            try:
                status, document = client.predict(bodies[turn % len(bodies)])
                errors[number] += status != 200 or document["answers"][0]["label"] is None
            except (OSError, http.client.HTTPException):
                errors[number] += 1
                client = Client(port)
            taken[number].append(1000 * (time.perf_counter() - begun))
            turn += 1

    def watch_memory() -> None:
        while time.perf_counter() < end:
            memory.append(resident_mb(server))
            time.sleep(1)

    work: list[Callable[[], None]] = [lambda number=n: ask(number) for n in range(clients)]  # type: ignore[misc]
    threads = [threading.Thread(target=each) for each in [*work, watch_memory]]
    if lessons:
        threads.append(threading.Thread(target=lambda: taught.__setitem__(0, keep_teaching(end, port))))
    for thread in threads:
        thread.start()
    with progress() as shown:
        task = shown.add_task(f"{clients} clients{', lessons running' * lessons}", total=seconds, said="")
        while (left := end - time.perf_counter()) > 0:
            time.sleep(min(left, 0.5))
            said = f"{sum(map(len, taken)):,} answers, {sum(errors)} errors"
            shown.update(task, completed=seconds - left, said=said)
    for thread in threads:
        thread.join()
    times, fifth = sorted(value for one in taken for value in one), max(1, len(memory) // 5)
    return Load(
        answers=len(times),
        errors=sum(errors),
        per_second=len(times) / seconds,
        p50_ms=times[len(times) // 2],
        p99_ms=times[len(times) * 99 // 100],
        worst_ms=times[-1],
        lessons=taught[0],
        memory_first_mb=statistics.median(memory[:fifth]),
        memory_last_mb=statistics.median(memory[-fifth:]),
    )


def keep_teaching(end: float, port: int) -> int:
    """Teach one lesson of ten new photos of three classes after the other; how many were done."""
    client, done = Client(port), 0
    while time.perf_counter() < end:
        upload(client, done + 1)
        number = client.post("/lessons", {"draft": "load", "force": True})["id"]
        while client.ask("GET", f"/lessons/{number}", b"", "text/plain")[1]["state"] == "running":
            time.sleep(0.5)
        done += 1
    return done


def upload(client: Client, lesson: int) -> None:
    """Put ten new photos of three classes into the draft of a lesson."""
    for name in ("apple", "brick", "cloth"):
        photos = [(f"{name}/{i}.png", png(name, 100_000 + 10 * lesson + i)) for i in range(10)]
        status, answer = client.ask("POST", "/drafts/load/photos", multipart(photos), MULTIPART)
        if status != 200:
            raise SystemExit(f"Photos were not taken: {answer}")


def png(name: str, number: int) -> bytes:
    """A generated photo as a file."""
    with tempfile.TemporaryFile() as file:
        draw(name, number).save(file, "PNG")
        file.seek(0)
        return file.read()


def resident_mb(process: int) -> float:
    """Megabytes that a process holds in memory."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1000
    return 0.0


def main() -> None:
    """Start a server, ask it in all these ways, and write what it did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/serve_load.md"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        make_photos(place / "photos")
        teach(place / "model", place / "photos" / "jpeg1")
        (place / "token").write_text(TOKEN)
        command = [sys.executable, "-m", "triphase", "serve", str(place / "model"), "--port", "0", "--no-open"]
        command += ["--token-file", str(place / "token")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            port = int(server.stdout.readline().split("?")[0].rstrip("/").rpartition(":")[2])
            try:
                lines = [TITLE, "", *measure(arguments, server.pid, port, place)]
            finally:
                server.terminate()
    arguments.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


def measure(arguments: argparse.Namespace, server: int, port: int, place: Path) -> Iterator[str]:
    """The lines of the report, printed as they come."""
    photos = sorted((place / "photos" / "jpeg2").rglob("*.jpg"))
    bodies = [multipart([(photo.name, photo.read_bytes())]) for photo in photos]
    Client(port).answer(bodies[0])
    for line in chain(
        one_client(arguments, server, port, place / "model", photos[0]),
        all_clients(arguments, server, port, bodies),
    ):
        print(line, flush=True)
        yield line


def one_client(arguments: argparse.Namespace, server: int, port: int, model: Path, photo: Path) -> Iterator[str]:
    """What one client sees."""
    options = f"--clients {arguments.clients} --minutes {arguments.minutes:g} --rounds {arguments.rounds}"
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    yield f"`python benchmarks/serve_load.py {options}` on {machine}."
    one = in_turns(arguments.rounds, server, port, model, photo)
    yield f"\nOne warm answer over HTTP and by a `Predictor` in process, taking turns {arguments.rounds} times:\n"
    yield "| milliseconds | over HTTP | in process | ratio |\n|---|---|---|---|"
    for kind, http_ms, own_ms in (
        ("by the clock, median", one.over_http, one.in_process),
        ("processor time, mean", one.over_http_cpu, one.in_process_cpu),
    ):
        yield f"| {kind} | {http_ms:.1f} | {own_ms:.1f} | {http_ms / own_ms:.2f} |"
    median, worst = with_lesson(arguments.rounds, port, photo)
    yield f"\nOne connection, a lesson beginning in the middle: median {median:.1f} ms, worst {worst:.0f} ms."


def all_clients(arguments: argparse.Namespace, server: int, port: int, bodies: Sequence[bytes]) -> Iterator[str]:
    """What all clients see, without and with lessons."""
    columns = ("answers", "errors", "per second", "p50", "p99", "worst", "lessons", "memory, first and last fifth")
    yield f"\n| {arguments.clients} clients | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}"
    for name, lessons in (("no lesson", False), ("lessons running", True)):
        one = load(30 * arguments.minutes, arguments.clients, server, port, bodies, lessons=lessons)
        yield (
            f"| {name} | {one.answers:,} | {one.errors} | {one.per_second:.1f} | {one.p50_ms:.0f} ms | "
            f"{one.p99_ms:.0f} ms | {one.worst_ms:.0f} ms | {one.lessons} | {one.memory_first_mb:.0f}, "
            f"{one.memory_last_mb:.0f} MB |"
        )


if __name__ == "__main__":
    main()
