"""The namespaces that the server evaluates, and the mode of each, for both policies that write."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from .conftest import SCHEDULERS, ModuleWebhook, NewTenant
from .support.access import Access
from .support.kube import Json, Kube, eventually
from .support.messages import parse
from .support.sizes import DEFAULTS, LARGE, is_ours, marks_of, matchers_of, named, offer
from .support.tenant import Tenant
from .support.webhook_server import INSTANCETYPES, SCHEDULING, WebhookServer
from .support.workloads import VMIS, scheduler_of, vm, vmi_of

SCHEDULER_NAME = "kubevirt-webhook.github.io/scheduler-name"
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


def test_a_relabelled_namespace_is_followed(new_tenant: NewTenant) -> None:
    tenant = offer(new_tenant("off", annotations=DEFAULTS, policies=POLICIES), "small", "linux")
    tenant.start(vm())

    def in_force() -> tuple[bool, bool, bool]:
        """Whether VMs get a scheduler and defaults, and pods a scheduler."""
        created = tenant.create(vm("probe"), dryRun="All")
        return scheduler_of(created) == "kubevirt", is_ours(created), chosen_for_pod(tenant) == "kubevirt"

    assert in_force() == (False, False, False)
    for mode in ("warn", "audit", "off", None):
        for policy in POLICIES:
            tenant.label("enforce", policy)
        eventually(lambda: in_force() == (True, True, True), what="both policies to be in mode enforce")
        for policy in POLICIES:
            tenant.label(mode, policy)
        eventually(lambda: in_force() == (False, False, False), what=f"both policies to be in mode {mode}")


def test_a_namespace_that_is_created_with_its_label_has_no_first_instant(new_tenant: NewTenant) -> None:
    """The API server's and the server's informers don't know it yet: both read the namespace itself."""
    assert [scheduler_of(new_tenant("enforce").create(vm())) for _ in range(10)] == ["kubevirt"] * 10


def test_a_namespace_names_its_scheduler(new_tenant: NewTenant) -> None:
    tenant = new_tenant(annotations={SCHEDULER_NAME: "unchecked"})
    tenant.start(vm())

    assert tenant.choice() == "unchecked"
    assert chosen_for_pod(tenant) == "unchecked"

    tenant.annotate(scheduler_name=None)
    eventually(lambda: tenant.choice() == "kubevirt", what="the settings' scheduler")


@pytest.mark.parametrize(
    ("scheduler", "code", "why"),
    [
        ("dead", "scheduler-unavailable", "Lease kubevirt-scheduler/nobody"),
        ("unheard-of", "scheduler-undeclared", "the settings"),
    ],
)
def test_a_namespace_can_not_name_just_any_scheduler(
    new_tenant: NewTenant, scheduler: str, code: str, why: str
) -> None:
    tenant = new_tenant(annotations={SCHEDULER_NAME: scheduler})
    tenant.start(vm())

    created = tenant.create(vm())
    assert scheduler_of(created) is None
    assert chosen_for_pod(tenant) == "default-scheduler"
    assert tenant.verdicts() == [f"allowed {code}"] * 2
    (warning,) = created.warnings
    assert parse(warning).code == code
    assert f'"{scheduler}"' in warning
    assert why in warning


# -- cluster-wide ------------------------------------------------------------------------------------------------------


@pytest.fixture
def everywhere(module_webhook: ModuleWebhook) -> WebhookServer:
    """A server that enforces wherever a namespace says nothing else."""
    return module_webhook({"schedulers": SCHEDULERS, "scheduling": {"clusterWide": True}})


def test_cluster_wide_means_all_that_say_nothing_else(everywhere: WebhookServer, new_tenant: NewTenant) -> None:
    tenants = {mode: new_tenant(mode, server=everywhere) for mode in (None, "enforce", "warn", "audit", "off")}

    chosen = {mode: tenant.choice() for mode, tenant in tenants.items()}

    assert chosen == {None: "kubevirt", "enforce": "kubevirt", "warn": None, "audit": None, "off": None}
    modes = {mode: [line["mode"] for line in tenant.audit()] for mode, tenant in tenants.items()}
    assert modes == {None: ["enforce"], "enforce": ["enforce"], "warn": ["warn"], "audit": ["audit"], "off": []}


def test_cluster_wide_never_judges_what_runs_the_cluster(everywhere: WebhookServer, plane: Access) -> None:
    with selected(plane.admin, everywhere, "kube-system", "kubevirt", "default") as (system, kubevirt, ordinary):
        eventually(lambda: ordinary.choice() == "kubevirt", what="default to be judged")

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
