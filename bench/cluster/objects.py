"""The objects that are created: launcher pods and VMs as a real API server got them, and pods of somebody else."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from bench.cluster.plane import CreationPlane
from bench.placement.client import SchedulingRequest
from bench.placement.webhook import MACHINES
from bench.reviews.payloads import POD, VM
from tests.e2e.support.pki import ADMIN, KUBEVIRT_CONTROLLER, Identity
from webhook import names

Body = Mapping[str, Any]
SCHEDULER: Final = "kubevirt"
_CLUSTER: Final = Path(__file__).parents[1] / "reviews" / "cluster" / "machines.yaml"
_NAMED: Final = ("VirtualMachineInstancetype", "VirtualMachinePreference")
# What an API server writes, or the request's path says: in metadata and in spec.
_NOT_SENT: Final[Mapping[str, Sequence[str]]] = {
    "metadata": ("creationTimestamp", "managedFields", "namespace", "name", "uid"),
    "spec": ("schedulerName", "priority", "preemptionPolicy", "tolerations"),
}
# As the pods of Kyverno's published measurements (docs/perf-testing of its repository): nothing of KubeVirt.
_STRANGER: Final[Body] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "perf-"},
    "spec": {
        "containers": [{"name": "busybox", "image": "busybox:latest", "command": ["sh", "-c", "sleep 30"]}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "type", "operator": "In", "values": ["kwok"]}]}]
                }
            }
        },
        "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists", "effect": "NoSchedule"}],
    },
}


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """A kind of objects that are created.

    Attributes:
        key: what figures are kept under.
        plural: how tables call them.
        api: where its API is in the API server.
        resource: its plural name.
        template: the path to what has a pod's spec.
        sender: who creates them.
        patch: the option of the empty webhook that has a patch for all of them.
    """

    key: str
    plural: str
    api: str
    resource: str
    template: tuple[str, ...]
    sender: Identity
    patch: str = ""

    @property
    def field(self) -> tuple[str, ...]:
        """The path to the scheduler's name."""
        return (*self.template, "spec", "schedulerName")

    def path(self, namespace: str) -> str:
        """Where they are created."""
        return f"/{self.api}/namespaces/{namespace}/{self.resource}?dryRun=All"

    def scheduler(self, item: Body) -> str | None:
        """The scheduler's name in an object."""
        found: Any = item
        for segment in self.field:
            found = found.get(segment, {})
        return found or None


LAUNCHER: Final = ObjectKind("pod", "launcher pods", "api/v1", "pods", (), KUBEVIRT_CONTROLLER, "-pod-patch")
MACHINE: Final = ObjectKind(
    *("vm", "VMs", "apis/kubevirt.io/v1", "virtualmachines", ("spec", "template"), ADMIN, "-vm-patch")
)
# In a namespace that no webhook or policy was set up for.
ELSEWHERE: Final = ObjectKind("elsewhere", "pods elsewhere", "api/v1", "pods", (), ADMIN)


def bodies(kind: ObjectKind, machines: Sequence[Body]) -> list[Body]:
    """The objects of a kind, to be created by turns.

    Args:
        machines: the VMIs of the namespace, each of which has a launcher pod.
    """
    if kind == ELSEWHERE:
        return [_STRANGER]
    if kind == MACHINE:
        return [_sent(VM.file, "vm-")]
    return [_launcher(machine) for machine in machines]


def make_machines(plane: CreationPlane, namespace: str, count: int) -> list[Body]:
    """VMIs whose owners chose no scheduler, beside what the VM names."""
    documents = [*yaml.safe_load_all(_CLUSTER.read_bytes())]
    for document in documents:
        if document["kind"] in _NAMED:
            plane.admin.make({**document, "metadata": {"name": document["metadata"]["name"]}}, namespace)
    (owner,) = (each for each in documents if each["metadata"]["name"] == POD.varied)
    metadata = {"labels": owner["metadata"]["labels"]}
    made = [
        {**owner, "metadata": {**metadata, "name": f"pool-{number}"}, "status": {"phase": "Pending"}}
        for number in range(count)
    ]
    version, _, plural = MACHINES.rpartition("/")
    with plane.controller_client() as client:
        path = f"/apis/{version}/namespaces/{namespace}/{plural}"
        return [*client.send_all(SchedulingRequest("POST", path, each) for each in made)]


def fixed_patches() -> list[str]:
    """Options of the empty webhook, for patches that write what kubevirt-webhook writes into these objects."""
    annotation = f"/metadata/annotations/{names.INJECTED_SCHEDULER_ANNOTATION.replace('/', '~1')}"
    options = []
    for kind in (LAUNCHER, MACHINE):
        template = "".join(f"/{segment}" for segment in kind.template)
        paths = dict.fromkeys((annotation, f"{template}{annotation}", f"{template}/spec/schedulerName"))
        operations = [{"op": "add", "path": path, "value": SCHEDULER} for path in paths]
        options += [kind.patch, json.dumps(operations)]
    return options


def _launcher(machine: Body) -> Body:
    """The recorded launcher pod as that of another VMI."""
    name, uid = machine["metadata"]["name"], machine["metadata"]["uid"]
    pod = _sent(POD.file, f"virt-launcher-{name}-")
    (owner,) = pod["metadata"]["ownerReferences"]
    owner |= {"name": name, "uid": uid}
    pod["metadata"]["labels"] |= {
        "kubevirt.io/created-by": uid,
        "vm.kubevirt.io/name": name,
        "vmi.kubevirt.io/id": name,
    }
    pod["metadata"]["annotations"]["kubevirt.io/domain"] = name
    return pod


def _sent(review: Path, generate_name: str) -> dict[str, Any]:
    """The object of a recorded review, as a client sends it."""
    item: dict[str, Any] = copy.deepcopy(json.loads(review.read_bytes())["request"]["object"])
    for part, fields in _NOT_SENT.items():
        item[part] = {field: value for field, value in item[part].items() if field not in fields}
    item["metadata"]["generateName"] = generate_name
    item.pop("status", None)
    return item
