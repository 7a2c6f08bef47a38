"""`manifests policies` on a real API server: what it does by itself is what the webhooks do.

And what the shipped policies cost it, by its own count, when an object grows that others write. Time cannot be
asserted, and grows faster than the count: to evaluate an expression that goes through a map takes the square of the
map's size. So a shipped policy goes through no map that others can fill, and its cost does not grow.
"""

from __future__ import annotations

import copy
import itertools
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hack.controlplane import build, bundles
from hack.controlplane.bundles import CEL_COST, Bundle
from webhook import names
from webhook.install.policies import policies
from webhook.install.registration import configurations
from webhook.k8s.types.selectors import find_malformed
from webhook.kubevirt.heartbeat import SCHEDULABLE
from webhook.placement.nodes import RESERVED_PREFIXES, reserved_keys
from webhook.policies.migration.admission_policies import NAME as MIGRATION_POLICY
from webhook.policies.migration.virtualmachineinstancemigrations import MAX_ADDED, PIN_RESOURCE, PIN_VERB
from webhook.policies.scheduling.admission_policies import NAME as SCHEDULER_POLICY
from webhook.settings_file import parse

from .conftest import OwnPlane
from .support import versions
from .support.access import Access
from .support.kube import Json, Kube, KubeError, KubeObject, denial, denied, eventually
from .support.manifests import MANIFESTS
from .support.manifests import parse as documents
from .support.migrations import migration
from .support.objects import crds, obj
from .support.processes import GARBAGE
from .support.rbac import user_with
from .support.webhook_server import ACCOUNT
from .support.workloads import MARK, MIGRATIONS, VMIS, scheduler_of, vm, vmi_of

SETTINGS: Json = {
    "schedulers": {"kubevirt": {"healthCheck": "off"}, "batch": {"healthCheck": "off"}},
    "kubevirt": {"namespace": "kubevirt"},
    "migration": {"requireRight": True},
}
MODES = ("enforce", "warn", "audit", "off")
OWNER = "owner"


# Without the types of KubeVirt's kinds, with those of the oldest release, and of the newest, which has all fields.
RELEASES = sorted(bundles.kubevirt_releases())


def definitions(release: str) -> list[Json]:
    """The definitions that a release of KubeVirt ships, where it has been built."""
    place = build.location({}, build.cache_root(os.environ), bundles.kubevirt_releases()[release])
    binary = place / "virt-operator-objects"
    if not binary.exists():
        pytest.skip(f"KubeVirt {release} is not built: python -m hack.controlplane.build --kubevirt {release}")
    shown = subprocess.run([binary, "kubevirt"], check=True, capture_output=True)
    return crds(json.loads(shown.stdout)["customresourcedefinitions"])


@pytest.fixture(scope="module", params=["", RELEASES[0], RELEASES[-1]], ids=lambda release: release or "minimal")
def plane(module_plane: OwnPlane, request: pytest.FixtureRequest) -> Access:
    """One with the policies and a namespace for each mode, and one whose scheduler is another.

    The policies know the types of KubeVirt's kinds where KubeVirt's definitions tell them, so these count.
    """
    if not versions.MUTATING_POLICIES.is_there:
        pytest.skip(versions.MUTATING_POLICIES.why)
    started = module_plane(definitions=definitions(request.param) if request.param else crds())
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
    user_with(started, OWNER, rules)
    user_with(started, "clerk", rules[:1])
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


@pytest.mark.control("parameters-of-admission-policies")
def test_a_namespaces_own_label_and_annotation_choose(kube: Kube) -> None:
    for place in ("enforce", "batch", "undeclared", "warn", "audit", "off", "unlabelled", "default"):
        expected = {"enforce": "kubevirt", "batch": "batch"}.get(place)
        vmi = create(kube, place)

        assert scheduler_of(vmi) == vmi["metadata"].get("annotations", {}).get(MARK) == expected
        assert bool(vmi.warnings) == (place == "warn")
    annotated = create(kube, "enforce", annotations={"a": "b"})
    assert annotated["metadata"]["annotations"] == {"a": "b", MARK: "kubevirt"}

    # The owner's choice wins.
    for theirs, place in itertools.product(["default-scheduler", "volcano"], ["enforce", "warn"]):
        chosen = create(kube, place, scheduler=theirs)
        assert (scheduler_of(chosen), chosen.warnings) == (theirs, ())


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


