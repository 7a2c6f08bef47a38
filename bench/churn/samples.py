"""What is seen of a replica from outside, every few seconds, and what all of it says."""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.churn.trend import Trend, percentile, trend
from webhook.k8s.client.reflector import CURRENT_SECONDS

# Of the series of times, which need many requests each.
BLOCK_SECONDS: Final = 60.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")
# Less is no descriptor and no task.
_ONE: Final = 1.0
# The API server's answers when a call of a webhook failed, and when it had no time.
_FAILED: Final = ("500", "503", "504")


@dataclass(frozen=True)
class Sample:
    """One look.

    Attributes:
        at: seconds since the churn began.
        resident: MiB of memory.
        anonymous: MiB of it that no file is behind.
        descriptors: open ones.
        tasks: of the event loop.
        staleness: the greatest of all watches, in seconds.
        cpu: seconds that the replica has used.
        all_cpu: seconds that the replica, the API server, etcd and the clients have used.
        load: average of a minute.
        seconds: that each reviewed request since the last look took, at the client.
    """

    at: float
    resident: float
    anonymous: float
    descriptors: int
    tasks: int
    staleness: float
    cpu: float
    all_cpu: float
    load: float
    seconds: list[float]


class Verdict(NamedTuple):
    """Whether a promise was kept.

    Attributes:
        what: the promise.
        kept: True if it was.
        figure: in words.
    """

    what: str
    kept: bool
    figure: str


