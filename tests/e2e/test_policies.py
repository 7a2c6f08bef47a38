"""`manifests policies` on a real API server: what it does by itself is what the webhooks do."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from hack.controlplane import bundles
from webhook import names
from webhook.install.policies import policies
from webhook.k8s.types.selectors import find_malformed
from webhook.placement.nodes import RESERVED_PREFIXES, SCHEDULABLE, reserved_keys
from webhook.policies.migration.virtualmachineinstancemigrations import MAX_ADDED, PIN_RESOURCE, PIN_VERB
from webhook.settings.file import parse

from .conftest import OwnPlane
from .support import versions
from .support.access import Access
from .support.kube import Json, Kube, KubeError, KubeObject, denial, eventually
from .support.migrations import migration
from .support.objects import crds, obj
from .support.rbac import grant
from .support.shipped import definitions
from .support.workloads import MARK, MIGRATIONS, VMIS, scheduler_of, vm, vmi_of

pytestmark = pytest.mark.kubernetes(versions.MUTATING_POLICIES)

SETTINGS: Json = {
    "schedulers": {"kubevirt": {"healthCheck": "off"}, "batch": {"healthCheck": "off"}},
    "kubevirt": {"namespace": "kubevirt"},
    "migration": {"requireRight": True},
}
MODES = ("enforce", "warn", "audit", "off")
OWNER = "owner"


@pytest.fixture(scope="module", params=["", *bundles.kubevirt_releases()], ids=lambda release: release or "minimal")
def plane(module_plane: OwnPlane, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Access:
    """One with the policies and a namespace for each mode, and one whose scheduler is another.

    The policies know the types of KubeVirt's kinds where KubeVirt's definitions tell them, so these count.
    """
    bundle = tmp_path_factory.mktemp("crds") / "crds.json"
    started = module_plane(definitions=crds(definitions(request.param, bundle) if request.param else None))
    admin = started.admin
    for mode in MODES:
        labels = {names.policy_label(policy): mode for policy in (names.SCHEDULING, names.MIGRATION)}
        namespace(admin, mode, labels)
    namespace(admin, "unlabelled", {})
    enforce = {names.policy_label(names.SCHEDULING): "enforce"}
    namespace(admin, "batch", enforce, {names.SCHEDULER_NAME_ANNOTATION: "batch"})
    namespace(admin, "undeclared", enforce, {names.SCHEDULER_NAME_ANNOTATION: "bach"})
    rules = [
        {"apiGroups": ["kubevirt.io"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [names.DOMAIN], "resources": [PIN_RESOURCE], "verbs": [PIN_VERB]},
    ]
    grant(admin, OWNER, rules)
    grant(admin, "clerk", rules[:1])
    for document in policies(parse(json.dumps(SETTINGS).encode(), "settings")):
        admin.apply(document, fieldValidation="Strict")
    eventually(lambda: scheduler_of(create(admin, "enforce")) == "kubevirt", what="the mutating policy")
    eventually(lambda: denial_of(admin, {"a b": ""}), what="the policy of migrations")
    eventually(lambda: create(admin, "warn").warnings, what="the warnings of VMIs")
    eventually(lambda: migrate(admin, {"a b": ""}, "warn").warnings, what="the warnings of migrations")
    return started


@pytest.fixture
def kube(plane: Access) -> Kube:
    return plane.kube(OWNER)


def namespace(kube: Kube, name: str, labels: Mapping[str, str], annotations: Mapping[str, str] | None = None) -> None:
    kube.make(obj("Namespace", name, labels=labels, annotations=annotations or {}))


def create(kube: Kube, place: str, scheduler: str | None = None, **metadata: Any) -> KubeObject:
    manifest = vmi_of(vm("web", scheduler=scheduler))
    manifest["metadata"] |= metadata
    return kube.create(VMIS, manifest, place, dryRun="All")


def migrate(
    kube: Kube, added: Mapping[str, Any], place: str = "enforce", name: str = "away", **spec: Any
) -> KubeObject:
    manifest = migration("web", added, **spec)
    return kube.create(MIGRATIONS, {**manifest, "metadata": {"name": name}}, place, dryRun="All")


def denial_of(kube: Kube, added: Mapping[str, Any], place: str = "enforce", **more: Any) -> KubeError | None:
    return denial(lambda: migrate(kube, added, place, **more))


# -- schedulers --------------------------------------------------------------------------------------------------------


def test_a_namespaces_own_label_and_annotation_choose(kube: Kube) -> None:
    for place in ("enforce", "batch", "undeclared", "warn", "audit", "off", "unlabelled", "default"):
        chosen = {"enforce": "kubevirt", "batch": "batch"}.get(place)
        vmi = create(kube, place)

        assert scheduler_of(vmi) == chosen
        assert vmi["metadata"].get("annotations", {}).get(MARK) == chosen
        assert bool(vmi.warnings) == (place == "warn")
    annotated = create(kube, "enforce", annotations={"a": "b"})
    assert annotated["metadata"]["annotations"] == {"a": "b", MARK: "kubevirt"}


def test_the_owners_choice_wins(kube: Kube) -> None:
    for theirs, place in itertools.product(["default-scheduler", "volcano"], ["enforce", "warn"]):
        vmi = create(kube, place, scheduler=theirs)
        assert (scheduler_of(vmi), vmi.warnings) == (theirs, ())


# -- migrations --------------------------------------------------------------------------------------------------------

LONG = "a" * 63
KEYS = [
    *("a", "A.b-c_d", "0", LONG, f"{LONG}b", "", "-a", "a-", "a b", "ä", "a/b", "/a", "a/", "a/b/c", "A/b", "a_b/c"),
    *("a.b/c", "a..b/c", "-a/b", f"{'a.' * 126}a/b", f"{'a.' * 127}a/b", f"a/{LONG}", f"a/{LONG}b", "a\n", "\ta", '"'),
    *(SCHEDULABLE, "kubevirt.io/other", "kubernetes.io/hostname", "topology.kubernetes.io/zone", "a" * 5000),
    *(f"{prefix}x" for prefix in RESERVED_PREFIXES),
]
VALUES = ["", "a", "A.b-c_d", "0", LONG, f"{LONG}b", "-a", "a-", "a b", "ä", "a/b", "a\n", "\n", '"', "'", "a" * 5000]


def selectors() -> Iterator[dict[str, str]]:
    yield from ({key: "a"} for key in KEYS)
    yield from ({"a": value} for value in VALUES)
    yield from ({left: "", right: "b"} for left, right in itertools.pairwise(KEYS))
    yield {f"k{number}": "" for number in range(MAX_ADDED)}
    yield {f"k{number}": "" for number in range(MAX_ADDED + 1)}


def test_a_selector_is_denied_as_the_webhook_denies_it(kube: Kube) -> None:
    for added in selectors():
        malformed = len(added) > MAX_ADDED or find_malformed(added, "")
        expected = 422 if malformed else 403 if reserved_keys(added) else None
        found = denial_of(kube, added)

        assert (found and found.status) == expected, added
        if found:
            assert len(found.message) < 1000
            assert "kubevirt-webhook: " in found.message


def test_a_selector_as_large_as_etcd_takes_it_is_denied_for_its_length(kube: Kube) -> None:
    found = denial_of(kube, {f"{number:07}{'k' * 40}": "v" for number in range(20_000)})

    assert found is not None
    assert found.status == 422
    assert f"more than {MAX_ADDED} keys" in found.message


def test_what_has_no_effect_or_looks_like_kubevirts_own_is_denied(kube: Kube) -> None:
    names: list[Any] = [{"name": "kubevirt-evacuation-x"}, {"name": "kubevirt-workload-update-x"}]
    for more in (*names, {"sendTo": {"migrationID": "m", "connectURL": "a:1"}}):
        found = denial_of(kube, {"zone": "b"}, **more)

        assert found is not None
        assert found.status == 422
        assert denial_of(kube, {}, **more) is None


def test_modes(kube: Kube) -> None:
    for place in (*MODES, "unlabelled"):
        found = denial_of(kube, {"a b": ""}, place)
        assert bool(found) == (place == "enforce")
        if not found:
            assert bool(migrate(kube, {"a b": ""}, place).warnings) == (place == "warn")


def test_choosing_nodes_takes_the_right_to_it(plane: Access) -> None:
    found = denial_of(plane.kube("clerk"), {"zone": "b"})

    assert found is not None
    assert found.status == 403
    assert "migrationtargets" in found.message
    assert denial_of(plane.kube("clerk"), {}) is None
    assert denial_of(plane.kube(OWNER), {"zone": "b"}) is None


@pytest.mark.parametrize(("place", "may"), [("kubevirt", True), ("shop", False)])
def test_virtctls_requests_are_sent_by_virt_api_alone(plane: Access, place: str, may: bool) -> None:
    user = f"system:serviceaccount:{place}:kubevirt-apiserver"
    grant(plane.admin, user, [{"apiGroups": ["kubevirt.io"], "resources": ["*"], "verbs": ["*"]}])

    if may:
        # The authorizer learns of the role by a watch.
        eventually(lambda: not denial_of(plane.kube(user), {"zone": "b"}), what="virt-api to be allowed")
    else:
        eventually(lambda: not denial_of(plane.kube(user), {}), what="the role to be known")
        assert denial_of(plane.kube(user), {"zone": "b"})