@pytest.mark.control("megabyte-selectors-in-cel")
def test_a_selector_is_denied_as_the_webhook_denies_it(kube: Kube) -> None:
    for added in selectors():
        malformed = len(added) > MAX_ADDED or find_malformed(added, "")
        expected = 422 if malformed else 403 if reserved_keys(added) else None
        found = denial_of(kube, added)

        assert (found and found.status) == expected, added
        if found:
            assert len(found.message) < 1000
            assert "kubevirt-webhook: " in found.message

    # One as large as etcd takes it is denied for its length.
    largest = denied(lambda: migrate(kube, {f"{number:07}{'k' * 40}": "v" for number in range(20_000)}))
    assert (largest.status, f"more than {MAX_ADDED} keys" in largest.message) == (422, True)

    # What has no effect, or looks like KubeVirt's own, is denied.
    names: list[Any] = [{"name": "kubevirt-evacuation-x"}, {"name": "kubevirt-workload-update-x"}]
    for more in (*names, {"sendTo": {"migrationID": "m", "connectURL": "a:1"}}):
        assert denied(lambda more=more: migrate(kube, {"zone": "b"}, **more)).status == 422  # type: ignore[misc]
        assert denial_of(kube, {}, **more) is None


def test_modes(kube: Kube) -> None:
    for place in (*MODES, "unlabelled"):
        found = denial_of(kube, {"a b": ""}, place)
        assert bool(found) == (place == "enforce")
        if not found:
            assert bool(migrate(kube, {"a b": ""}, place).warnings) == (place == "warn")


@pytest.mark.control("account-of-kubevirts-name")
def test_choosing_nodes_takes_the_right_to_it(plane: Access) -> None:
    found = denied(lambda: migrate(plane.kube("clerk"), {"zone": "b"}))
    assert (found.status, "migrationtargets" in found.message) == (403, True)
    assert denial_of(plane.kube("clerk"), {}) is None
    assert denial_of(plane.kube(OWNER), {"zone": "b"}) is None
    # virt-api alone sends what virtctl requests.
    for place, may in (("kubevirt", True), ("shop", False)):
        user = f"system:serviceaccount:{place}:kubevirt-apiserver"
        kube = user_with(plane, user, [{"apiGroups": ["kubevirt.io"], "resources": ["*"], "verbs": ["*"]}])
        assert (denial_of(kube, {"zone": "b"}) is None) == may


N = 1000
SHIPPED = {
    one["metadata"]["name"]: one["spec"]
    for file in ("account.yaml", "validation.yaml")
    for one in documents((MANIFESTS / "base" / file).read_text())
    if one["kind"] == "ValidatingAdmissionPolicy"
}
PRINTED = {
    one["metadata"]["name"] + ("-mutating" if one["kind"].startswith("Mutating") else ""): one["spec"]
    for one in policies(parse(json.dumps(SETTINGS).encode(), "settings"))
    if one["kind"] in ("MutatingAdmissionPolicy", "ValidatingAdmissionPolicy")
}
POLICIES = {**SHIPPED, **PRINTED}


@pytest.fixture(scope="session")
def cel_cost(built: Callable[[Bundle], Path]) -> Path:
    return built(CEL_COST) / "cel-cost"


def count(program: Path, policy: Json, requests: Sequence[Json]) -> list[Json]:
    """The cost and the values of a policy's expressions for each request."""
    given = json.dumps({"policy": policy, "requests": requests})
    done = subprocess.run([program], input=given, capture_output=True, text=True, env=GARBAGE | os.environ, check=False)
    assert done.returncode == 0, done.stderr
    found: list[Json] = json.loads(done.stdout)
    return found


