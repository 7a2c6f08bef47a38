"""Objects that are created at a steady rate, as dry runs: admission is the same, and the store does not grow."""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

from bench.placement.client import SchedulingClient, SchedulingRequest
from tests.e2e.support.kube import KubeError

_BESIDE: Final = 16


class CreationRun(NamedTuple):
    """What some creations have shown.

    Attributes:
        seconds: the time of each object that was created as it should be.
        failed: the others, by what went wrong.
    """

    seconds: list[float]
    failed: Counter[str]

    def cells(self) -> tuple[str, ...]:
        """The cells of a table: objects, failed ones, and p50, p99 and the longest in milliseconds."""
        count = len(self.seconds) + self.failed.total()
        why = ", ".join(f"{number} {what}" for what, number in self.failed.items())
        failed = f"{self.failed.total()}{f' ({why})' if why else ''}"
        if not self.seconds:
            return (f"{count:,}", failed, "-", "-", "-")
        ordered = sorted(self.seconds)
        last = ordered[min(len(ordered) - 1, math.ceil(len(ordered) * 0.99) - 1)]
        return (
            f"{count:,}",
            failed,
            *(f"{each * 1000:.1f}" for each in (statistics.median(ordered), last, ordered[-1])),
        )


def create(
    client: SchedulingClient,
    path: str,
    body: Mapping[str, Any],
    is_as_it_should_be: Callable[[Mapping[str, Any]], bool],
    *,
    rate: int,
    lasts: int,
) -> CreationRun:
    """Create objects at a rate; one that is late does not keep the next ones back.

    Args:
        path: of the resource in its namespace.
        body: the object; each gets a name of its own.
        is_as_it_should_be: looks at an object that was created. The API server passes over a webhook that fails, so
            its status alone would show nothing.
        rate: objects in a second.
        lasts: seconds.
    """
    run = CreationRun([], Counter())
    begun = time.monotonic()

    def send(number: int) -> None:
        named = {**body, "metadata": {**body["metadata"], "name": f"steady-{number}"}}
        start = time.perf_counter()
        try:
            answer = client.send(SchedulingRequest("POST", f"{path}?dryRun=All", named))
        except (KubeError, OSError) as error:
            run.failed[str(error.status) if isinstance(error, KubeError) else type(error).__name__] += 1
            return
        if is_as_it_should_be(answer):
            run.seconds.append(time.perf_counter() - start)
        else:
            run.failed["not as it should be"] += 1

    with ThreadPoolExecutor(_BESIDE, "creations") as pool:
        for number in range(rate * lasts):
            time.sleep(max(0.0, begun + number / rate - time.monotonic()))
            pool.submit(send, number)
    return run
