"""KubeVirt is updated under a running server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

from webhook.server.runtime.logs import ServerEvent

from .conftest import NewWebhook, OwnPlane
from .support.kube import Kube, KubeError, KubeObject, eventually
from .support.objects import crds
from .support.plane import ControlPlane
from .support.repeated import Repeated
from .support.tenant import Tenant
from .support.webhook_server import DOMAIN, INSTANCETYPES, WebhookServer
from .support.workloads import INSTANCETYPES as SIZES
from .support.workloads import PREFERENCES, VMIS, VMS, instancetype, preference, vm, vmi_of

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
    """What the API server says to a bare VMI and to a VM whose memory its instancetype sizes too, as JSON, in whole.

    The stored VMI differs in releases since 1.7; the VM, or why there is none, differs in 1.6 from the others.
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


# Of each step of an update, and of the way back: the version that is installed, and the one that will be.
STEPS = (("v1.8.4", "v1.8.4"), ("v1.8.4", "v1.9.0"), ("v1.9.0", "v1.9.0"), ("v1.9.0", "v1.6.6"), ("v1.6.6", "v1.6.6"))
# The older one of the two.
COUNTING = ("v1.8.4", "v1.8.4", "v1.9.0", "v1.6.6", "v1.6.6")


def references(new_webhook: NewWebhook, plane: ControlPlane) -> list[Stored]:
    """For each step what a server answers that knows one release alone: no switch can have left anything in it."""
    found = {}
    for release in dict.fromkeys(COUNTING):
        server = new_webhook({"schedulers": {}, "kubevirt": {"version": release}}, access=plane)
        assert server.validates
        found[release] = stored(offer(server), plane.admin)[1]
    assert len(set(found.values())) == len(found), "these reviews do not tell the releases apart"
    return [found[release] for release in COUNTING]


def test_an_update_and_the_way_back_are_followed_under_load(own_plane: OwnPlane, new_webhook: NewWebhook) -> None:
    """Every answer is wholly one release's: the former's until the update is done, then the next one's for good."""
    # Its definitions list no fields: releases decide alone.
    plane = own_plane(definitions=crds())
    server = new_webhook({"schedulers": {}}, access=plane)
    assert server.validates
    put_release(plane, *STEPS[0])
    put_interface(plane, 0)
    tenant, expected = offer(server), references(new_webhook, plane)
    eventually(
        lambda: stored(tenant, tenant.owner) == (interface_of(0), expected[0]), what="the first step to be known"
    )

    with load(tenant) as reviewers:
        for number in range(len(STEPS)):
            put_release(plane, *STEPS[number])
            put_interface(plane, number)
            eventually(partial(have_answers, reviewers, number), what=f"answers of step {number}")

    for answers in reviewers:
        before = 0
        for number, answer in with_steps(answers):
            # The interface is written after the versions, so those of the next step may count already.
            assert answer.vmi in {each.vmi for each in expected[number : number + 2]}
            # The VM was admitted before the VMI that shows the step.
            assert answer.vm in {each.vm for each in expected[before : number + 2]}
            before = number
        # A server that went back to a former step would make them more.
        assert before == len(STEPS) - 1
    assert len(tenant.server.events(ServerEvent.API_SERVER_READ)) == 1, "it was restarted"
