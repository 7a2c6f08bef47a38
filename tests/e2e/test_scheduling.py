"""The scheduling policy on VMs, VMIs and virt-launcher pods; namespaces and modes of both policies that write."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from .conftest import SCHEDULERS, ModuleWebhook, NewTenant
from .support.access import Access
from .support.foreign_webhook import Labeller
from .support.kube import Json, Kube, KubeObject, eventually
from .support.messages import parse
from .support.objects import launcher_pod
from .support.sizes import DEFAULTS, LARGE, is_ours, marks_of, matchers_of, named, offer
from .support.tenant import Tenant
from .support.webhook_server import INSTANCETYPES, SCHEDULING, WebhookServer
from .support.workloads import MARK, OLD_VMS, PODS, VMIS, VMS, launcher_of, scheduler_of, vm, vmi_of


def scheduler_marks_of(found: Mapping[str, Any]) -> list[str | None]:
    both = (found["metadata"], found["spec"]["template"]["metadata"])
    return [metadata.get("annotations", {}).get(MARK) for metadata in both]


def has_our_scheduler(found: Mapping[str, Any]) -> bool:
    """Whether the webhook chose a VM's scheduler; it writes the field and both annotations together."""
    written = {scheduler_of(found), *scheduler_marks_of(found)}
    assert written in ({"kubevirt"}, {None})
    return written == {"kubevirt"}


def test_a_vm_whose_owner_chose_nothing(tenant: Tenant) -> None:
    created = tenant.create(vm())
    assert has_our_scheduler(created)
    assert created.warnings == ()
    assert tenant.owner.get(VMS, "web", tenant.namespace) == created

    overwritten = tenant.overwrite(created, vm(runStrategy="Halted"))
    assert has_our_scheduler(overwritten)
    assert overwritten["spec"]["runStrategy"] == "Halted"
    change = [{"op": "remove", "path": "/spec/template/spec/schedulerName"}]
    assert scheduler_of(tenant.owner.patch(VMS, "web", change, tenant.namespace, kind="json")) is None
    # The API server does not even call the webhook for an owner who takes the field out.
    assert tenant.verdicts() == ["patched scheduler-injected", "patched scheduler-preserved"]

    older = {**vm("older"), "apiVersion": "kubevirt.io/v1alpha3"}
    assert has_our_scheduler(tenant.create(vm("empty", scheduler="")))
    assert tenant.owner.create(OLD_VMS, older, tenant.namespace)["apiVersion"] == "kubevirt.io/v1alpha3"
    assert has_our_scheduler(tenant.owner.get(VMS, "older", tenant.namespace))


@pytest.fixture
def of_vmis(module_webhook: ModuleWebhook, new_tenant: NewTenant) -> Tenant:
    """A namespace of a server that matches VMIs and not VMs."""
    switches = {"virtualMachines": False, "virtualMachineInstances": True}
    return new_tenant(server=module_webhook({"schedulers": SCHEDULERS, "scheduling": switches}))


def test_switched_on_for_vmis_the_choice_shows_there_and_the_vm_stays_as_it_was(of_vmis: Tenant) -> None:
    created = of_vmis.create(vm())
    vmi = of_vmis.start(created)
    pod = of_vmis.launch(vmi)

    assert (scheduler_of(created), scheduler_of(vmi), scheduler_of(pod)) == (None, "kubevirt", "kubevirt")
    assert vmi["metadata"]["annotations"][MARK] == "kubevirt"
    assert [line["object"]["kind"] for line in of_vmis.audit()] == ["VirtualMachineInstance", "Pod"]
    said = ["patched scheduler-injected", "allowed already-injected"]
    assert of_vmis.verdicts() == said

    for scheduler in ("default-scheduler", "volcano"):
        assert scheduler_of(of_vmis.start(vm(scheduler, scheduler=scheduler))) == scheduler
    # Without a status subresource, every change of a VMI's status is an update of the VMI.
    running: Json = of_vmis.controller.patch(VMIS, "web", {"status": {"phase": "Running"}}, of_vmis.namespace)
    assert running["status"]["phase"] == "Running"
    assert of_vmis.verdicts() == said


def is_given_ours(pod: KubeObject) -> bool:
    """Whether the webhook chose the pod's scheduler; the pod must then have both the name and the annotation."""
    chosen, mark = pod["spec"]["schedulerName"], pod["metadata"].get("annotations", {}).get(MARK)
    assert (chosen == "kubevirt") == (mark == "kubevirt")
    return bool(mark)


