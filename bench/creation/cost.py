"""The cost of creating VMs at admission, as the API server itself counts it."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.kubevirt.place import Place
from tests.e2e.support.audited import AuditLog

_METRIC: Final = "apiserver_admission_webhook_admission_duration_seconds"
# The objects that VMs name, or get by their labels.
WATCHED: Final = frozenset(
    {
        "virtualmachineinstancetypes",
        "virtualmachineclusterinstancetypes",
        "virtualmachinepreferences",
        "virtualmachineclusterpreferences",
        "virtualmachineinstancepresets",
    }
)

# What `webhook.k8s.client.reflector.Reflector.verify` asks for every ten seconds, whatever is created.
VERIFY: Final = "verify"

Buckets = Mapping[float, float]


@dataclass(frozen=True)
class CreationCost:
    """The cost of some VMs: calls of each webhook entry by its name, the median and the mean of the seconds that the
    API server waited for each, and the requests of the webhook's account meanwhile, by verb and resource.

    The API server's buckets end at 5, 25 and 100 ms; between two of them a median is a guess, and a mean is exact.
    """

    vms: int
    calls: Mapping[str, int]
    medians: Mapping[str, float]
    means: Mapping[str, float]
    requests: Mapping[tuple[str, str], int]

    @property
    def look_ups(self) -> dict[tuple[str, str], int]:
        """The requests for what VMs name; beginnings of watches are none, and neither are verifications of stores."""
        others = ("watch", VERIFY)
        return {
            asked: count for asked, count in self.requests.items() if asked[0] not in others and asked[1] in WATCHED
        }

    def lines(self) -> list[str]:
        entries = sorted(self.medians, key=lambda name: ("kubevirt-webhook" not in name, name))
        width = max(map(len, entries))
        return [
            f"{self.vms} VMs",
            *(f"{name:{width}}  {self.calls[name]:5} calls  {self._times(name)}" for name in entries),
            *(f"{verb} {what}: {count / self.vms:.2f} a VM" for (verb, what), count in sorted(self.requests.items())),
        ]

    def _times(self, name: str) -> str:
        return f"p50 {_ms(self.medians[name])}  mean {_ms(self.means[name])}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:6.2f} ms"


def create(place: Place, log: AuditLog, count: int, prefix: str, pause: float = 0.0) -> CreationCost:
    """The cost of so many VMs without choices, which are not started.

    With a pause (in seconds, before each) KubeVirt's controllers are done with the last VM by then, and don't compete
    with the next one's reviews for the processor.
    """
    asked, (before, sums) = len(log.requests()), _durations(place)
    for number in range(count):
        time.sleep(pause)
        place.vm(f"{prefix}-{number}", run="Halted")
    after, later = _durations(place)
    requests = Counter((verb_of(line), line["objectRef"]["resource"]) for line in log.requests()[asked:])
    spent = {name: _difference(buckets, before.get(name, {})) for name, buckets in after.items()}
    called = {name: buckets for name, buckets in spent.items() if max(buckets.values()) > 0}
    calls = {name: int(max(buckets.values())) for name, buckets in called.items()}
    medians = {name: median(buckets) for name, buckets in called.items()}
    means = {name: (later[name] - sums.get(name, 0.0)) / called for name, called in calls.items()}
    return CreationCost(count, calls, medians, means, requests)


def verb_of(line: Mapping[str, Any]) -> str:
    """The verb of a line of the API server's audit log; `VERIFY` for a list of one name that asks how far etcd is."""
    query = parse_qs(urlsplit(line["requestURI"]).query)
    return VERIFY if query.get("fieldSelector") == ["metadata.name=kubevirt-webhook"] else str(line["verb"])


def _durations(place: Place) -> tuple[dict[str, dict[float, float]], dict[str, float]]:
    """How many CREATEs each webhook entry has answered within how many seconds, and the seconds of all of them."""
    sums: dict[str, float] = defaultdict(float)
    found: dict[str, dict[float, float]] = defaultdict(lambda: defaultdict(float))
    text = place.real.plane.kubectl("get", "--raw", "/metrics").stdout
    for family in text_string_to_metric_families(text):
        for sample in family.samples if family.name == _METRIC else ():
            labels = sample.labels
            entry = f"{labels['type']} {labels['name']}"
            if labels["operation"] == "CREATE" and sample.name.endswith("_bucket"):
                found[entry][float(labels["le"])] += sample.value
            elif labels["operation"] == "CREATE" and sample.name.endswith("_sum"):
                sums[entry] += sample.value
    return found, sums


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
