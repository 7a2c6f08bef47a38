"""The server with a sampler in it: ``python -m bench.reviews.sampled serve …``.

After each millisecond of CPU time it notes which part of a review was running, and at the end writes how often each was
to the file that ``BENCH_SAMPLES`` names. A signal that comes while the event loop is in C, in TLS or in a system call,
is handled at the first instruction of the function that is called next, which shows where it came from.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Final

from webhook.cli.main import main

INTERVAL: Final = 0.001
OUTSIDE: Final = "TLS, system calls, event loop"
# Of the innermost function that has one of these, by module, or module and function.
PARTS: Final = {
    "webhook.cli.serve": OUTSIDE,
    "webhook.cli.main": OUTSIDE,
    "webhook.admission.wire:Codec.decode": "decode",
    "webhook.admission.wire:encode": "answer",
    "webhook.review.reviewer:_encode": "answer",
    "webhook.review.reviewer:Reviewer._record": "audit line",
    "webhook.admission.audit": "audit line",
    "webhook.admission.lines": "audit line",
    "webhook.admission.credentials": "audit line",
    "webhook.server.ops": "metrics",
    "webhook.server.answers": "connection",
    "webhook.server.bodies": "connection",
    "webhook.server.guard": "connection",
    "webhook.server.app": "connection",
    "aiohttp": "connection",
    "webhook": "policy",
}
# The bytes of the instructions with which a function begins, before its first line.
_ENTRY: Final = 8


def part_of(frame: FrameType | None) -> str:
    """The part of a review that a frame belongs to."""
    if frame is None or (frame.f_lasti < _ENTRY and frame.f_code.co_name == "buffer_updated"):
        return OUTSIDE
    while frame is not None:
        module, function = frame.f_globals.get("__name__", ""), frame.f_code.co_qualname
        for name in (f"{module}:{function}", module, module.partition(".")[0]):
            if name in PARTS:
                return PARTS[name] if frame.f_back is not None else OUTSIDE
        frame = frame.f_back
    return OUTSIDE


def _sampled() -> None:
    seen: Counter[str] = Counter()

    def note(_: int, frame: FrameType | None) -> None:
        seen[part_of(frame)] += 1

    def begin(*_: object) -> None:
        seen.clear()
        signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)

    def write() -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        Path(os.environ["BENCH_SAMPLES"]).write_text(json.dumps(seen))

    signal.signal(signal.SIGPROF, note)
    signal.signal(signal.SIGUSR2, begin)
    atexit.register(write)
    main()


if __name__ == "__main__":
    _sampled()
