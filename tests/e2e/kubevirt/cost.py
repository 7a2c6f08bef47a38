"""What the creation of VMs costs at admission, as the API server itself counts it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.audited import AuditLog

from .place import Place

_METRIC: Final = "apiserver_admission_webhook_admission_duration_seconds"
# What VMs name, or get by their labels.
WATCHED: Final = frozenset(
    {
        "virtualmachineinstancetypes",
        "virtualmachineclusterinstancetypes",
        "virtualmachinepreferences",
        "virtualmachineclusterpreferences",
        "virtualmachineinstancepresets",
    }
)

Buckets = Mapping[float, float]


@dataclass(frozen=True)
class Cost:
    """What some VMs cost.

    Attributes:
        vms: that were created.
        calls: of each webhook entry, by its name.
        medians: of the time that the API server waited for each, in seconds.
        requests: of our account meanwhile: by verb and resource.
    """

    vms: int
    calls: Mapping[str, int]
    medians: Mapping[str, float]
    requests: Mapping[tuple[str, str], int]

    @property
    def look_ups(self) -> dict[tuple[str, str], int]:
        """The requests for what VMs name; beginnings of watches are none."""
        return {asked: count for asked, count in self.requests.items() if asked[0] != "watch" and asked[1] in WATCHED}

    def lines(self) -> list[str]:
        """For people to read."""
        entries = sorted(self.medians, key=lambda name: ("kubevirt-webhook" not in name, name))
        width = max(map(len, entries))
        return [
            f"{self.vms} VMs",
            *(
                f"{name:{width}}  {self.calls[name]:5} calls  p50 {self.medians[name] * 1e3:6.2f} ms"
                for name in entries
            ),
            *(f"{verb} {what}: {count / self.vms:.2f} a VM" for (verb, what), count in sorted(self.requests.items())),
        ]


def create(place: Place, log: AuditLog, count: int, prefix: str) -> Cost:
    """What so many VMs cost that say nothing and are not started."""
    asked, before = len(log.requests()), _durations(place)
    for number in range(count):
        place.vm(f"{prefix}-{number}", run="Halted")
    after = _durations(place)
    requests = Counter((line["verb"], line["objectRef"]["resource"]) for line in log.requests()[asked:])
    spent = {name: _difference(buckets, before.get(name, {})) for name, buckets in after.items()}
    called = {name: buckets for name, buckets in spent.items() if max(buckets.values()) > 0}
    calls = {name: int(max(buckets.values())) for name, buckets in called.items()}
    return Cost(count, calls, {name: median(buckets) for name, buckets in called.items()}, requests)


def _durations(place: Place) -> dict[str, dict[float, float]]:
    """How many CREATEs each webhook entry has answered within how many seconds."""
    found: dict[str, dict[float, float]] = defaultdict(lambda: defaultdict(float))
    text = place.real.plane.kubectl("get", "--raw", "/metrics").stdout
    for family in text_string_to_metric_families(text):
        for sample in family.samples if family.name == _METRIC else ():
            labels = sample.labels
            if sample.name.endswith("_bucket") and labels["operation"] == "CREATE":
                found[f"{labels['type']} {labels['name']}"][float(labels["le"])] += sample.value
    return found


def _difference(after: Buckets, before: Buckets) -> dict[float, float]:
    return {edge: count - before.get(edge, 0.0) for edge, count in after.items()}


def median(buckets: Buckets) -> float:
    """The median of a histogram whose buckets count all below their edge, as Prometheus reckons it."""
    half, lower, below = max(buckets.values()) / 2, 0.0, 0.0
    for edge, count in sorted(buckets.items()):
        if count >= half:
            # Beyond the last edge nothing is known.
            return lower if edge == float("inf") else lower + (edge - lower) * (half - below) / (count - below)
        lower, below = edge, count
    raise ValueError("a histogram without buckets")
