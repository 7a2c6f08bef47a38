"""The API server itself denies mistyped labels and annotations of namespaces, and warns of those of VMs."""

from __future__ import annotations

import pytest
import yaml

from webhook import names

from .conftest import OwnPlane
from .support.kube import Json, Kube, KubeError, eventually
from .support.manifests import MANIFESTS
from .support.workloads import VMS, vm

NAMESPACES = "v1/namespaces"
DOMAIN = names.DOMAIN


@pytest.fixture(scope="module")
def kube(module_plane: OwnPlane) -> Kube:
    admin = module_plane().admin
    for document in yaml.safe_load_all((MANIFESTS / "base" / "validation.yaml").read_text()):
        admin.apply(document)

    def is_denied() -> bool:
        try:
            create(admin, labels={f"{DOMAIN}/scheduling": "on"}, dryRun="All")
        except KubeError:
            return True
        return False

    def is_warned() -> bool:
        return bool(admin.create(VMS, labelled(instancetypes="on"), "default", dryRun="All").warnings)

    eventually(is_denied, what="the policy for namespaces")
    eventually(is_warned, what="the policy for VMs")
    return admin


def create(
    kube: Kube,
    name: str = "shop",
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **query: str,
) -> Json:
    metadata: Json = {"name": name, "labels": labels or {}, "annotations": annotations or {}}
    return kube.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}, **query)


def labelled(**labels: str) -> Json:
    written = vm()
    written["metadata"]["labels"] = {f"{DOMAIN}/{key}": value for key, value in labels.items()}
    return written


@pytest.mark.parametrize("policy", ["scheduling", "instancetypes", "migration", "eviction"])
@pytest.mark.parametrize("mode", ["enforce", "warn", "audit", "off"])
def test_every_mode_of_every_policy_is_allowed(kube: Kube, policy: str, mode: str) -> None:
    create(kube, labels={names.policy_label(policy): mode}, dryRun="All")


def test_the_label_of_monitoring_namespaces_is_allowed(kube: Kube) -> None:
    """The NetworkPolicy lets namespaces with it read the metrics."""
    create(kube, labels={f"{DOMAIN}/metrics": "scrape"}, dryRun="All")


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (names.SCHEDULER_NAME_ANNOTATION, "kubevirt"),
        *((names.SPREAD_ANNOTATION, value) for value in names.SPREADS),
        (names.DEFAULT_INSTANCETYPE_ANNOTATION, "u1.medium"),
        (names.DEFAULT_PREFERENCE_ANNOTATION, "VirtualMachinePreference/linux"),
        (names.DEFAULT_PREFERENCE_SCOPE_ANNOTATION, "unsized"),
        (names.DEFAULT_PREFERENCE_SCOPE_ANNOTATION, "all"),
        (names.ALLOWED_INSTANCETYPES_ANNOTATION, "u1.*, o1.*"),
        (names.EXPAND_INSTANCETYPES_ANNOTATION, "true"),
        ("example.com/scheduling", "on"),
    ],
)
def test_every_valid_annotation_is_allowed(kube: Kube, annotation: str, value: str) -> None:
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
    ],
)
def test_a_mistake_is_denied_and_the_valid_values_are_listed(
    kube: Kube, labels: dict[str, str], annotations: dict[str, str], named: list[str]
) -> None:
    with pytest.raises(KubeError) as denied:
        create(
            kube,
            labels={f"{DOMAIN}/{key}": value for key, value in labels.items()},
            annotations={f"{DOMAIN}/{key}": value for key, value in annotations.items()},
            dryRun="All",
        )

    assert denied.value.status == 422
    assert "kubevirt-webhook: " in denied.value.message
    assert all(word in denied.value.message for word in named)


def test_a_namespace_with_an_older_mistake_can_still_be_updated(kube: Kube) -> None:
    bindings = "admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    binding = kube.get(bindings, "kubevirt-webhook-namespaces")
    kube.delete(bindings, "kubevirt-webhook-namespaces")
    label = f"{DOMAIN}/scheduling"

    def made() -> bool:
        try:
            create(kube, "old", labels={label: "on"})
        except KubeError as error:
            return error.status == 409
        return True

    eventually(made, what="the namespace, without the policy")
    kube.create(bindings, {**binding, "metadata": {"name": binding["metadata"]["name"]}})

    def holds() -> bool:
        try:
            create(kube, labels={label: "on"}, dryRun="All")
        except KubeError:
            return True
        return False

    eventually(holds, what="the policy to be back")
    kube.patch(NAMESPACES, "old", {"metadata": {"labels": {"team": "a"}}})
    with pytest.raises(KubeError):
        kube.patch(NAMESPACES, "old", {"metadata": {"labels": {label: "On"}}})
    kube.patch(NAMESPACES, "old", {"metadata": {"labels": {label: "enforce"}}})


def test_a_mistake_in_a_vm_is_a_warning(kube: Kube) -> None:
    of_template = vm()
    of_template["spec"]["template"]["metadata"]["annotations"] = {names.SPREAD_ANNOTATION: "hosts"}
    misplaced = vm()
    misplaced["metadata"]["annotations"] = {names.SPREAD_ANNOTATION: "zone"}
    for written, word in ((labelled(instancetypes="no"), '"no"'), (of_template, '"hosts"'), (misplaced, "no effect")):
        (warning,) = kube.create(VMS, written, "default", dryRun="All").warnings
        assert "kubevirt-webhook: " in warning
        assert word in warning


def test_a_vm_without_mistakes_is_not_warned_of(kube: Kube) -> None:
    written = labelled(instancetypes="off")
    written["spec"]["template"]["metadata"]["annotations"] = {names.SPREAD_ANNOTATION: "zone"}

    assert kube.create(VMS, written, "default", dryRun="All").warnings == ()
    assert kube.create(VMS, vm(), "default", dryRun="All").warnings == ()
