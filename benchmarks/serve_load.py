"""Many clients that ask a server at once, with and without lessons, and what HTTP costs on top of one answer.

    python benchmarks/serve_load.py [--clients 50] [--minutes 10] [--rounds 200] [--json FILE]

A server is started with a model that was taught generated photos. First one client asks, taking turns with a
`Predictor` in this process: the ratio is what HTTP costs. Processor time says more than the clock where other work
runs. Then all clients ask without pause, for half of the minutes alone, and for half of them while lessons run one
after the other. Whatever is not an answer with status 200 is an error. Memory is what the server holds (RSS),
read every second: its median over the first and over the last fifth of the time tells whether it grows.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
from generated_photos import draw, make_photos

from triphase.app.predictor import Predictor
from triphase.app.teach import teach

TOKEN = "only-for-this-benchmark"
PATH = "/api/v1/models/model"
BOUNDARY = "photos"


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


class Client:
    """One connection that is kept open."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def ask(self, method: str, path: str, body: bytes, media_type: str) -> tuple[int, Any]:
        """The status and the document of an answer."""
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": media_type}
        self._connection.request(method, PATH + path, body, headers)
        answer = self._connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null")

    def post(self, path: str, document: object) -> Any:
        """What the server answers to a document; anything but success ends the benchmark."""
        status, answer = self.ask("POST", path, json.dumps(document).encode(), "application/json")
        if status >= 300:
            raise SystemExit(f"{path}: {answer}")
        return answer

    def predict(self, body: bytes) -> tuple[int, Any]:
        """The answer about the photo of a body."""
        return self.ask("POST", "/predict", body, f"multipart/form-data; boundary={BOUNDARY}")


def multipart(photos: Sequence[tuple[str, bytes]]) -> bytes:
    """Photos as the body of a request."""
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n\r\n'.encode() + photo
        for name, photo in photos
    ]
    return b"\r\n".join([*parts, f"--{BOUNDARY}--\r\n".encode()])


@dataclass(frozen=True)
class OneAnswer:
    """Milliseconds of one warm answer: medians by the clock, and means of processor time."""

    over_http: float
    in_process: float
    over_http_cpu: float  # of the server
    in_process_cpu: float


def in_turns(rounds: int, server: int, port: int, model: Path, photo: Path) -> OneAnswer:
    """One answer over HTTP and by a predictor in this process, taking turns."""
    torch.set_num_threads(1)
    predictor, client, body = Predictor.open(model), Client(port), multipart([(photo.name, photo.read_bytes())])
    over_http, in_process, own = [], [], 0.0
    before = processor_seconds(server)
    for _ in range(rounds):
        over_http.append(milliseconds(lambda: client.predict(body)))
        begun = time.process_time()
        in_process.append(milliseconds(lambda: predictor.answer_files([photo])))
        own += time.process_time() - begun
    used = processor_seconds(server) - before
    return OneAnswer(
        statistics.median(over_http), statistics.median(in_process), 1000 * used / rounds, 1000 * own / rounds
    )


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
        for name in ("apple", "brick", "cloth"):
            photos = [(f"{name}/{i}.png", png(name, 100_000 + 10 * done + i)) for i in range(10)]
            status, answer = client.ask(
                "POST", "/drafts/load/photos", multipart(photos), f"multipart/form-data; boundary={BOUNDARY}"
            )
            if status != 200:
                raise SystemExit(f"Photos were not taken: {answer}")
        number = client.post("/lessons", {"draft": "load", "force": True})["id"]
        while client.ask("GET", f"/lessons/{number}", b"", "text/plain")[1]["state"] == "running":
            time.sleep(0.5)
        done += 1
    return done


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
    """Start a server, ask it in all these ways, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--json", type=Path)
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
                result = measure(arguments, server.pid, port, place)
            finally:
                server.terminate()
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


def measure(arguments: argparse.Namespace, server: int, port: int, place: Path) -> dict[str, Any]:
    """All figures, printed as they come."""
    photos = sorted((place / "photos" / "jpeg2").rglob("*.jpg"))
    bodies = [multipart([(photo.name, photo.read_bytes())]) for photo in photos]
    while Client(port).predict(bodies[0])[0] != 200:
        time.sleep(0.1)
    one_answer = in_turns(arguments.rounds, server, port, place / "model", photos[0])
    print(f"{os.cpu_count()} cores. One warm answer over HTTP and in process, in milliseconds:\n")
    for kind, http_ms, own_ms in (
        ("by the clock", one_answer.over_http, one_answer.in_process),
        ("processor time", one_answer.over_http_cpu, one_answer.in_process_cpu),
    ):
        print(f"- {kind}: {http_ms:.1f} and {own_ms:.1f}, ratio {http_ms / own_ms:.2f}")
    columns = ("answers", "errors", "per second", "p50", "p99", "worst", "lessons", "memory, first and last fifth")
    print(f"\n| {arguments.clients} clients | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}", flush=True)
    seconds = 60 * arguments.minutes / 2
    found: dict[str, Any] = {"one answer": asdict(one_answer)}
    for name, lessons in (("no lesson", False), ("lessons running", True)):
        one = load(seconds, arguments.clients, server, port, bodies, lessons=lessons)
        found[name] = asdict(one)
        print(
            f"| {name} | {one.answers:,} | {one.errors} | {one.per_second:.1f} | {one.p50_ms:.0f} ms | "
            f"{one.p99_ms:.0f} ms | {one.worst_ms:.0f} ms | {one.lessons} | {one.memory_first_mb:.0f}, "
            f"{one.memory_last_mb:.0f} MB |",
            flush=True,
        )
    return found


if __name__ == "__main__":
    main()