def growing(number: int, where: str) -> dict[str, Json]:
    """For each policy a request with so many labels or annotations, which others than the account can write."""
    many = {where: {f"example.com/key-{index}": "value" for index in range(number)}}
    space = obj("Namespace", "shop", **({"labels": {}, "annotations": {}} | many))
    relabeled = copy.deepcopy(space)
    relabeled["metadata"]["labels"][f"{names.DOMAIN}/scheduling"] = "off"
    machine = vm()
    machine["metadata"][where] = many[where] | {f"{names.DOMAIN}/instancetypes": "on"}
    machine["spec"]["template"]["metadata"]["annotations"] = many[where]
    secret = partial(obj, "Secret", "kubevirt-webhook-ca", type="Opaque")
    (configuration, *_) = configurations(parse(b"{}", "settings"))
    changed = copy.deepcopy(configuration)
    changed["metadata"] |= many
    changed["webhooks"] = [{**configuration["webhooks"][0], "name": f"a{index}"} for index in range(number)]
    # Of more keys than are looked at.
    moving = migration("web", many[where])
    moving["metadata"] |= {"name": "away", "namespace": "shop", **many}
    instance = obj("VirtualMachineInstance", "web", **many, spec={"domain": {}})
    mistaken = copy.deepcopy(instance)
    mistaken["metadata"][where] = many[where] | {f"{names.DOMAIN}/instancetypes": "on"}
    here = {"namespace": obj("Namespace", "shop", **({"annotations": {}} | many))}
    return {
        "kubevirt-webhook-namespaces": request("namespaces", relabeled, space),
        "kubevirt-webhook-virtualmachines": request("virtualmachines", machine, vm()),
        "kubevirt-webhook-virtualmachineinstances": request("virtualmachineinstances", mistaken),
        "kubevirt-webhook-account-secret": request("secrets", secret(**many), secret(), user="admin"),
        "kubevirt-webhook-account-configurations": request(
            "mutatingwebhookconfigurations", changed, configuration, user="admin"
        ),
        MIGRATION_POLICY: request("virtualmachineinstancemigrations", moving),
        SCHEDULER_POLICY: request("virtualmachineinstances", instance) | here,
        f"{SCHEDULER_POLICY}-mutating": request("virtualmachineinstances", instance) | here,
    }


def request(resource: str, new: Json, old: Json | None = None, *, user: str = "owner") -> Json:
    operation = "UPDATE" if old else "CREATE"
    return {"operation": operation, "resource": resource, "user": user, "object": new, "oldObject": old}


@pytest.mark.control("many-labels")
@pytest.mark.builds(CEL_COST.name)
@pytest.mark.parametrize("where", ["labels", "annotations"])
@pytest.mark.parametrize("name", POLICIES)
def test_the_cost_of_a_policy_does_not_grow_with_what_others_write(cel_cost: Path, name: str, where: str) -> None:
    once, twice = count(cel_cost, POLICIES[name], [growing(number, where)[name] for number in (N, 2 * N)])

    assert once["values"] == twice["values"]
    assert not [value for value in once["values"] if "error" in value or "no such" in value]
    assert once["cost"] == twice["cost"]


@pytest.mark.builds(CEL_COST.name)
def test_a_whole_configuration_is_compared_within_what_the_api_server_allows(cel_cost: Path) -> None:
    """With every entry and all conditions, by the account of the replicas: a millionth of a second a unit, and 10^7."""
    for made in configurations(parse(b"{}", "settings")):
        resource = f"{made['kind'].lower()}s"
        new = copy.deepcopy(made)
        for entry in new["webhooks"]:
            entry["clientConfig"]["caBundle"] = "eA=="
        (found,) = count(
            cel_cost,
            SHIPPED["kubevirt-webhook-account-configurations"],
            [request(resource, new, made, user=ACCOUNT.user)],
        )

        assert set(found["values"]) == {"true"}
        assert found["cost"] < 1_000_000
