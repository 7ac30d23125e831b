"""Ctrl-C while a command starts."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOPPED = b"Stopped.\n"


@contextmanager
def exit_at_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C end the process at once while modules are imported and nothing has been written.

    A KeyboardInterrupt would be a traceback there, or be lost: torch imports numpy from C and drops the exception,
    and the command would go on with half of numpy.
    """
    ordinary = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not ordinary or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _exit(number: int, frame: FrameType | None) -> None:
    os.write(2, STOPPED)
    os._exit(1)
