"""What the API server and the webhook do at the creation of VMs: calls of webhook entries, and requests for objects."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.support.audited import AuditLog

from .place import Place

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


@dataclass(frozen=True)
class CreationCost:
    """The calls of each webhook entry by its name, and the requests of the webhook's account, by verb and resource."""

    calls: Mapping[str, int]
    requests: Mapping[tuple[str, str], int]

    @property
    def look_ups(self) -> dict[tuple[str, str], int]:
        """The requests for what VMs name; beginnings of watches are none, and neither are verifications of stores."""
        others = ("watch", VERIFY)
        return {
            asked: count for asked, count in self.requests.items() if asked[0] not in others and asked[1] in WATCHED
        }


def create(place: Place, log: AuditLog, count: int, prefix: str) -> CreationCost:
    """The cost of so many VMs without choices, which are not started."""
    asked, before = len(log.requests()), _calls(place)
    for number in range(count):
        place.vm(f"{prefix}-{number}", run="Halted")
    after = _calls(place)
    requests = Counter((verb_of(line), line["objectRef"]["resource"]) for line in log.requests()[asked:])
    spent = {name: calls - before.get(name, 0) for name, calls in after.items()}
    return CreationCost({name: calls for name, calls in spent.items() if calls}, requests)


def verb_of(line: Mapping[str, Any]) -> str:
    """The verb of a line of the API server's audit log; `VERIFY` for a list of one name that asks how far etcd is."""
    query = parse_qs(urlsplit(line["requestURI"]).query)
    return VERIFY if query.get("fieldSelector") == ["metadata.name=kubevirt-webhook"] else str(line["verb"])


def _calls(place: Place) -> dict[str, int]:
    """How many CREATEs each webhook entry has answered."""
    found: dict[str, int] = defaultdict(int)
    text = place.real.plane.kubectl("get", "--raw", "/metrics").stdout
    for family in text_string_to_metric_families(text):
        for sample in family.samples if family.name == _METRIC else ():
            labels = sample.labels
            if labels["operation"] == "CREATE" and sample.name.endswith("_count"):
                found[f"{labels['type']} {labels['name']}"] += int(sample.value)
    return found