@dataclass
class ChurnOutcome:
    """A run.

    Attributes:
        began: date and time, UTC.
        machine: on which it ran, in words.
        plan: how large it was, by the names of the options.
        warm_up: seconds that count for nothing: caches fill.
        samples: in their order.
        marks: what was rare, with the seconds since the beginning.
        counts: of what was done, by what it was.
        replica: what the replica counted meanwhile, by the name of the metric.
        errors: what its log says of errors.
    """

    began: str
    machine: str
    plan: dict[str, float]
    warm_up: float
    samples: list[Sample] = field(default_factory=list)
    marks: list[tuple[float, str]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    replica: dict[str, float] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def save(self, file: Path) -> None:
        """Write it as JSON."""
        samples = [{**asdict(sample), "seconds": [round(s, 5) for s in sample.seconds]} for sample in self.samples]
        file.write_text(json.dumps({**vars(self), "samples": samples}))

    @classmethod
    def load(cls, file: Path) -> ChurnOutcome:
        """One that was written.

        Raises:
            OSError: the file cannot be read, or is none that was.
        """
        try:
            found: dict[str, Any] = json.loads(file.read_text())
            found["samples"] = [Sample(**sample) for sample in found["samples"]]
            found["marks"] = [(at, what) for at, what in found["marks"]]
            return cls(**{**found, "counts": Counter(found["counts"])})
        except (ValueError, KeyError, TypeError) as error:
            raise OSError(f"{file} has no samples of this benchmark ({error})") from error

    @property
    def counted(self) -> list[Sample]:
        """The samples after the warm-up."""
        return [sample for sample in self.samples if sample.at >= self.warm_up]

    def of(self, read: Callable[[Sample], float]) -> Trend:
        """The trend of what the samples say."""
        counted = self.counted
        return trend([sample.at for sample in counted], [read(sample) for sample in counted])

    def blocks(self) -> Iterator[tuple[float, list[float]]]:
        """The middle of each minute, and the seconds of the requests in it."""
        groups: dict[int, list[float]] = {}
        for sample in self.samples:
            groups.setdefault(int(sample.at // BLOCK_SECONDS), []).extend(sample.seconds)
        for number, seconds in groups.items():
            if seconds:
                yield (number + 0.5) * BLOCK_SECONDS, seconds

    def times(self, share: float) -> list[tuple[float, float]]:
        """For each minute its middle and a percentile of its requests, in ms."""
        return [(at, percentile(seconds, share) * 1000) for at, seconds in self.blocks()]

    def verdicts(self) -> list[Verdict]:
        """What was promised, and whether it was kept."""
        counted = self.counted
        hours = (counted[-1].at - counted[0].at) / 3600 if counted else 0.0
        found = []
        memory = self.of(lambda sample: sample.resident)
        figure = f"{memory.mean:.1f} MiB on average, {memory} (95 %)"
        found.append(Verdict("memory does not grow", not memory.grows, figure))
        held: dict[str, Callable[[Sample], float]] = {
            "file descriptor": lambda sample: sample.descriptors,
            "task": lambda sample: sample.tasks,
        }
        for what, read in held.items():
            seen = self.of(read)
            stays = seen.grows and seen.slope * hours >= _ONE
            most = max((read(sample) for sample in counted), default=0)
            figure = f"{seen.mean:.1f} on average, {most} at most, {seen} (95 %)"
            found.append(Verdict(f"no {what} stays", not stays, figure))
        for share in (0.5, 0.99):
            after = [(at, ms) for at, ms in self.times(share) if at >= self.warm_up]
            seen = trend([at for at, _ in after], [ms for _, ms in after])
            all_ms = percentile([s for sample in counted for s in sample.seconds], share) * 1000
            figure = f"{all_ms:.1f} ms in all, {seen} (95 %) by minutes"
            found.append(Verdict(f"p{share * 100:.0f} does not grow", not seen.grows, figure))
        oldest = max((sample.staleness for sample in counted), default=math.inf)
        figure = f"{oldest:.0f} s at most"
        found.append(Verdict(f"no store is older than {CURRENT_SECONDS:.0f} s", oldest <= CURRENT_SECONDS, figure))
        failed = Counter({what: count for what, count in self.counts.items() if what.rpartition(": ")[2] in _FAILED})
        figure = ", ".join(f"{count:,} of {what!r}" for what, count in failed.items()) or "none failed"
        found.append(Verdict("every review is answered", not failed, figure))
        figure = ", ".join(f"{count:,} of {what!r}" for what, count in Counter(self.errors).items()) or "none"
        found.append(Verdict("no error in the log", not self.errors, figure))
        return found

    def lines(self) -> list[str]:
        """All of it as text."""
        counted = self.counted
        verdicts = self.verdicts()
        width = max(len(verdict.what) for verdict in verdicts)
        lines = [f"{'kept' if each.kept else 'BROKEN':6}  {each.what:{width}}  {each.figure}" for each in verdicts]
        if len(counted) > 1:
            first, last = counted[0], counted[-1]
            seconds, reviews = last.at - first.at, sum(len(sample.seconds) for sample in counted)
            replica, everything = (
                (getattr(last, name) - getattr(first, name)) / seconds for name in ("cpu", "all_cpu")
            )
            lines.append(
                f"{reviews:,} reviewed requests in {seconds:,.0f} s; of one core the replica took {replica:.1%}, "
                f"and it with the API server, etcd and the clients {everything:.1%}; load average "
                f"{min(sample.load for sample in counted):.1f} to {max(sample.load for sample in counted):.1f}"
            )
        lines += [f"{count:8,}  {what}" for what, count in sorted(self.counts.items())]
        lines += [f"{count:8,.0f}  {what}" for what, count in self.replica.items() if count]
        return lines


def process_memory(pid: int) -> tuple[float, float]:
    """MiB that are resident, and those that no file is behind."""
    status = Path(f"/proc/{pid}/status").read_text()
    resident, anonymous = (re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE) for name in ("VmRSS", "RssAnon"))
    assert resident, f"process {pid} tells of no memory"
    return int(resident[1]) / 1024, int(anonymous[1]) / 1024 if anonymous else math.nan


def process_descriptors(pid: int) -> int:
    """How many are open."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def process_cpu(pids: Sequence[int]) -> float:
    """Seconds that these have used in all; one that has ended counts for nothing."""
    total = 0.0
    for pid in pids:
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / _TICKS
    return total


def staleness(metrics: str) -> Mapping[str, float]:
    """Of each watch, in seconds."""
    found = re.findall(r'^kubevirt_webhook_staleness_seconds\{watch="(.*)"\} (\S+)$', metrics, re.MULTILINE)
    return {watch: float(value) for watch, value in found}


def counters(metrics: str) -> dict[str, float]:
    """What the replica has counted, by the name of the metric, and its result where it has that label alone."""
    found: dict[str, float] = {}
    for name, labels, value in re.findall(r"^(kubevirt_webhook_\w+_total)(?:\{(.*)\})? (\S+)$", metrics, re.MULTILINE):
        result = re.fullmatch(r'result="([^"]*)"', labels)
        key = f"{name} {result[1]}" if result else name
        found[key] = found.get(key, 0.0) + float(value)
    return found


def tasks(metrics: str) -> int:
    """Of the event loop."""
    found = re.search(r"^kubevirt_webhook_event_loop_tasks (\S+)$", metrics, re.MULTILINE)
    assert found, "the replica tells of no tasks"
    return int(float(found[1]))
