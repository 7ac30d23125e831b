"""Ctrl-C while a command starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from triphase.interrupt import exit_at_ctrl_c

# What torch does with numpy: the exception is dropped, and the rest goes on.
STARTING = """
import os, signal
from triphase.interrupt import exit_at_ctrl_c
signal.signal(signal.SIGINT, signal.default_int_handler)
with exit_at_ctrl_c():
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        pass
print("went on")
"""
# Ctrl-C at the moment when the modules of the command begin to be imported.
COMMAND = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from triphase.__main__ import main
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "triphase.cli.teach":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
sys.argv = ["triphase", "teach", "model", "photos"]
main()
"""


@pytest.mark.parametrize("program", [STARTING, COMMAND], ids=["an import that drops it", "a command"])
def test_ctrl_c_while_modules_are_imported_ends_the_command_in_one_word(program: str) -> None:
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", "Stopped.\n")


def test_ctrl_c_is_a_keyboard_interrupt_again_afterwards() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with exit_at_ctrl_c():
            assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_process_that_ignores_ctrl_c_still_does() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with exit_at_ctrl_c():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_leaves_signals_alone() -> None:
    entered = []

    def enter() -> None:
        with exit_at_ctrl_c():
            entered.append(True)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert entered == [True]
