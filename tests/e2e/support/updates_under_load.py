"""Reviews all the while that KubeVirt is updated, by the steps of the update that the server knew."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from .kube import Kube, KubeError, KubeObject
from .plane import ControlPlane
from .repeated import Repeated
from .tenant import Tenant
from .webhook_server import DOMAIN, INSTANCETYPES, WebhookServer
from .workloads import INSTANCETYPES as SIZES
from .workloads import PREFERENCES, VMIS, VMS, instancetype, preference, vm, vmi_of

KUBEVIRTS = "kubevirt.io/v1/kubevirts"
CHOSEN = f"{DOMAIN}/preference"
# KubeVirt 1.9 adds a panic device, since 1.8 it knows the member of tlbflush, and all releases know the subdomain.
WISHES = {
    "devices": {"preferredPanicDeviceModel": "isa"},
    "features": {"preferredHyperv": {"tlbflush": {"direct": {}}}},
    "preferredSubdomain": "guests",
}
REVIEWERS, ENOUGH = 4, 6
# What KubeVirt makes the interface of VMs that name none, at every other step: it tells the steps apart.
INTERFACES = ("bridge", "masquerade")


@dataclass(frozen=True)
class Stored:
    """What the API server says to a bare VMI and to a VM whose memory its instancetype sizes too, in whole.

    Attributes:
        vmi: the stored VMI, as JSON; releases since 1.7 differ in it.
        vm: the stored VM, as JSON, or why there is none; 1.6 differs in it from the others.
    """

    vmi: str
    vm: str


# The interface of the last step that the server knew, and its answers.
Answers = list[tuple[str, Stored]]


def offer(server: WebhookServer) -> Tenant:
    """A namespace of a server, with a preference and an instancetype that releases follow in their own ways."""
    made = Tenant.new(server, "enforce", [INSTANCETYPES])
    made.owner.create(PREFERENCES, preference("linux", **WISHES), made.namespace)
    made.owner.create(SIZES, instancetype("small", cluster=False), made.namespace)
    return made


def put_release(plane: ControlPlane, observed: str, target: str = "") -> None:
    """What KubeVirt's operator writes into its object."""
    status = {"phase": "Deployed", "observedKubeVirtVersion": observed, "targetKubeVirtVersion": target or observed}
    plane.admin.patch(KUBEVIRTS, "kubevirt", {"status": status}, "kubevirt", subresource="status")


def put_interface(plane: ControlPlane, number: int) -> None:
    """Written after all else that changes at a step, so that a server which knows it knows that too."""
    network = {"defaultNetworkInterface": interface_of(number)}
    change = {"spec": {"configuration": {"network": network}}}
    plane.admin.patch(KUBEVIRTS, "kubevirt", change, "kubevirt")


def fill(tenant: Tenant, owner: Kube) -> KubeObject:
    """A bare VMI as the API server would store it."""
    bare = vmi_of(vm("probe"))
    bare["metadata"]["annotations"] = {CHOSEN: "VirtualMachinePreference/linux"}
    return owner.create(VMIS, bare, tenant.namespace, dryRun="All")


def interface_of(number: int) -> str:
    return INTERFACES[number % len(INTERFACES)]


def stored(tenant: Tenant, owner: Kube) -> tuple[str, Stored]:
    """The interface of the last step that the server knew, and what is stored but for that."""
    sized = vm("probe", instancetype={"kind": "VirtualMachineInstancetype", "name": "small"})
    sized["spec"]["template"]["spec"]["domain"]["memory"] = {"hugepages": {"pageSize": "2Mi"}}
    try:
        answered = comparable(owner.create(VMS, sized, tenant.namespace, dryRun="All"))
    except KubeError as error:
        answered = f"{error.status} {error.message}"
    vmi = fill(tenant, owner)
    (interface,) = vmi["spec"]["domain"]["devices"].pop("interfaces")
    (kind,) = interface.keys() & set(INTERFACES)
    return kind, Stored(comparable(vmi), answered)


def comparable(obj: KubeObject) -> str:
    """All of an object that is not the API server's own."""
    metadata = {name: obj["metadata"].get(name) for name in ("labels", "annotations")}
    return json.dumps({"metadata": metadata, "spec": obj["spec"]}, sort_keys=True)


class Reviewer(Repeated):
    """Asks again and again, and keeps the answers in their order."""

    # Without one, reviewers would take the processor from the server that is to learn of the step.
    PAUSE_SECONDS = 0.05

    def __init__(self, tenant: Tenant) -> None:
        super().__init__()
        self.answers: Answers = []
        self._tenant = tenant

    def step(self) -> None:
        """Ask once."""
        self.answers.append(stored(self._tenant, self._tenant.owner))


@contextmanager
def load(tenant: Tenant) -> Iterator[list[Answers]]:
    """The answers of each of some reviewers, who ask meanwhile."""
    with ExitStack() as running:
        yield [running.enter_context(Reviewer(tenant)).answers for _ in range(REVIEWERS)]


def have_answers(reviewers: list[Answers], number: int) -> bool:
    """Whether each reviewer has some answers of a server that knows a step."""
    kinds = [[kind for kind, _ in answers[-ENOUGH:]] for answers in reviewers]
    return all(each == [interface_of(number)] * ENOUGH for each in kinds)


def with_steps(answers: Answers) -> Iterator[tuple[int, Stored]]:
    """One reviewer's answers, with the last step that the server knew: the interface changes from step to step."""
    number = 0
    for kind, answer in answers:
        number += kind != interface_of(number)
        yield number, answer
