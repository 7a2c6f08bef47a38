"""What is measured, and in which order."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.reviews import certificate
from bench.reviews.golang import BuiltServers
from bench.reviews.host import Cores
from bench.reviews.load import LoadClient, Pressure, ReviewArrival, Sample
from bench.reviews.payloads import PAYLOADS, POD, Payload
from bench.reviews.servers import Pythons, RunningServer, lineup, started

# One review at a time shows how fast an answer can be; sixteen show what a core can do.
ALONE: Final = ReviewArrival("1 in flight", in_flight=1)
BUSY: Final = ReviewArrival("16 in flight", in_flight=16)
# A busy cluster's, which leaves the slowest server a little of its core; and VMs of a node that all start at once.
STEADY: Final = ReviewArrival("500 a second", per_second=500)
BURSTS: Final = ReviewArrival("bursts of 64", per_second=256, burst=64)
_ARRIVALS: Final = {POD.name: (ALONE, BUSY, STEADY, BURSTS)}


def arrivals(payload: Payload) -> tuple[ReviewArrival, ...]:
    """How the reviews of a payload arrive."""
    return _ARRIVALS.get(payload.name, (ALONE, BUSY))


@dataclass(frozen=True, slots=True)
class ReviewsPlan:
    """What is measured.

    Attributes:
        servers: their keys.
        rounds: in each, everything is measured once, on freshly started servers.
    """

    servers: Sequence[str]
    rounds: int
    pressure: Pressure

    @property
    def seconds(self) -> float:
        """About how long it takes, with the starts of servers and load client."""
        loads = self.rounds * sum(len(arrivals(payload)) for payload in PAYLOADS) * len(self.servers)
        return loads * (self.pressure.seconds + self.pressure.warmup + 0.05) + self.rounds * 3


@dataclass(slots=True)
class ReviewsOutcome:
    """What was measured.

    Attributes:
        skipped: (server, payload) that has no endpoint.
        reviews: how many each server answered, measured or not.
        audit: how many lines each audited server wrote.
    """

    samples: list[Sample] = field(default_factory=list)
    skipped: set[tuple[str, str]] = field(default_factory=set)
    reviews: dict[str, int] = field(default_factory=dict)
    audit: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bench:
    """All that a round needs."""

    plan: ReviewsPlan
    pythons: Pythons
    built: BuiltServers
    cores: Cores

    def measure(self, say: Callable[[str], None]) -> ReviewsOutcome:
        """Run all rounds.

        Args:
            say: is called with the progress.

        Raises:
            BenchError: a server did not start or gave a wrong answer.
        """
        outcome = ReviewsOutcome()
        for round_ in range(1, self.plan.rounds + 1):
            say(f"round {round_} of {self.plan.rounds}")
            with tempfile.TemporaryDirectory(prefix="bench-reviews-") as directory:
                self._round(round_, Path(directory), outcome)
        return outcome

    def _round(self, round_: int, directory: Path, outcome: ReviewsOutcome) -> None:
        pair = certificate.make(directory)
        client = LoadClient(self.built.binaries / "load", pair, self.cores.load, self.plan.pressure)
        first = (round_ - 1) % len(self.plan.servers)
        # Another one goes first each time, so that none always follows the same neighbor's caches and heat.
        keys = [*self.plan.servers[first:], *self.plan.servers[:first]]
        servers = lineup(keys, self.pythons, self.built.binaries, pair, directory)
        with started(servers, self.cores.server, pair, directory) as all_running:
            for payload in PAYLOADS:
                able = [running for running in all_running if _serves(running, payload, outcome)]
                for arrival in arrivals(payload):
                    for running in able:
                        sample = client.press(running, payload, arrival, round_)
                        outcome.samples.append(sample)
                        outcome.reviews[sample.server] += sample.sent
        for running in all_running:
            if running.server.audited:
                key = running.server.key
                outcome.audit[key] = outcome.audit.get(key, 0) + running.audit_lines()


def _serves(running: RunningServer, payload: Payload, outcome: ReviewsOutcome) -> bool:
    """Whether a server has an endpoint for a payload; if so, that it does the work."""
    key = running.server.key
    status, answer = running.ask(payload)
    if status == 404:
        outcome.skipped.add((key, payload.name))
        return False
    payload.check(running.server.title, status, answer)
    outcome.reviews[key] = outcome.reviews.get(key, 0) + 1
    return True
