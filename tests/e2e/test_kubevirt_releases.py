"""KubeVirt is updated under a running server, and its definitions know other fields than its release does."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from tests.definitions import definition
from webhook.kubevirt.definitions import NAMES
from webhook.releases import fields
from webhook.runtime.events import ServerEvent

from .conftest import NewWebhook, OwnPlane
from .support.kube import Json, Kube, KubeObject, eventually
from .support.objects import CRDS
from .support.pki import ADMIN
from .support.plane import CRD_BUNDLE, ControlPlane
from .support.tenant import Tenant
from .support.webhook_server import DOMAIN, INSTANCETYPES
from .support.workloads import PREFERENCES, VMIS, preference, vm, vmi_of

KUBEVIRTS = "kubevirt.io/v1/kubevirts"
METRIC = "kubevirt_webhook_kubevirt_release"
CHOSEN = f"{DOMAIN}/preference"
# KubeVirt 1.9 adds a panic device, since 1.8 it knows the member of tlbflush, and all releases know the subdomain.
WISHES = {
    "devices": {"preferredPanicDeviceModel": "isa"},
    "features": {"preferredHyperv": {"tlbflush": {"direct": {}}}},
    "preferredSubdomain": "guests",
}
OF_1_7, OF_1_8, OF_1_9 = (False, False), (False, True), (True, True)
REVIEWERS = 4


@pytest.fixture(scope="module")
def plane(module_plane: OwnPlane) -> ControlPlane:
    """A control plane whose KubeVirt these tests may change. Its definitions list no fields: releases decide alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(CRD_BUNDLE, raising=False)
        return module_plane()


@pytest.fixture
def tenant(plane: ControlPlane, new_webhook: NewWebhook) -> Tenant:
    """A namespace with a preference that releases follow in their own ways."""
    server = new_webhook({"schedulers": {}})
    assert server.validates
    put_release(plane, "v1.8.4")
    made = Tenant.new(server, "enforce", [INSTANCETYPES])
    made.owner.create(PREFERENCES, preference("linux", **WISHES), made.namespace)
    wait_for(made, OF_1_8)
    return made


def put_release(plane: ControlPlane, observed: str, target: str = "") -> None:
    """What KubeVirt's operator writes into its object."""
    status = {"phase": "Deployed", "observedKubeVirtVersion": observed, "targetKubeVirtVersion": target or observed}
    plane.admin.patch(KUBEVIRTS, "kubevirt", {"status": status}, "kubevirt", subresource="status")


def fill(tenant: Tenant, owner: Kube | None = None) -> KubeObject:
    """A bare VMI as the API server would store it."""
    bare = vmi_of(vm("probe"))
    bare["metadata"]["annotations"] = {CHOSEN: "VirtualMachinePreference/linux"}
    return (owner or tenant.owner).create(VMIS, bare, tenant.namespace, dryRun="All")


def answer(tenant: Tenant, owner: Kube | None = None) -> tuple[bool, bool]:
    """What tells the releases apart: the panic device, and the member of tlbflush."""
    domain = fill(tenant, owner)["spec"]["domain"]
    flush: Json = domain.get("features", {}).get("hyperv", {}).get("tlbflush", {})
    return bool(domain["devices"].get("panicDevices")), "direct" in flush


def wait_for(tenant: Tenant, expected: tuple[bool, bool]) -> None:
    eventually(lambda: answer(tenant) == expected, what="the rules of another release")


def is_longer(answers: list[tuple[bool, bool]], length: int) -> bool:
    return len(answers) > length


