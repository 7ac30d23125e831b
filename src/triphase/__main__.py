"""The command `triphase`; also `python -m triphase`, where it is not on the path."""

import gc
import os
import sys
import threading

from triphase.interrupt import exit_at_ctrl_c

# PyTorch's threads spin for milliseconds while they wait for each other: beside programs that hold a core, a lesson
# takes up to three times as long. With these settings, which torch reads when it is imported, they soon sleep.
WAIT = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"}


def main() -> None:
    """Import everything, which takes longest, run the command, and exit without cleaning up."""
    if WAIT.keys().isdisjoint(os.environ):
        os.environ.update(WAIT)
    gc.disable()  # collecting garbage among imported modules would take a fifth of a second
    with exit_at_ctrl_c():
        from triphase.cli import main as command

    gc.freeze()
    gc.enable()
    status: int | str = 0
    try:
        command()
    except SystemExit as end:
        status = end.code or 0
    busy = [t for t in threading.enumerate() if t is not threading.current_thread()]
    if not isinstance(status, int) or busy:  # a message, or a thread is still writing
        sys.exit(status)
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except OSError:  # a closed pipe, or a full disk
        status = status or 1
    os._exit(status)  # unloading all modules would take another tenth


if __name__ == "__main__":
    main()
