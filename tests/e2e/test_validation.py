"""The API server itself denies mistyped labels and annotations of namespaces, and warns of those of VMs."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus

import pytest

from webhook import names
from webhook.policies.registry import BY_NAME

from .conftest import OwnPlane
from .support import manifests
from .support.access import Access
from .support.kube import Json, Kube, KubeError, denial, denied, eventually
from .support.objects import obj
from .support.rbac import user_with
from .support.workloads import VMS, vm

NAMESPACES = "v1/namespaces"
DOMAIN = names.DOMAIN


@pytest.fixture(scope="module")
def cluster(module_plane: OwnPlane) -> Access:
    return module_plane()


@pytest.fixture(scope="module")
def kube(cluster: Access) -> Kube:
    admin = cluster.admin
    manifests.apply(admin, "base/validation.yaml")
    wrong = {f"{DOMAIN}/scheduling": "on"}
    eventually(lambda: denial(lambda: create(admin, labels=wrong, dryRun="All")), what="the policy for namespaces")
    mistyped = labelled(instancetypes="on")
    eventually(lambda: admin.create(VMS, mistyped, "default", dryRun="All").warnings, what="the policy for VMs")
    return admin


def create(
    kube: Kube,
    name: str = "shop",
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **query: str,
) -> Json:
    return kube.make(obj("Namespace", name, labels=labels or {}, annotations=annotations or {}), **query)


def labelled(**labels: str) -> Json:
    written = vm()
    written["metadata"]["labels"] = {f"{DOMAIN}/{key}": value for key, value in labels.items()}
    return written


def test_what_is_valid_is_allowed(kube: Kube) -> None:
    for policy in BY_NAME:
        for mode in ("enforce", "warn", "audit", "off"):
            create(kube, labels={names.policy_label(policy): mode}, dryRun="All")
    # The NetworkPolicy lets namespaces with it read the metrics.
    create(kube, labels={f"{DOMAIN}/metrics": "scrape"}, dryRun="All")
    for annotation, value in (
        (names.SCHEDULER_NAME_ANNOTATION, "kubevirt"),
        *((names.SPREAD_ANNOTATION, value) for value in names.SPREADS),
        (names.DEFAULT_INSTANCETYPE_ANNOTATION, "u1.medium"),
        (names.DEFAULT_PREFERENCE_ANNOTATION, "VirtualMachinePreference/linux"),
        *((names.DEFAULT_PREFERENCE_SCOPE_ANNOTATION, value) for value in ("unsized", "all")),
        (names.ALLOWED_INSTANCETYPES_ANNOTATION, "u1.*, o1.*"),
        (names.EXPAND_INSTANCETYPES_ANNOTATION, "true"),
        (names.REQUIRE_INSTANCETYPE_ANNOTATION, " false"),
        *((names.SIZE_LIMITS_ANNOTATION, value) for value in ("", '\n{"cpu": {"max": 8}}', "[{}]")),
        ("example.com/scheduling", "on"),
    ):
        create(kube, annotations={annotation: value}, dryRun="All")


@pytest.mark.parametrize(
    ("labels", "annotations", "named"),
    [
        ({"scheduling": "on"}, {}, ["scheduling", '"on"', "warn, audit or off"]),
        ({"scheduling": "Enforce"}, {}, ['"Enforce"', "warn, audit or off"]),
        ({"eviction": ""}, {}, ['""', "warn, audit or off"]),
        ({"sheduling": "enforce"}, {}, ["sheduling", "scheduling", "eviction"]),
        ({}, {"scheduling": "enforce"}, ["annotation", "scheduler-name"]),
        ({}, {"spread": "hosts"}, ["spread", '"hosts"', "hostname"]),
        ({}, {"default-preference-scope": "every"}, ['"every"', "unsized or all"]),
        ({}, {"expand-instancetypes": "yes"}, ['"yes"', "true or false"]),
        ({}, {"require-instancetype": "yes"}, ['"yes"', "true or false"]),
        ({}, {"size-limits": "cpu: {max: 8}"}, ["size-limits", "is not JSON", '{"cpu": {"max": 8}}']),
    ],
)
def test_a_mistake_is_denied_and_the_valid_values_are_listed(
    kube: Kube, labels: dict[str, str], annotations: dict[str, str], named: list[str]
) -> None:
    written = ({f"{DOMAIN}/{key}": value for key, value in each.items()} for each in (labels, annotations))
    mistyped = dict(zip(("labels", "annotations"), written, strict=True))
    error = denied(lambda: create(kube, **mistyped, dryRun="All"))  # type: ignore[arg-type]

    assert error.status == 422
    assert "kubevirt-webhook: " in error.message
    assert all(word in error.message for word in named)


def test_a_namespace_with_an_older_mistake_can_still_be_updated(kube: Kube) -> None:
    bindings = "admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    binding = kube.get(bindings, "kubevirt-webhook-namespaces")
    kube.delete(bindings, "kubevirt-webhook-namespaces")
    label = f"{DOMAIN}/scheduling"

    def made() -> bool:
        error = denial(lambda: create(kube, "old", labels={label: "on"}))
        return error is None or error.status == 409

    eventually(made, what="the namespace, without the policy")
    kube.create(bindings, {**binding, "metadata": {"name": binding["metadata"]["name"]}})
    wrong = {label: "on"}
    eventually(lambda: denial(lambda: create(kube, labels=wrong, dryRun="All")), what="the policy to be back")
    kube.patch(NAMESPACES, "old", {"metadata": {"labels": {"team": "a"}}})
    denied(lambda: kube.patch(NAMESPACES, "old", {"metadata": {"labels": {label: "On"}}}))
    kube.patch(NAMESPACES, "old", {"metadata": {"labels": {label: "enforce"}}})


@pytest.mark.parametrize("subresource", ["status", "finalize"])
def test_labels_cannot_be_changed_around_the_policy(kube: Kube, cluster: Access, subresource: str) -> None:
    """The API server takes labels with both subresources, and RBAC grants these to tenants inside of a namespace."""
    label, name = f"{DOMAIN}/scheduling", f"around-{subresource}"
    annotations = {names.SPREAD_ANNOTATION: "zone", names.ALLOWED_INSTANCETYPES_ANNOTATION: "u1.*"}
    namespace = create(kube, name, labels={label: "enforce"}, annotations=annotations)
    rule = {"apiGroups": [""], "resources": [f"namespaces/{subresource}"], "verbs": ["update"]}
    tenant = user_with(cluster, f"tenant-{subresource}", [rule], name)

    def replaced(**metadata: Json) -> KubeError:
        changed = {**namespace, "metadata": {**namespace["metadata"], **metadata}}
        return denied(lambda: tenant.replace(NAMESPACES, changed, subresource=subresource))

    for value in ("off", "Enforce", None):
        changed = {**namespace["metadata"]["labels"], label: value}
        error = replaced(labels={key: text for key, text in changed.items() if text is not None})
        assert error.status == HTTPStatus.FORBIDDEN
        assert f"{label} cannot be changed through namespaces/{subresource}" in error.message
    for annotation, value in ((names.SPREAD_ANNOTATION, "off"), (names.ALLOWED_INSTANCETYPES_ANNOTATION, "*")):
        message = replaced(annotations={**annotations, annotation: value}).message
        assert f"{annotation} cannot be changed through namespaces/{subresource}" in message
    # The policy is not in the way of controllers of namespaces.
    namespace["metadata"]["labels"]["team"] = "a"
    kube.replace(NAMESPACES, namespace, subresource=subresource)


@pytest.mark.parametrize("number", [300, 5000])
def test_a_namespace_of_many_names_is_looked_up_in_by_known_ones(kube: Kube, number: int) -> None:
    """Unknown names are looked for only among few: what goes through all of them costs the square of their number."""
    name, many = f"many-{number}", {f"a{index}": "" for index in range(number)}
    create(kube, name, labels={f"{DOMAIN}/sheduling": "enforce"} | many, annotations=many, dryRun="All")
    for wrong in (
        {"labels": {f"{DOMAIN}/scheduling": "on"} | many},
        {"labels": many, "annotations": {names.SPREAD_ANNOTATION: "hosts"}},
    ):
        error = denied(partial(create, kube, name, **wrong, dryRun="All"))  # type: ignore[arg-type]
        assert "has the invalid value" in error.message


def test_a_mistake_in_a_vm_is_a_warning(kube: Kube) -> None:
    of_template = vm()
    of_template["spec"]["template"]["metadata"]["annotations"] = {names.SPREAD_ANNOTATION: "hosts"}
    misplaced = vm()
    misplaced["metadata"]["annotations"] = {names.SPREAD_ANNOTATION: "zone"}
    for written, word in ((labelled(instancetypes="no"), '"no"'), (of_template, '"hosts"'), (misplaced, "no effect")):
        (warning,) = kube.create(VMS, written, "default", dryRun="All").warnings
        assert "kubevirt-webhook: " in warning
        assert word in warning
    right = labelled(instancetypes="off")
    right["spec"]["template"]["metadata"]["annotations"] = {names.SPREAD_ANNOTATION: "zone"}
    for written in (right, vm()):
        assert kube.create(VMS, written, "default", dryRun="All").warnings == ()
