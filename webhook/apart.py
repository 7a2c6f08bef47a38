"""A function of this program in a process of its own: what it imports, and the memory that it takes, end with it.

A server leaves to it what is rare and needs libraries that would stay in its memory: pydantic for settings, and
cryptography for certificates. What goes in and comes out is pickled, and goes through pipes alone: no private key is an
argument, in the environment, or in a file.
"""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

import webhook
from certs.pem import CertificateError
from webhook.errors import InputError
from webhook.text import shorten

# Some 2 s are needed for a settings file as large as a ConfigMap that is full of mistakes.
_SECONDS: Final = 60.0


class ProcessFailed(Exception):  # noqa: N818 - an event
    """The process ended without an answer, as it does where the pod is short of memory; the message says how."""


def begin(function: str, *arguments: object) -> Callable[[], Any]:
    """Begin what `call` does in a thread; what is returned waits for its end, and returns or raises as `call`."""
    # The variables as they are now, whatever is done to them meanwhile.
    executor, command = ThreadPoolExecutor(1), partial(_run, _environment(), function, *arguments)
    future = executor.submit(command)
    executor.shutdown(wait=False)
    return future.result


def call(function: str, *arguments: object) -> Any:
    """What a function returns, in a process of its own, which is this program; it blocks until then.

    Args:
        function: ``MODULE:NAME``.
        arguments: of the function.

    Raises:
        InputError: as the function raises it.
        CertificateError: as the function raises it.
        ProcessFailed: the process ended without an answer, or has not answered in 60 s.
    """
    return _run(_environment(), function, *arguments)


def _environment() -> dict[str, str]:
    """Runs the same program, whatever is in the directory from which the server was started."""
    return {**os.environ, "PYTHONPATH": str(Path(webhook.__file__).parents[1]), "PYTHONSAFEPATH": "1"}


def _run(environment: dict[str, str], function: str, *arguments: object) -> Any:
    try:
        done = subprocess.run(
            [sys.executable, "-m", "webhook.apart"],
            input=pickle.dumps((function, arguments)),
            capture_output=True,
            check=False,
            env=environment,
            timeout=_SECONDS,
            # Ctrl-C is for this process alone.
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ProcessFailed(str(error)) from error
    if done.returncode:
        last = (done.stderr.decode(errors="replace").strip().splitlines() or [""])[-1]
        raise ProcessFailed(f"exit status {done.returncode}; {shorten(last, 200)}")
    try:
        answer, refusal = pickle.loads(done.stdout)  # noqa: S301 - from a process of this program
    except Exception as error:
        raise ProcessFailed(f"its answer cannot be read ({type(error).__name__})") from error
    if refusal:
        raise refusal
    return answer


def _main() -> None:
    # Nothing that is printed meanwhile gets among the answer.
    with os.fdopen(os.dup(1), "wb") as output:
        os.dup2(2, 1)
        function, arguments = pickle.load(sys.stdin.buffer)  # noqa: S301 - from a process of this program
        module, _, name = function.partition(":")
        try:
            answer: tuple[Any, Exception | None] = getattr(importlib.import_module(module), name)(*arguments), None
        except (InputError, CertificateError) as error:
            answer = None, error
        output.write(pickle.dumps(answer))


if __name__ == "__main__":
    _main()
