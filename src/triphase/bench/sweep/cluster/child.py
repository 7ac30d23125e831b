"""`python -m triphase.bench.sweep.cluster.child PARENT ...`: `triphase ...` that on Linux ends with its parent."""

import ctypes
import os
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    parent = int(sys.argv.pop(1))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent ended before the signal was set up
            sys.exit(1)
    runpy.run_module("triphase", run_name="__main__", alter_sys=True)