@pytest.mark.control("reviews-on-record")
def test_a_vm_that_is_evaluated_runs_by_the_declared_scheduler(tenant: Tenant) -> None:
    vmi = tenant.start(tenant.create(vm()))
    shown = tenant.launch(vmi, dryRun="All")
    assert is_given_ours(shown)
    assert tenant.owner.list(PODS, tenant.namespace) == []

    pod = tenant.launch(vmi)

    assert is_given_ours(pod)
    assert tenant.bound_by(pod) == "kubevirt"
    assert tenant.verdicts() == ["patched scheduler-injected", *["allowed already-injected"] * 2]
    assert [line["dryRun"] for line in tenant.audit("Pod")] == [True, False]

    # What is decided is written down.
    pod = tenant.launch(tenant.start(vm("bare")))
    line = tenant.audit()[-1]
    assert line["schema"] == "kubevirt-webhook.github.io/audit/v1alpha1"
    assert line["endpoint"] == "/mutate/scheduling/pods/enforce"
    assert line["object"] == {"kind": "Pod", "namespace": tenant.namespace, "name": pod["metadata"]["generateName"]}
    assert line["user"] == tenant.controller.user
    assert (line["mode"], line["dryRun"]) == ("enforce", False)
    assert {"/".join(change["path"]): (change["old"], change["new"]) for change in line["changes"]} == {
        "spec/schedulerName": ("default-scheduler", "kubevirt"),
        f"metadata/annotations/{MARK}": (None, "kubevirt"),
    }


@pytest.mark.control("forged-launcher-pods")
def test_a_user_who_copies_a_launcher_pod_gets_nothing(tenant: Tenant) -> None:
    # Nor does an owner who chose.
    for scheduler in ("default-scheduler", "volcano"):
        created = tenant.create(vm(scheduler, scheduler=scheduler))
        assert scheduler_of(created) == scheduler
        assert scheduler_marks_of(created) == [None, None]
    pod = tenant.owner.create(PODS, launcher_of(tenant.start(vm())), tenant.namespace)

    assert not is_given_ours(pod)
    assert tenant.bound_by(pod) == "default-scheduler"
    assert tenant.verdicts() == []


def test_a_later_webhook_makes_us_look_again_and_we_add_nothing(tenant: Tenant) -> None:
    with Labeller(tenant.server.access, tenant.namespace) as other:
        pod = tenant.launch(tenant.start(vm()))
        for size in (1, 100, 1000):
            sized = launcher_pod("sized")
            sized["metadata"] |= {"labels": {"app": "sized"}, "annotations": {"size": "x" * size}}
            tenant.server.access.admin.create(PODS, sized, tenant.namespace, dryRun="All")

    assert other.asked.count("virt-launcher-web-") == 1
    assert pod["metadata"]["labels"]["example.com/seen"] == "yes"
    assert is_given_ours(pod)
    assert tenant.verdicts() == ["patched scheduler-injected", "allowed already-injected"]

    # The API server sends one head but for the length, which is worth remembering (docs/adr/0019).
    lengths = {found[1] for head in other.heads if (found := re.search(r"\nContent-Length: (\d+)\n", head))}
    assert len(lengths) >= 3
    assert len({re.sub(r"Content-Length: \d+", "", head) for head in other.heads}) == 1, other.heads


POLICIES = (SCHEDULING, INSTANCETYPES)
REFUSED: Json = {"instancetype": LARGE, "preference": named("Preference", "demanding")}


def chosen_for_pod(tenant: Tenant) -> str | None:
    """The scheduler of a pod of the VMI ``web`` that is made now and not kept."""
    return scheduler_of(tenant.launch(tenant.owner.get(VMIS, "web", tenant.namespace), dryRun="All"))


def assert_nothing_is_changed(tenant: Tenant) -> tuple[list[str], list[str]]:
    """Makes a VM, a VMI without a VM and a pod; returns the warnings of the VM, and those of both others."""
    created = tenant.create(vm())
    pod = tenant.launch(tenant.start(created))
    bare = tenant.owner.create(VMIS, vmi_of(vm("bare")), tenant.namespace)

    assert (scheduler_of(created), scheduler_of(pod)) == (None, "default-scheduler")
    assert matchers_of(created) == marks_of(created) == [None, None]
    assert bare["spec"] == vmi_of(vm())["spec"]
    return [*created.warnings], [*pod.warnings, *bare.warnings]


def test_warn_tells_and_changes_nothing(new_tenant: NewTenant) -> None:
    tenant = offer(new_tenant("warn", annotations=DEFAULTS, policies=POLICIES), "small", "linux")

    of_vm, others = assert_nothing_is_changed(tenant)

    injected = ("scheduling", "warn", "scheduler-injected")
    defaulted = ("instancetypes", "warn", "defaults-injected")
    said = {
        (path, (one.policy, one.mode, one.code))
        for one in map(parse, of_vm)
        for path in ("spec.template.spec.schedulerName", "spec.instancetype", "spec.preference")
        if f" {path} " in one.text
    }
    assert said == {
        ("spec.template.spec.schedulerName", injected),
        ("spec.instancetype", defaulted),
        ("spec.preference", defaulted),
    }
    assert {parse(one).policy for one in others} == {"scheduling", "instancetypes"}
    assert {(line["mode"], line["decision"]) for line in tenant.audit(path="/mutate")} == {("warn", "would-patch")}


