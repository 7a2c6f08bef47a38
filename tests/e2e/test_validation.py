"""The API server itself denies mistyped labels and annotations of namespaces, and warns of those of VMs."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus

import pytest

from tests.annotations import VALID
from webhook import names
from webhook.forecast import misplaced
from webhook.policies.registry import BY_NAME
from webhook.text import choices_of

from .conftest import OwnPlane
from .support import manifests
from .support.access import Access
from .support.kube import Json, Kube, KubeError, denial, denied, eventually
from .support.objects import obj
from .support.pages import documents_under
from .support.rbac import RBAC, bind, may, user_with
from .support.workloads import VMIS, VMS, vm, vmi_of

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
    mistyped = written("labels", instancetypes="on")
    for resource, made in ((VMS, mistyped), (VMIS, vmi_of(mistyped))):
        made["metadata"]["labels"] = mistyped["metadata"]["labels"]
        eventually(partial(_warnings, admin, resource, made), what="the policies for VMs and VMIs")
    return admin


def _warnings(kube: Kube, resource: str, made: Json) -> tuple[str, ...]:
    return kube.create(resource, made, "default", dryRun="All").warnings


def create(
    kube: Kube,
    name: str = "shop",
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **query: str,
) -> Json:
    return kube.make(obj("Namespace", name, labels=labels or {}, annotations=annotations or {}), **query)


def written(place: str, made: Json | None = None, /, **values: str | float | bool) -> Json:
    """A VM with these at a place: ``labels`` or ``annotations``, of the VM or, after ``template ``, of its template."""
    made = made or vm()
    metadata = made["spec"]["template"]["metadata"] if place.startswith("template ") else made["metadata"]
    metadata[place.removeprefix("template ")] = {f"{DOMAIN}/{key}": value for key, value in values.items()}
    return made


def test_what_is_valid_is_allowed(kube: Kube) -> None:
    for policy in BY_NAME:
        for mode in ("enforce", "warn", "audit", "off"):
            create(kube, labels={names.policy_label(policy): mode}, dryRun="All")
    # The NetworkPolicy lets namespaces with it read the metrics.
    create(kube, labels={f"{DOMAIN}/metrics": "scrape"}, dryRun="All")
    listed = [(annotation, value) for annotation, values in VALID.items() for value in values]
    for annotation, value in [*listed, ("example.com/scheduling", "on")]:
        create(kube, annotations={annotation: value}, dryRun="All")


@pytest.mark.control("mistyped-labels")
@pytest.mark.parametrize(
    ("labels", "annotations", "named"),
    [
        ({"scheduling": "on"}, {}, ["scheduling", '"on"', "warn, audit or off"]),
        ({"scheduling": "Enforce"}, {}, ['"Enforce"', "warn, audit or off"]),
        ({"eviction": ""}, {}, ['""', "warn, audit or off"]),
        ({"sheduling": "enforce"}, {}, ["sheduling", "scheduling", "eviction"]),
        ({}, {"scheduling": "enforce"}, ["annotation", "scheduler-name"]),
        *(
            ({}, {key.removeprefix(f"{DOMAIN}/"): "hosts"}, [key, '"hosts"', f"use {choices_of(values)}"])
            for policy in BY_NAME.values()
            for key, values in policy.annotations.items()
            if values
        ),
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


@pytest.mark.control("mistyped-labels")
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


@pytest.mark.control("labels-by-subresources")
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


@pytest.mark.control("many-labels")
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


@pytest.mark.control("mistyped-labels")
@pytest.mark.parametrize(
    ("made", "word"),
    [
        (written("labels", instancetypes="no"), '"no"'),
        (written("annotations", instancetypes="no"), '"no"'),
        (written("template annotations", spread="hosts"), '"hosts"'),
        (written("template labels", defaults="none"), '"none"'),
        (written("template annotations", defaults="none"), '"none"'),
        # What YAML makes of `off` without quotes, and what kubectl makes of other values without them.
        (written("template labels", defaults=False), 'the invalid value "false" (use "off", in quotes)'),
        (written("template annotations", spread=False), '(use "off", "hostname", "zone", "both", in quotes)'),
        (written("template annotations", defaults=0), '"0"'),
        (written("template annotations", spread=1.5), '"1.5"'),
        # Each counts in one of the two places alone.
        (written("annotations", spread="zone"), "no effect"),
        (written("labels", defaults="off"), "no effect"),
        (written("annotations", defaults="off"), "no effect"),
        (written("template labels", instancetypes="off"), "no effect"),
        (written("template annotations", instancetypes="off"), "no effect"),
        (written("template labels", spread="off"), "no effect"),
        (written("template annotations", group="db"), "no effect"),
        # Another value stands where it counts.
        (written("annotations", written("template annotations", spread="zone"), spread="off"), "no effect"),
        (written("labels", written("template annotations", defaults="off"), defaults="no"), "no effect"),
        (written("labels", written("template labels", group="db"), group="web"), "no effect"),
        # No owner can opt out of these.
        (written("labels", scheduling="off"), "no effect"),
        (written("annotations", eviction="off", sizes="off"), "no effect"),
        # Nor do these belong to a VM.
        (written("annotations", **{"scheduler-name": "kubevirt"}), "an annotation of namespaces alone"),
        (written("annotations", instancetype="off"), "an annotation of VMIs without a VM alone"),
        (written("template labels", default="off"), "is it defaults?"),
        (written("template annotations", spred="off"), "is it spread?"),
        (written("annotations", nonsense="off"), "known are "),
    ],
)
def test_a_mistake_in_a_vm_is_a_warning(kube: Kube, made: Json, word: str) -> None:
    (warning,) = kube.create(VMS, made, "default", dryRun="All").warnings
    assert "kubevirt-webhook: " in warning
    assert word in warning
    # `review` says the same.
    (said,) = misplaced.warnings(made, "VM")
    assert warning.endswith(said)


@pytest.mark.control("mistyped-labels")
@pytest.mark.parametrize(
    ("place", "key", "value", "word"),
    [
        ("labels", "defaults", "no", '"no"'),
        ("annotations", "spread", "none", '"none"'),
        ("labels", "spread", "off", "no effect"),
        ("annotations", "size-limits", "", "an annotation of namespaces alone"),
        ("annotations", "nonsense", "", "known are "),
    ],
)
def test_a_mistake_in_a_vmi_without_a_vm_is_a_warning(kube: Kube, place: str, key: str, value: str, word: str) -> None:
    made = vmi_of(vm())
    made["metadata"][place] = {f"{DOMAIN}/{key}": value}
    (warning,) = kube.create(VMIS, made, "default", dryRun="All").warnings
    assert word in warning
    (said,) = misplaced.warnings(made, "VMI")
    assert warning.endswith(said)
    # What KubeVirt makes of a VM or a replica set has another author.
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "web", "uid": "1", "controller": True}
    made["metadata"]["ownerReferences"] = [owner]
    assert kube.create(VMIS, made, "default", dryRun="All").warnings == ()


@pytest.mark.control("mistyped-labels")
def test_an_old_mistake_is_not_said_again(kube: Kube) -> None:
    made = written("labels", defaults="off", nonsense="x", instancetypes="no")
    made["metadata"]["name"] = "mistaken"
    assert len(kube.create(VMS, made, "default").warnings) == 3

    def patched(**labels: str) -> tuple[str, ...]:
        return kube.patch(VMS, "mistaken", {"metadata": {"labels": labels}}, "default").warnings

    assert patched(team="a") == ()
    (warning,) = patched(**{f"{DOMAIN}/instancetypes": "never"})
    assert '"never"' in warning
    kube.delete(VMS, "mistaken", "default")


def test_what_is_valid_in_a_vm_gets_no_warning(kube: Kube) -> None:
    off = {f"{DOMAIN}/defaults": "off", f"{DOMAIN}/instancetypes": "off"}
    both = vm()
    # Where it counts, and where it does not.
    both["metadata"] |= {"labels": off}
    both["spec"]["template"]["metadata"] |= {"labels": off, "annotations": {names.SPREAD_ANNOTATION: "zone"}}
    for made in (both, written("labels", instancetypes="off"), written("template annotations", defaults="off"), vm()):
        assert kube.create(VMS, made, "default", dryRun="All").warnings == ()


def test_the_policy_of_the_faq_keeps_the_labels_of_namespaces_for_admins(cluster: Access, kube: Kube) -> None:
    mode, spread = f"{DOMAIN}/scheduling", f"{DOMAIN}/spread"
    create(kube, "kept", labels={mode: "enforce"}, annotations={spread: "zone"})
    everything = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    owner = user_with(cluster, "owner-of-kept", everything, "kept")
    update = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["patch"]}
    trusted = user_with(cluster, "trusted-with-policies", [update])
    page = documents_under("faq.md", "Keep the labels of namespaces for admins")
    role = next(document["metadata"]["name"] for document in page if document["kind"] == "ClusterRole")

    def relabel(client: Kube, field: str = "labels", **values: str | None) -> Json:
        written = {f"{DOMAIN}/{key}": value for key, value in values.items()} or {"team": "a"}
        return client.patch(NAMESPACES, "kept", {"metadata": {field: written}}, dryRun="All")

    relabel(owner, scheduling="off")
    for document in page:
        kube.apply(document)
    bind(kube, role, {"apiGroup": RBAC, "kind": "User", "name": "trusted-with-policies"})
    allowed = partial(may, trusted, "change", "namespace-policies", "", DOMAIN)
    eventually(allowed, what="the authorizer to know the role of the page")
    try:
        said = eventually(lambda: denial(lambda: relabel(owner, scheduling="off")), what="the policy to be in force")
        assert said.status == HTTPStatus.FORBIDDEN
        assert "only admins of the cluster change" in said.message
        attempts: list[tuple[str, dict[str, str | None]]] = [
            ("labels", {"scheduling": None}),
            ("labels", {"eviction": "off"}),
            ("annotations", {"spread": "off"}),
            ("annotations", {"spread": None}),
        ]
        for field, values in attempts:
            assert denial(partial(relabel, owner, field, **values)), values
            relabel(kube, field, **values)
            relabel(trusted, field, **values)
        # All else of the namespace is the owner's.
        relabel(owner)
        relabel(owner, "annotations")
        relabel(owner, scheduling="enforce")
    finally:
        for document in reversed(page):
            kube.delete(kube.resource_of(document), document["metadata"]["name"])
