"""Runs the load client and reads what it measured."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.reviews.certificate import Certificate
from bench.reviews.errors import BenchError, run
from bench.reviews.host import pinned
from bench.reviews.payloads import NAMES, Payload
from bench.reviews.servers import RunningServer

# Above this share of its core, the load client is what limits the requests per second.
CLIENT_LIMIT: Final = 0.95


@dataclass(frozen=True, slots=True)
class ReviewArrival:
    """How reviews arrive: with a fixed number in flight, or at a fixed rate whatever the answers do.

    Attributes:
        title: what tables call it.
        in_flight: reviews in flight; 0: they come at a rate.
        per_second: reviews per second; 0: each begins when another one has its answer.
        burst: how many of them come at the same moment.
    """

    title: str
    in_flight: int = 0
    per_second: int = 0
    burst: int = 1


@dataclass(frozen=True, slots=True)
class Pressure:
    """How long each server is measured.

    Attributes:
        seconds: measured time of one load.
        warmup: seconds before it.
    """

    seconds: float
    warmup: float


@dataclass(frozen=True, slots=True)
class Sample:
    """What one load on one server showed.

    Attributes:
        sent: reviews that were answered, the warm-up's among them.
        arrival: the title of how reviews arrived.
        cpu_us: CPU time of the server for one review, in microseconds.
        rps: reviews per second.
        client_share: of its core, used by the load client.
    """

    server: str
    payload: str
    arrival: str
    round: int
    sent: int
    cpu_us: float
    rps: float
    p50_us: float
    p99_us: float
    max_us: float
    rss_mb: float
    client_share: float


@dataclass(frozen=True, slots=True)
class LoadClient:
    """The load client.

    Attributes:
        program: its binary.
        certificate: what it checks the servers against.
        core: where it runs; None: anywhere.
    """

    program: Path
    certificate: Certificate
    core: int | None
    pressure: Pressure

    def press(self, running: RunningServer, payload: Payload, arrival: ReviewArrival, round_: int) -> Sample:
        """Put load on a server.

        Raises:
            BenchError: an answer was wrong, there was none, or the server ended.
        """
        title = running.server.title
        argv: list[str | Path] = [
            self.program,
            f"-url={running.server.url(payload)}",
            f"-body={payload.file}",
            f"-ca={self.certificate.certificate}",
            f"-concurrency={arrival.in_flight}",
            f"-rate={arrival.per_second}",
            f"-burst={arrival.burst}",
            f"-duration={self.pressure.seconds}s",
            f"-warmup={self.pressure.warmup}s",
            f"-pid={running.pid}",
            f"-patch={'true' if payload.written else 'false'}",
            f"-varied={payload.varied}",
            f"-names={NAMES}",
        ]
        with pinned(self.core):
            # The client gives up on an answer after 10 s, in the warm-up and in the measured time.
            printed = run(f"the load on {title}", argv, seconds=self.pressure.seconds + self.pressure.warmup + 25)
        seen = json.loads(printed)
        running.check_alive()
        if seen["errors"]:
            total = seen["errors"] + seen["count"] + seen["warmup"]
            raise BenchError(
                f"{title} gave {seen['errors']} wrong answers of {total} to the {payload.name} review, "
                f"{arrival.title}; the first: {seen['first_error']}"
            )
        if not seen["count"]:
            raise BenchError(f"{title} answered no {payload.name} review within {self.pressure.seconds:g} s")
        return Sample(
            server=running.server.key,
            payload=payload.name,
            arrival=arrival.title,
            round=round_,
            sent=seen["count"] + seen["warmup"],
            cpu_us=seen["server_cpu_seconds"] / seen["count"] * 1e6,
            rps=seen["rps"],
            p50_us=seen["p50_us"],
            p99_us=seen["p99_us"],
            max_us=seen["max_us"],
            rss_mb=running.resident_mb(),
            client_share=seen["client_cpu_seconds"] / seen["seconds"],
        )