def test_audit_is_silent_and_changes_nothing(new_tenant: NewTenant) -> None:
    tenant = offer(new_tenant("audit", annotations=DEFAULTS, policies=POLICIES), "small", "linux")

    assert assert_nothing_is_changed(tenant) == ([], [])
    assert [(line["mode"], line["decision"]) for line in tenant.audit(path="/mutate")] == [("audit", "would-patch")] * 4


@pytest.mark.parametrize("mode", ["off", None, "Enforce"])
def test_a_namespace_that_has_not_opted_in_never_reaches_us(new_tenant: NewTenant, mode: str | None) -> None:
    tenant = offer(new_tenant(mode, annotations=DEFAULTS, policies=POLICIES), "small", "linux", "large", "demanding")
    tenant.create(vm("refused", **REFUSED))

    assert assert_nothing_is_changed(tenant) == ([], [])
    assert tenant.audit() == []


@pytest.mark.control("labels-switch-policies")
def test_a_relabelled_namespace_is_followed(new_tenant: NewTenant) -> None:
    tenant = offer(new_tenant("off", annotations=DEFAULTS, policies=POLICIES), "small", "linux")
    tenant.start(vm())

    def in_force() -> tuple[bool, bool, bool]:
        """Whether VMs get a scheduler and defaults, and pods a scheduler."""
        created = tenant.create(vm("probe"), dryRun="All")
        return scheduler_of(created) == "kubevirt", is_ours(created), chosen_for_pod(tenant) == "kubevirt"

    assert in_force() == (False, False, False)
    for mode in ("enforce", "warn", "enforce", None):
        for policy in POLICIES:
            tenant.label(mode, policy)
        expected = (mode == "enforce",) * 3
        eventually(lambda: in_force() == expected, what=f"both policies to be in mode {mode}")  # noqa: B023


def test_a_namespace_that_is_created_with_its_label_has_no_first_instant(new_tenant: NewTenant) -> None:
    """The API server's and the server's informers don't know it yet: both read the namespace itself."""
    assert [scheduler_of(new_tenant("enforce").create(vm())) for _ in range(10)] == ["kubevirt"] * 10


# -- cluster-wide ------------------------------------------------------------------------------------------------------


@pytest.fixture
def everywhere(module_webhook: ModuleWebhook) -> WebhookServer:
    return module_webhook({"schedulers": SCHEDULERS, "scheduling": {"clusterWide": True}})


def test_cluster_wide_means_all_that_say_nothing_else(everywhere: WebhookServer, new_tenant: NewTenant) -> None:
    tenants = {mode: new_tenant(mode, server=everywhere) for mode in (None, "enforce", "warn", "audit", "off")}

    chosen = {mode: tenant.choice() for mode, tenant in tenants.items()}

    assert chosen == {None: "kubevirt", "enforce": "kubevirt", "warn": None, "audit": None, "off": None}
    modes = {mode: [line["mode"] for line in tenant.audit()] for mode, tenant in tenants.items()}
    assert modes == {None: ["enforce"], "enforce": ["enforce"], "warn": ["warn"], "audit": ["audit"], "off": []}


@pytest.mark.control("outage-blocks-the-cluster")
def test_cluster_wide_never_evaluates_what_runs_the_cluster(everywhere: WebhookServer, plane: Access) -> None:
    with selected(plane.admin, everywhere, "kube-system", "kubevirt", "default") as (system, kubevirt, ordinary):
        eventually(lambda: ordinary.choice() == "kubevirt", what="default to be evaluated")

        assert (system.choice(), system.audit()) == (None, [])
        assert (kubevirt.choice(), kubevirt.audit()) == (None, [])


@contextlib.contextmanager
def selected(kube: Kube, server: WebhookServer, *namespaces: str) -> Iterator[list[Tenant]]:
    """Puts namespaces of the cluster's own within a server's reach for a while."""
    labels = server.labels(None)
    for name in namespaces:
        kube.patch("v1/namespaces", name, {"metadata": {"labels": labels}})
    try:
        yield [Tenant(server, name) for name in namespaces]
    finally:
        for name in namespaces:
            kube.patch("v1/namespaces", name, {"metadata": {"labels": dict.fromkeys(labels)}})
