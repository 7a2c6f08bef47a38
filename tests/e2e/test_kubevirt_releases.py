"""KubeVirt is updated under a running server, and its definitions know other fields than its release does."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from functools import partial

import pytest

from tests.builders import review
from tests.definitions import definition
from webhook.kubevirt.definitions import NAMES
from webhook.server.runtime.logs import ServerEvent

from .conftest import NewWebhook, OwnPlane
from .support.kube import Json, eventually
from .support.objects import CRDS, crds
from .support.plane import ControlPlane
from .support.tenant import Tenant
from .support.updates_under_load import (
    CHOSEN,
    Stored,
    fill,
    have_answers,
    interface_of,
    load,
    offer,
    put_interface,
    put_release,
    stored,
    with_steps,
)
from .support.workloads import vm, vmi_of

METRIC = "kubevirt_webhook_kubevirt_release"
OF_1_7, OF_1_8, OF_1_9 = (False, False), (False, True), (True, True)
# Of each step of an update, and of the way back: the version that is installed, and the one that will be.
STEPS = (
    ("v1.8.4", "v1.8.4"),
    ("v1.8.4", "v1.9.0"),
    ("v1.9.0", "v1.9.0"),
    ("v1.9.0", "v1.7.4"),
    ("v1.7.4", "v1.7.4"),
    ("v1.7.4", "v1.6.6"),
    ("v1.6.6", "v1.6.6"),
    ("v1.6.6", "v1.8.4"),
    ("v1.8.4", "v1.8.4"),
)
# The older one of the two.
COUNTING = ("v1.8.4", "v1.8.4", "v1.9.0", "v1.7.4", "v1.7.4", "v1.6.6", "v1.6.6", "v1.6.6", "v1.8.4")


@pytest.fixture(scope="module")
def plane(module_plane: OwnPlane) -> ControlPlane:
    """A control plane whose KubeVirt these tests may change. Its definitions list no fields: releases decide alone."""
    return module_plane(definitions=crds())


@pytest.fixture
def tenant(plane: ControlPlane, new_webhook: NewWebhook) -> Tenant:
    """A namespace with a preference that releases follow in their own ways."""
    server = new_webhook({"schedulers": {}})
    assert server.validates
    put_release(plane, "v1.8.4")
    made = offer(server)
    wait_for(made, OF_1_8)
    return made


def answer(tenant: Tenant) -> tuple[bool, bool]:
    """What tells the releases apart: the panic device, and the member of tlbflush."""
    domain = fill(tenant, tenant.owner)["spec"]["domain"]
    flush: Json = domain.get("features", {}).get("hyperv", {}).get("tlbflush", {})
    return bool(domain["devices"].get("panicDevices")), "direct" in flush


def wait_for(tenant: Tenant, expected: tuple[bool, bool]) -> None:
    eventually(lambda: answer(tenant) == expected, what="the rules of another release")


def references(new_webhook: NewWebhook, plane: ControlPlane) -> list[Stored]:
    """For each step what a server answers that knows one release alone: no switch can have left anything in it."""
    found = {}
    for release in dict.fromkeys(COUNTING):
        server = new_webhook({"schedulers": {}, "kubevirt": {"version": release}})
        assert server.validates
        found[release] = stored(offer(server), plane.admin)[1]
    assert len(set(found.values())) == len(found), "these reviews do not tell the releases apart"
    return [found[release] for release in COUNTING]


def test_an_update_and_the_way_back_are_followed_under_load(
    plane: ControlPlane, tenant: Tenant, new_webhook: NewWebhook
) -> None:
    """Every answer is wholly one release's: the former's until the update is done, then the next one's for good."""
    put_release(plane, *STEPS[0])
    put_interface(plane, 0)
    expected = references(new_webhook, plane)
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


def test_the_definitions_of_the_cluster_decide_whatever_the_release_is_called(
    plane: ControlPlane, tenant: Tenant
) -> None:
    before = {name: plane.admin.get(CRDS, name)["spec"] for name in NAMES.values()}
    put_release(plane, "v1.7.4")
    wait_for(tenant, OF_1_7)

    exchange(plane, VirtualMachineInstance=(), VirtualMachinePreference=(), VirtualMachineClusterPreference=())
    # The same release, built again: its object changes, and so the definitions are read.
    put_release(plane, "v1.7.4+vendor.2")
    # The panic device is a rule, not a field: it stays 1.7's.
    wait_for(tenant, OF_1_8)
    assert tenant.server.metric(METRIC, version="1.7.4", rules="known", fields="definitions") == 1

    # A field that they lack is never written.
    put_release(plane, "v1.9.0")
    wait_for(tenant, OF_1_9)
    assert "/spec/subdomain" in written(tenant)
    exchange(plane, VirtualMachineInstance=["subdomain"])
    put_release(plane, "v1.9.0+vendor.2")
    # The patch of the server itself, since the API server would drop the field without a word.
    eventually(lambda: "/spec/subdomain" not in written(tenant), what="the definitions to be read")
    assert answer(tenant) == OF_1_9
    for name, spec in before.items():
        plane.admin.patch(CRDS, name, {"spec": {"versions": spec["versions"]}})


def exchange(plane: ControlPlane, **without: Iterable[str]) -> None:
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
    asked = review(bare, "owner", namespace=tenant.namespace, name="asked")
    response = tenant.server.ask("/mutate/instancetypes/virtualmachineinstances/enforce", asked)["response"]
    assert response["allowed"], response
    return {operation["path"] for operation in json.loads(base64.b64decode(response["patch"]))}
