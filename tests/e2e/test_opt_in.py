"""The namespaces that the server evaluates, and the mode of each."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from .conftest import SCHEDULERS, ModuleWebhook, NewTenant
from .support.access import Access
from .support.kube import Kube, eventually
from .support.messages import parse
from .support.tenant import Tenant
from .support.webhook_server import WebhookServer
from .support.workloads import VMIS, scheduler_of, vm

SCHEDULER_NAME = "kubevirt-webhook.github.io/scheduler-name"


def chosen_for_pod(tenant: Tenant) -> str | None:
    """The scheduler of a pod of the VMI ``web`` that is made now and not kept."""
    return scheduler_of(tenant.launch(tenant.owner.get(VMIS, "web", tenant.namespace), dryRun="All"))


def test_warn_tells_and_changes_nothing(new_tenant: NewTenant) -> None:
    tenant = new_tenant("warn")

    created = tenant.create(vm())
    pod = tenant.launch(tenant.start(created))

    for (warning,), path in (
        (created.warnings, "spec.template.spec.schedulerName"),
        (pod.warnings, "spec.schedulerName"),
    ):
        said = parse(warning)
        assert (said.policy, said.mode, said.code) == ("scheduling", "warn", "scheduler-injected")
        assert f" {path} " in said.text
    assert (scheduler_of(created), scheduler_of(pod)) == (None, "default-scheduler")
    assert [(line["mode"], line["decision"]) for line in tenant.audit()] == [("warn", "would-patch")] * 2


def test_audit_is_silent_and_changes_nothing(new_tenant: NewTenant) -> None:
    tenant = new_tenant("audit")

    created = tenant.create(vm())
    pod = tenant.launch(tenant.start(created))

    assert created.warnings == pod.warnings == ()
    assert (scheduler_of(created), scheduler_of(pod)) == (None, "default-scheduler")
    assert [(line["mode"], line["decision"]) for line in tenant.audit()] == [("audit", "would-patch")] * 2


@pytest.mark.parametrize("mode", ["off", None, "Enforce"])
def test_a_namespace_that_has_not_opted_in_never_reaches_us(new_tenant: NewTenant, mode: str | None) -> None:
    tenant = new_tenant(mode)

    pod = tenant.launch(tenant.start(tenant.create(vm())))

    assert pod["spec"]["schedulerName"] == "default-scheduler"
    assert tenant.audit() == []


@pytest.mark.parametrize(("mode", "chosen"), [("enforce", "kubevirt"), ("warn", None), ("audit", None), ("off", None)])
def test_a_relabelled_namespace_is_followed(new_tenant: NewTenant, mode: str, chosen: str | None) -> None:
    tenant = new_tenant("off" if chosen else "enforce")
    tenant.start(vm())
    assert (tenant.choice() is None) == bool(chosen)

    tenant.label(mode)

    eventually(lambda: tenant.choice() == chosen, what=f"VMs to be in mode {mode}")
    eventually(lambda: chosen_for_pod(tenant) == (chosen or "default-scheduler"), what=f"pods to be in mode {mode}")


def test_a_namespace_that_is_created_with_its_label_has_no_first_instant(new_tenant: NewTenant) -> None:
    """The API server's and the server's informers don't know it yet: both read the namespace itself."""
    assert [scheduler_of(new_tenant("enforce").create(vm())) for _ in range(15)] == ["kubevirt"] * 15


def test_a_namespace_names_its_scheduler(new_tenant: NewTenant) -> None:
    tenant = new_tenant(annotations={SCHEDULER_NAME: "unchecked"})
    tenant.start(vm())

    assert tenant.choice() == "unchecked"
    assert chosen_for_pod(tenant) == "unchecked"

    tenant.owner.patch("v1/namespaces", tenant.namespace, {"metadata": {"annotations": {SCHEDULER_NAME: None}}})
    eventually(lambda: tenant.choice() == "kubevirt", what="the settings' scheduler")


@pytest.mark.parametrize(
    ("scheduler", "reason"), [("dead", "scheduler-unavailable"), ("unheard-of", "scheduler-undeclared")]
)
def test_a_namespace_can_not_name_just_any_scheduler(new_tenant: NewTenant, scheduler: str, reason: str) -> None:
    tenant = new_tenant(annotations={SCHEDULER_NAME: scheduler})
    tenant.start(vm())

    assert tenant.choice() is None
    assert chosen_for_pod(tenant) == "default-scheduler"
    assert tenant.verdicts() == [f"allowed {reason}"] * 2


# -- cluster-wide ------------------------------------------------------------------------------------------------------


@pytest.fixture
def everywhere(module_webhook: ModuleWebhook) -> WebhookServer:
    """A server that enforces wherever a namespace says nothing else."""
    return module_webhook({"schedulers": SCHEDULERS, "scheduling": {"clusterWide": True}})


def test_cluster_wide_means_all_that_say_nothing_else(everywhere: WebhookServer, new_tenant: NewTenant) -> None:
    tenants = {mode: new_tenant(mode, server=everywhere) for mode in (None, "enforce", "warn", "audit", "off")}

    chosen = {mode: tenant.choice() for mode, tenant in tenants.items()}

    assert chosen == {None: "kubevirt", "enforce": "kubevirt", "warn": None, "audit": None, "off": None}
    assert {mode: [line["mode"] for line in tenant.audit()] for mode, tenant in tenants.items()} == {
        None: ["enforce"],
        "enforce": ["enforce"],
        "warn": ["warn"],
        "audit": ["audit"],
        "off": [],
    }


def test_cluster_wide_never_judges_what_runs_the_cluster(everywhere: WebhookServer, plane: Access) -> None:
    with selected(plane.admin, everywhere, "kube-system", "kubevirt", "default") as (system, kubevirt, ordinary):
        eventually(lambda: ordinary.choice() == "kubevirt", what="default to be judged")

        assert (system.choice(), system.audit()) == (None, [])
        assert (kubevirt.choice(), kubevirt.audit()) == (None, [])


@contextlib.contextmanager
def selected(kube: Kube, server: WebhookServer, *namespaces: str) -> Iterator[list[Tenant]]:
    """Puts namespaces of the cluster's own within a server's reach for a while."""
    for name in namespaces:
        kube.patch("v1/namespaces", name, {"metadata": {"labels": server.labels(None)}})
    try:
        yield [Tenant(server, name) for name in namespaces]
    finally:
        for name in namespaces:
            kube.patch("v1/namespaces", name, {"metadata": {"labels": dict.fromkeys(server.labels(None))}})