@contextmanager
def load(tenant: Tenant) -> Iterator[list[tuple[bool, bool]]]:
    """Reviews without a pause, whose answers it lists in their order."""
    answers: list[tuple[bool, bool]] = []
    over = threading.Event()
    wrong: list[BaseException] = []

    def review() -> None:
        owner = tenant.server.access.kube(*ADMIN)
        try:
            while not over.is_set():
                answers.append(answer(tenant, owner))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=review) for _ in range(REVIEWERS)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_an_update_and_the_way_back_are_followed_under_load(plane: ControlPlane, tenant: Tenant) -> None:
    """Every answer is one release's: the former's until the update is done, then the next one's."""
    steps = (
        ("v1.8.4", "v1.9.0", OF_1_8),
        ("v1.9.0", "", OF_1_9),
        ("v1.9.0", "v1.7.4", OF_1_7),
        ("v1.7.4", "", OF_1_7),
        ("v1.7.4", "v1.8.4", OF_1_7),
        ("v1.8.4", "", OF_1_8),
    )
    former = OF_1_8
    with load(tenant) as answers:
        for observed, target, expected in steps:
            since = len(answers)
            put_release(plane, observed, target)
            wait_for(tenant, expected)
            until = len(answers)
            eventually(partial(is_longer, answers, until + 40), what="more reviews")
            assert set(answers[since:]) <= {former, expected}
            # A review that was under way when the release changed may end after one that came later.
            assert set(answers[until + REVIEWERS :]) == {expected}
            former = expected
    assert len(answers) > 200
    assert len(tenant.server.events(ServerEvent.API_SERVER_READ)) == 1, "it was restarted"


class TestDefinitionsOfReleases:
    """What the API server of the cluster keeps decides, whatever the release is called."""

    @pytest.fixture
    def defined(self, plane: ControlPlane) -> Iterator[Any]:
        """Exchanges the definitions of some kinds; afterwards they are as before."""
        before = {name: plane.admin.get(CRDS, name)["spec"] for name in NAMES.values()}
        yield lambda **without: exchange(plane, without)
        for name, spec in before.items():
            plane.admin.patch(CRDS, name, {"spec": {"versions": spec["versions"]}})

    def test_a_field_that_they_have_counts_though_the_release_is_older(
        self, plane: ControlPlane, tenant: Tenant, defined: Any
    ) -> None:
        put_release(plane, "v1.7.4")
        wait_for(tenant, OF_1_7)

        defined(VirtualMachineInstance=(), VirtualMachinePreference=(), VirtualMachineClusterPreference=())
        # The same release, built anew: its object changes, and so the definitions are read.
        put_release(plane, "v1.7.4+vendor.2")

        # The panic device is a rule, not a field: it stays 1.7's.
        wait_for(tenant, OF_1_8)
        assert tenant.server.metric(METRIC, version="1.7.4", rules="known", fields="definitions") == 1

    def test_a_field_that_they_lack_is_never_written(self, plane: ControlPlane, tenant: Tenant, defined: Any) -> None:
        put_release(plane, "v1.9.0")
        wait_for(tenant, OF_1_9)
        assert "/spec/subdomain" in written(tenant)

        defined(VirtualMachineInstance=["subdomain"])
        put_release(plane, "v1.9.0+vendor.2")

        # The patch of the server itself, since the API server would drop the field without a word.
        eventually(lambda: "/spec/subdomain" not in written(tenant), what="the definitions to be read")
        assert answer(tenant) == OF_1_9


def exchange(plane: ControlPlane, without: dict[str, Any]) -> None:
    """Gives kinds definitions that list their fields, all but some."""
    for kind, paths in without.items():
        crd = plane.admin.get(CRDS, NAMES[kind])
        whole = definition(kind, paths)["spec"]["versions"][-1]["schema"]["openAPIV3Schema"]
        schema = {**whole, "x-kubernetes-preserve-unknown-fields": True}
        versions = [{**version, "schema": {"openAPIV3Schema": schema}} for version in crd["spec"]["versions"]]
        plane.admin.patch(CRDS, NAMES[kind], {"spec": {"versions": versions}})


def written(tenant: Tenant) -> set[str]:
    """The paths that the patch of a bare VMI writes, of the members of ``spec`` alone."""
    bare = vmi_of(vm("asked"))
    bare["metadata"] |= {"namespace": tenant.namespace, "annotations": {CHOSEN: "VirtualMachinePreference/linux"}}
    kind = {"group": "kubevirt.io", "version": "v1", "kind": fields.MACHINE}
    request = {
        "uid": "asked",
        "kind": kind,
        "resource": {"group": "kubevirt.io", "version": "v1", "resource": "virtualmachineinstances"},
        "namespace": tenant.namespace,
        "name": "asked",
        "operation": "CREATE",
        "userInfo": {"username": "owner"},
        "object": bare,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    response = tenant.server.ask("/mutate/instancetypes/virtualmachineinstances/enforce", review)["response"]
    assert response["allowed"], response
    return {operation["path"] for operation in json.loads(base64.b64decode(response["patch"]))}
