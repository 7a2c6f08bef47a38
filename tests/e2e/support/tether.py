"""Becomes another program that dies with its parent: ``python tether.py PARENT PROGRAM [ARGUMENT...]``.

A killed test run cannot clean up, and a control plane that outlives it holds ports and memory until a user notices.
Linux can end a child when its parent dies. This program requests that before it becomes the other, because the usual
place, ``subprocess``'s ``preexec_fn``, isn't safe in a process with threads, and a test worker has threads.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, *command = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(parent):  # the parent died before the request
            return
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
