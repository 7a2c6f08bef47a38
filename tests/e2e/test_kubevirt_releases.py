"""KubeVirt is updated under a running server."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from itertools import groupby

import pytest

from .conftest import NewWebhook, OwnPlane
from .support.kube import eventually
from .support.objects import crds
from .support.plane import ControlPlane
from .support.repeated import Repeated
from .support.tenant import Tenant
from .support.webhook_server import DOMAIN, INSTANCETYPES
from .support.workloads import PREFERENCES, VMIS, preference, vm, vmi_of

KUBEVIRTS = "kubevirt.io/v1/kubevirts"
# KubeVirt 1.9 adds a panic device, and since 1.8 it knows the member of tlbflush.
WISHES = {
    "devices": {"preferredPanicDeviceModel": "isa"},
    "features": {"preferredHyperv": {"tlbflush": {"direct": {}}}},
}
# By whether a VMI gets the device, and the member: no release gives the first alone.
RELEASES = {(True, True): "1.9", (False, True): "1.8", (False, False): "1.6"}
# Of each step of an update, and of the way back: the version that is installed, the one that will be, and what a VMI
# then gets: the interface of VMIs that name none, which tells the steps apart, and the older one of the two releases.
STEPS = (
    ("v1.8.4", "v1.8.4", ("bridge", "1.8")),
    ("v1.8.4", "v1.9.0", ("masquerade", "1.8")),
    ("v1.9.0", "v1.9.0", ("bridge", "1.9")),
    ("v1.9.0", "v1.6.6", ("masquerade", "1.6")),
    ("v1.6.6", "v1.6.6", ("bridge", "1.6")),
)
SETTLED = [answer for *_, answer in STEPS]
# The interface is written after the versions, so those of the next step may count already.
ORDER = [*SETTLED[:2], ("masquerade", "1.9"), SETTLED[2], ("bridge", "1.6"), *SETTLED[3:]]
REVIEWERS, ENOUGH = 4, 6


def take(plane: ControlPlane, observed: str, target: str, interface: str) -> None:
    """Writes what KubeVirt's operator and the admin write into the KubeVirt object."""
    status = {"phase": "Deployed", "observedKubeVirtVersion": observed, "targetKubeVirtVersion": target}
    plane.admin.patch(KUBEVIRTS, "kubevirt", {"status": status}, "kubevirt", subresource="status")
    network = {"network": {"defaultNetworkInterface": interface}}
    plane.admin.patch(KUBEVIRTS, "kubevirt", {"spec": {"configuration": network}}, "kubevirt")


def reviewed(tenant: Tenant) -> tuple[str, str]:
    """The interface and the release of a bare VMI, as the API server would store it."""
    bare = vmi_of(vm("probe"))
    bare["metadata"]["annotations"] = {f"{DOMAIN}/preference": "VirtualMachinePreference/linux"}
    domain = tenant.owner.create(VMIS, bare, tenant.namespace, dryRun="All")["spec"]["domain"]
    (interface,) = domain["devices"]["interfaces"]
    (kind,) = interface.keys() - {"name", "model"}
    tlbflush = domain["features"]["hyperv"]["tlbflush"]
    return kind, RELEASES["panicDevices" in domain["devices"], "direct" in tlbflush]


class Reviewer(Repeated):
    """Asks again and again, and keeps the answers in their order."""

    # Without one, reviewers would take the processor from the server that is to learn of the step.
    PAUSE_SECONDS = 0.05

    def __init__(self, tenant: Tenant) -> None:
        super().__init__()
        self.answers: list[tuple[str, str]] = []
        self._tenant = tenant

    def step(self) -> None:
        self.answers.append(reviewed(self._tenant))


@pytest.mark.control("mixed-releases")
def test_an_update_and_the_way_back_are_followed_under_load(own_plane: OwnPlane, new_webhook: NewWebhook) -> None:
    """Every answer is wholly one release's: the former's until the update is done, then the next one's for good."""
    # Its definitions list no fields: releases decide alone.
    plane = own_plane(definitions=crds())
    tenant = Tenant.new(new_webhook({"schedulers": {}}, access=plane), "enforce", [INSTANCETYPES])
    tenant.owner.create(PREFERENCES, preference("linux", **WISHES), tenant.namespace)
    take(plane, *STEPS[0][:2], STEPS[0][2][0])
    eventually(lambda: reviewed(tenant) == SETTLED[0], what="the first step to be known")

    with ExitStack() as running:
        reviewers = [running.enter_context(Reviewer(tenant)).answers for _ in range(REVIEWERS)]

        def know(answer: tuple[str, str]) -> bool:
            return all(answers[-ENOUGH:] == [answer] * ENOUGH for answers in reviewers)

        for observed, target, answer in STEPS:
            take(plane, observed, target, answer[0])
            eventually(partial(know, answer), what=f"answers of {answer}")

    for answers in reviewers:
        seen = [answer for answer, _ in groupby(answers)]
        order = iter(ORDER)
        # A server that went back to a former step would break the order.
        assert all(answer in order for answer in seen), seen
        assert seen[-1] == SETTLED[-1]
    assert len(tenant.server.events("cluster objects read from the API server")) == 1, "it was restarted"
