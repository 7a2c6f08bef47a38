"""The scheduling policy on virt-launcher pods: which scheduler really gets them."""

from __future__ import annotations

import re

from .conftest import NewTenant
from .support.foreign_webhook import Labeller
from .support.kube import KubeObject, eventually
from .support.objects import launcher_pod
from .support.tenant import Tenant
from .support.workloads import MARK, PODS, launcher_of, migration_target_of, provisioning_of, vm


def is_ours(pod: KubeObject) -> bool:
    """Whether the webhook chose the pod's scheduler; the pod must then have both the name and the annotation."""
    chosen, mark = pod["spec"]["schedulerName"], pod["metadata"].get("annotations", {}).get(MARK)
    assert (chosen == "kubevirt") == (mark == "kubevirt")
    return bool(mark)


def test_a_vm_made_under_judgement_runs_by_the_declared_scheduler(tenant: Tenant) -> None:
    vmi = tenant.start(tenant.create(vm()))
    shown = tenant.launch(vmi, dryRun="All")
    assert is_ours(shown)
    assert tenant.owner.list(PODS, tenant.namespace) == []

    pod = tenant.launch(vmi)

    assert is_ours(pod)
    assert tenant.bound_by(pod) == "kubevirt"
    assert tenant.verdicts() == ["patched scheduler-injected", *["allowed already-injected"] * 2]
    assert [line["dryRun"] for line in tenant.audit("Pod")] == [True, False]


def test_a_vm_older_than_us_does_too(new_tenant: NewTenant) -> None:
    tenant = new_tenant("off")
    created = tenant.create(vm())
    tenant.label("enforce")
    vmi = tenant.start(created)
    eventually(lambda: is_ours(tenant.launch(vmi, dryRun="All")), what="the namespace to be judged")
    before = len(tenant.verdicts())
    pod = tenant.launch(vmi)

    assert "schedulerName" not in vmi["spec"]
    assert is_ours(pod)
    assert tenant.bound_by(pod) == "kubevirt"
    assert tenant.verdicts()[before:] == ["patched scheduler-injected"]


def test_what_is_decided_is_written_down(tenant: Tenant) -> None:
    pod = tenant.launch(tenant.start(vm()))

    (line,) = tenant.audit()
    assert line["schema"] == "kubevirt-webhook.github.io/audit/v1alpha1"
    assert line["endpoint"] == "/mutate/scheduling/pods/enforce"
    assert line["object"] == {"kind": "Pod", "namespace": tenant.namespace, "name": pod["metadata"]["generateName"]}
    assert line["user"] == tenant.controller.user
    assert (line["mode"], line["dryRun"]) == ("enforce", False)
    assert {"/".join(change["path"]): (change["old"], change["new"]) for change in line["changes"]} == {
        "spec/schedulerName": ("default-scheduler", "kubevirt"),
        f"metadata/annotations/{MARK}": (None, "kubevirt"),
    }


def test_a_dead_one_without_our_mark_is_left_alone_unless_only_we_ever_choose_it(tenant: Tenant) -> None:
    """A clone that filters annotations has lost the annotation, so the admin's setting decides."""
    pods = [tenant.launch(tenant.start(vm(name, scheduler=name))) for name in ("dead", "dead-ours")]

    assert [pod["spec"]["schedulerName"] for pod in pods] == ["dead", "default-scheduler"]
    assert tenant.verdicts() == ["patched scheduler-fell-back"]
    assert tenant.bound_by(pods[1]) == "default-scheduler"


def test_a_user_who_copies_a_launcher_pod_gets_nothing(tenant: Tenant) -> None:
    pod = tenant.owner.create(PODS, launcher_of(tenant.start(vm())), tenant.namespace)

    assert not is_ours(pod)
    assert tenant.bound_by(pod) == "default-scheduler"
    assert tenant.verdicts() == []


def test_every_kind_of_launcher_is_injected(tenant: Tenant) -> None:
    vmi = tenant.start(vm())
    tenant.launch(vmi)
    gated = launcher_of(vmi)
    gated["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]
    pods = [tenant.pod(made) for made in (provisioning_of(vmi), migration_target_of(vmi), gated)]
    let_go = [{"op": "remove", "path": "/spec/schedulingGates"}]
    tenant.controller.patch(PODS, pods[-1]["metadata"]["name"], let_go, tenant.namespace, kind="json")

    for pod in pods:
        assert is_ours(pod)
        assert tenant.bound_by(pod) == "kubevirt"


def test_the_api_server_sends_one_head_but_for_the_length(tenant: Tenant) -> None:
    """What makes it worth remembering a head (docs/adr/0019)."""
    with Labeller(tenant.server.access, tenant.namespace) as other:
        for size in (1, 100, 1000):
            pod = launcher_pod("sized")
            pod["metadata"]["labels"] = {"app": "sized"}
            pod["metadata"]["annotations"] = {"size": "x" * size}
            tenant.server.access.admin.create(PODS, pod, tenant.namespace, dryRun="All")
    lengths = {found[1] for head in other.heads if (found := re.search(r"\nContent-Length: (\d+)\n", head))}

    assert len(lengths) >= 3
    assert len({re.sub(r"Content-Length: \d+", "", head) for head in other.heads}) == 1, other.heads


def test_a_later_webhook_makes_us_look_again_and_we_add_nothing(tenant: Tenant) -> None:
    with Labeller(tenant.server.access, tenant.namespace) as other:
        pod = tenant.launch(tenant.start(vm()))

    assert other.pods.count("virt-launcher-web-") == 1
    assert pod["metadata"]["labels"]["example.com/seen"] == "yes"
    assert is_ours(pod)
    assert tenant.verdicts() == ["patched scheduler-injected", "allowed already-injected"]
