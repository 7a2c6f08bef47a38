"""What the API server says of an object: by definitions, and by the types that this program has."""

from __future__ import annotations

import asyncio
import copy
import gzip
import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from yarl import URL

from tests.cluster.fake_apiserver import status
from webhook.admission.reasons import common
from webhook.errors import InputError
from webhook.forecast.validation import DryRun, Schemas, applied, merge_patch, schemas_of
from webhook.k8s.client.api import ApiConnectionError
from webhook.kubevirt.releases.release import NEWEST
from webhook.policies.common.ownership import LAST_APPLIED

DEFINITIONS = json.loads(gzip.decompress((Path(__file__).parents[1] / "data" / "kubevirt-crds.json.gz").read_bytes()))
BY_DEFINITIONS = Schemas.of_definitions(DEFINITIONS["items"], "a file")
BY_TABLES = schemas_of(NEWEST)
RESOURCES = {"requests": {"memory": "64M", "cpu": 1}, "limits": {"memory": "1Gi"}}
DOMAIN = {
    "cpu": {"cores": 2},
    "memory": {"guest": "2Gi"},
    "devices": {"disks": [{"name": "root"}]},
    "resources": RESOURCES,
}
VM: dict[str, Any] = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachine",
    "metadata": {"name": "fedora", "labels": {"app": "shop"}},
    "spec": {
        "runStrategy": "Always",
        "template": {"metadata": {}, "spec": {"domain": DOMAIN, "nodeSelector": {"zone": "a"}}},
    },
}
both = pytest.mark.parametrize("schemas", [BY_DEFINITIONS, BY_TABLES], ids=["definitions", "tables"])


def changed(path: str, value: Any, obj: dict[str, Any] = VM) -> dict[str, Any]:
    result = copy.deepcopy(obj)
    *steps, last = path.split(".")
    place = result
    for step in steps:
        place = place[step]
    place[last] = value
    return result


def paths(schemas: Schemas, obj: dict[str, Any]) -> list[str]:
    found = schemas.errors(obj)
    assert found is not None
    return [".".join(map(str, each.path)) for each in found]


@both
@pytest.mark.parametrize(
    ("path", "value"),
    [
        *(("apiVersion", "kubevirt.io/v1beta7"), ("apiVersion", "kubvirt.io/v1"), ("kind", "VirtualMachin")),
        *(("metadata.name", "Fedora_1"), ("metadata.nmae", "x"), ("metadata.labels.app", "not valid")),
        *(("spec.runing", True), ("spec.running", "yes"), ("spec.template.spec.domain.cpus", {"cores": 1})),
        *(("spec.template.spec.domain.cpu.cores", "2"), ("spec.template.spec.domain.memory.guest", "2Gb")),
        ("spec.template.spec.domain.devices.disks", {}),
        ("spec.template.spec.domain.resources.requests.memory", "2Gb"),
        *(("spec.template.spec.domain.resources.limits.cpu", "two"), ("spec.template.spec.nodeSelector.zone", 5)),
    ],
)
def test_what_no_cluster_takes_is_found_where_it_stands(schemas: Schemas, path: str, value: Any) -> None:
    assert (paths(schemas, changed(path, value)), schemas.errors(VM)) == ([path], [])


@pytest.mark.parametrize(
    ("obj", "path"),
    [
        (changed("spec", {"runStrategy": "Always"}), "spec.template"),
        (changed("spec.template.spec.domain.ioThreadsPolicy", 5), "spec.template.spec.domain.ioThreadsPolicy"),
        (changed("spec.template.spec.domain", {"cpu": {}}), "spec.template.spec.domain.devices"),
    ],
)
def test_definitions_show_what_is_required(obj: dict[str, Any], path: str) -> None:
    assert BY_DEFINITIONS
    assert path in paths(BY_DEFINITIONS, obj)
    # A null that the API server drops is no finding.
    assert BY_DEFINITIONS.errors(changed("spec.template.spec.domain.cpu", None)) == []


@pytest.mark.parametrize(
    ("version", "kind", "suggestion"),
    [
        # One that is in another group exactly comes before one that is nearly in this one.
        ("kubevirt.io/v1", "VirtualMachinePool", "pool.kubevirt.io/v1beta1"),
        ("kubevirt.io/v1", "VirtualMachineInstancetype", "instancetype.kubevirt.io/v1beta1"),
        ("instancetype.kubevirt.io/v1beta1", "VirtualMachineInstanceType", "VirtualMachineInstancetype"),
        ("snapshot.kubevirt.io/v1beta1", "VirtualMachineSnapshots", "VirtualMachineSnapshot"),
        # Manuals name groups that never were.
        ("restore.kubevirt.io/v1beta1", "VirtualMachineRestore", "snapshot.kubevirt.io/v1beta1"),
        ("instancetypes.kubevirt.io/v1", "VirtualMachinePreference", "instancetype.kubevirt.io/v1beta1"),
        ("virtualization.deckhouse.io/v1alpha2", "VirtualMachinePool", None),
        # Nobody mistypes a whole word.
        ("snapshot.kubevirt.io/v1beta1", "VirtualMachineSnapshotSchedule", None),
    ],
)
def test_a_kind_in_the_wrong_group_or_nearly_one(version: str, kind: str, suggestion: str | None) -> None:
    found = BY_TABLES.errors({**VM, "apiVersion": version, "kind": kind})
    assert [each.text.rpartition("did you mean ")[2] for each in found or ()] == (
        [f'"{suggestion}"?'] * bool(suggestion)
    )


def test_metadata_that_a_pool_does_not_pass_on_is_not_denied() -> None:
    spec = {"selector": {}, "virtualMachineTemplate": {"spec": VM["spec"]}}
    pool = {**VM, "apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool", "spec": spec}
    path = "spec.virtualMachineTemplate.metadata"
    assert BY_TABLES.errors(changed(path, {"bogus": 1, "annotations": None}, pool)) == []
    assert paths(BY_TABLES, changed(path, {"labels": {"a": 1}}, pool)) == [f"{path}.labels.a"]
    (found,) = BY_TABLES.errors(changed("spec.virtualMachineTemplate.spec.template.metadata.spec", {}, pool)) or []
    assert found.text == f"its VMs are denied: spec.template.metadata.spec {IN_METADATA}"


def test_a_mistyped_kind_has_a_suggestion() -> None:
    found = BY_TABLES.errors(changed("kind", "VirtualMachin")) or []
    assert ['did you mean "VirtualMachine"?' in each.text for each in found] == [True]


@pytest.mark.parametrize(
    "obj",
    [{"apiVersion": "v1", "kind": "Pod"}, {"apiVersion": "vmoperator.vmware.com/v1", "kind": "VirtualMachine"}, {}],
)
def test_objects_of_others_are_not_checked(obj: dict[str, Any]) -> None:
    assert BY_TABLES.errors(obj) is None


@pytest.mark.parametrize("kind", ["VirtualMachine", "VirtualMachineInstance", "VirtualMachineInstancetype"])
def test_the_tables_know_every_field_of_the_definitions(kind: str) -> None:
    """Else a valid field would be an error where there are no definitions."""

    def fields(schema: Any, path: str = "") -> set[str]:
        found = set()
        for name, below in (schema.get("properties") or {}).items():
            found |= {f"{path}.{name}"} | fields(below, f"{path}.{name}")
        return found | (fields(schema["items"], path) if isinstance(schema.get("items"), dict) else set())

    group = "instancetype.kubevirt.io" if "type" in kind else "kubevirt.io"
    version = "v1beta1" if "type" in kind else "v1"
    assert BY_DEFINITIONS
    defined, known = (each._kinds[group][kind].versions[version] for each in (BY_DEFINITIONS, BY_TABLES))
    assert defined
    assert known
    assert fields(defined["properties"]["spec"]) == fields(known["properties"]["spec"])


SERVED = {"resources": [{"name": "virtualmachines", "kind": "VirtualMachine", "namespaced": True}]}
PATH = "/apis/kubevirt.io/v1/namespaces/shop/virtualmachines"


class Connection:
    """Has an answer for each method, and notes the requests."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {"GET": status(404), "POST": VM, "PATCH": VM, "served": SERVED} | answers
        self.asked: list[tuple[Any, ...]] = []
        self.warned: list[str] = []

    async def request(
        self, method: str, path: str, *rest: Any, warnings: list[str] | None = None, **_: Any
    ) -> tuple[int, bytes]:
        self.asked.append((method, path, *rest))
        if warnings is not None:
            warnings += self.warned
        answer = self.answers["served" if path == "/apis/kubevirt.io/v1" else method]
        if isinstance(answer, Exception):
            raise answer
        return answer.get("code", 200), json.dumps(answer).encode()


async def test_a_dry_run_stores_nothing_and_what_exists_is_an_update() -> None:
    strict = {"dryRun": "All", "fieldValidation": "Strict"}
    new, held = Connection(), Connection(GET=VM)
    assert (await DryRun(new).ask(VM, "shop"), new.asked[-1]) == (([], None, ()), ("POST", PATH, strict, VM))
    held.warned = ["use another", "password: hunter2hunter2"]
    assert await DryRun(held).ask(VM, "shop") == ([], VM, ("use another", "password: <redacted>"))
    sent = ("PATCH", f"{PATH}/fedora", strict, applied(VM, VM), "application/merge-patch+json")
    assert held.asked[-1] == sent


@given(name=st.text(st.sampled_from("?#/%.&= a"), min_size=1, max_size=5), exists=st.booleans())
@example(name="web?x=", exists=True)
@example(name="web/status", exists=True)
@example(name="..", exists=True)
def test_no_name_or_namespace_changes_where_a_dry_run_goes(name: str, exists: bool) -> None:
    """A query that is lost would store the object; another path would be another object, or a part of it."""
    for metadata in ({"name": name}, {"name": "fedora", "namespace": name}):
        connection = Connection(GET=VM) if exists else Connection()
        obj = VM | {"metadata": metadata}
        asyncio.run(DryRun(connection).ask(obj, "shop"))
        for method, path, *rest in connection.asked[1:]:
            url = URL(f"http://localhost{path}")
            assert (url.query_string, url.fragment) == ("", "")
            inside, plural, *last = unquote(url.raw_path).split("/")[5:]
            assert (inside, plural) == (metadata.get("namespace", "shop"), "virtualmachines")
            assert last in ([], [metadata["name"]])
            assert method == "GET" or rest[0]["dryRun"] == "All"


CAUSES = {"causes": [{"field": "spec.template.spec.volumes[0].name", "message": "Required value"}]}
WEBHOOK = status(422, "Invalid", 'admission webhook "a.b" denied the request: no')


@pytest.mark.parametrize(
    ("answer", "path", "code"),
    [
        (status(400, "BadRequest", 'strict decoding error: unknown field "spec.runing"'), ("spec", "runing"), ""),
        (status(422, "Invalid", "x") | {"details": CAUSES}, ("spec", "template", "spec", "volumes", "0", "name"), ""),
        (status(422, "Invalid", "it is too long"), (), ""),
        (status(404, "NotFound", 'namespaces "shop" not found'), ("metadata", "namespace"), ""),
        (WEBHOOK, (), common.DRY_RUN_DENIED),
        (status(403, "Forbidden", 'virtualmachines "a" is forbidden: exceeded quota: q'), (), common.DRY_RUN_DENIED),
    ],
)
async def test_what_a_dry_run_denies_is_found_where_it_stands(answer: Any, path: Any, code: str) -> None:
    ((found,), *_) = await DryRun(Connection(POST=answer)).ask(VM, "shop")
    assert ([str(part) for part in found.path], found.code) == (list(path), code or common.INVALID_OBJECT)


ALICE = 'User "alice" cannot create'


async def test_a_kind_that_the_cluster_does_not_serve() -> None:
    ((found,), *_) = await DryRun(Connection(served=status(404))).ask(VM, "shop")
    assert found.path == ("apiVersion",)


@pytest.mark.parametrize(
    ("answer", "part"),
    [
        (status(403, "Forbidden", f"x is forbidden: {ALICE} resource x"), ALICE),
        (status(500, "InternalError", "etcd"), "status 500"),
        (ApiConnectionError("connection refused"), "connection refused"),
        (status(409, "AlreadyExists", "already exists"), "fedora.* exists.*grant get and patch on virtualmachines"),
    ],
)
async def test_an_answer_that_says_nothing_of_the_object_is_no_finding(answer: Any, part: str) -> None:
    """A 403 is about the user: what the cluster would say of the object stays unknown; as of one that he can't read."""
    with pytest.raises(InputError, match=part):
        await DryRun(Connection(POST=answer)).ask(VM, "shop")


def test_what_the_last_apply_had_is_removed_as_by_kubectl() -> None:
    """An owner who corrects a VM takes something out of its manifest; the object that exists has it still."""
    kept = {"name": "web", "labels": {"a": "1"}}
    last = {
        "metadata": {**kept, "namespace": "shop", "annotations": {"x": "y"}},
        "spec": {"cpu": {"cores": 1, "sockets": 4}},
    }
    existing = {"metadata": {**kept, "annotations": {LAST_APPLIED: json.dumps(last)}}, "spec": {"memory": 1}}
    manifest = {"metadata": kept, "spec": {"cpu": {"cores": 4}, "disks": [{"name": "a"}]}}

    patch = applied(manifest, existing)
    assert patch["spec"] == {"cpu": {"cores": 4, "sockets": None}, "disks": [{"name": "a"}]}
    # As kubectl does, it records what is declared, and leaves the annotations of others: the manifest has its own.
    record = json.loads(patch["metadata"]["annotations"].pop(LAST_APPLIED))
    assert record == {**manifest, "metadata": {**kept, "annotations": {}}}
    assert patch["metadata"] == {**kept, "annotations": {"x": None}}
    # What another client wrote stays, as does all without a record.
    assert merge_patch(existing, patch)["spec"] == {"memory": 1, "cpu": {"cores": 4}, "disks": [{"name": "a"}]}
    for record in ({}, {LAST_APPLIED: "{"}, {LAST_APPLIED: "[" * 9999}, {LAST_APPLIED: "3"}):
        patch = applied(manifest, {"metadata": {"annotations": record}})
        assert patch["spec"] == manifest["spec"]
        assert [*patch["metadata"]["annotations"]] == [LAST_APPLIED]
    for malformed in ("text", {**kept, "annotations": "text"}):
        assert applied({"metadata": malformed}, existing)["metadata"] == malformed


def test_a_merge_patch_removes_by_null_and_replaces_lists() -> None:
    assert merge_patch({"a": 1, "b": {"c": [1, 2], "d": 1}}, {"a": None, "b": {"c": [3]}}) == {"b": {"c": [3], "d": 1}}


IN_METADATA = "in body is a forbidden property"


@both
@pytest.mark.parametrize(
    ("metadata", "path", "text"),
    [
        ({"creationTimestamp": None, "labels": {"app": "a"}, "annotations": {}}, "", ""),
        ({"spec": {}}, "spec", IN_METADATA),
        ({"labels": {"gpu": True}}, "labels.gpu", "is the boolean true, but must be a string"),
        ({"labels": []}, "labels", "is a list, but must be an object"),
        (
            {"ownerReferences": [{"king": "a"}]},
            "ownerReferences.0.king",
            f"metadata.ownerReferences.king {IN_METADATA}",
        ),
        ({"creationTimestamp": "yesterday"}, "creationTimestamp", "must be a time"),
        # A key without a value, as a chart leaves it.
        ({"annotations": None}, "annotations", 'in body must be of type object: "null"'),
        ({"labels": {"app": None}}, "labels.app", 'in body must be of type string: "null"'),
    ],
)
def test_virt_api_looks_into_the_metadata_that_definitions_leave_open(
    schemas: Schemas, metadata: Any, path: str, text: str
) -> None:
    template = {**VM["spec"]["template"], "metadata": metadata}
    volume = {"metadata": metadata, "spec": {"source": {"blank": {}}, "storage": {}}}
    pool = {"selector": {}, "virtualMachineTemplate": {"spec": {"runStrategy": "Always", "template": template}}}
    replica_set = {"selector": {}, "template": template}
    kinds = (
        (changed("spec.template.metadata", metadata), "spec.template.metadata"),
        (changed("spec.dataVolumeTemplates", [volume]), "spec.dataVolumeTemplates.0.metadata"),
        (
            VM | {"kind": "VirtualMachineInstanceReplicaSet", "spec": replica_set},
            "spec.template.metadata",
        ),
        (
            VM | {"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool", "spec": pool},
            "spec.virtualMachineTemplate.spec.template.metadata",
        ),
    )
    for obj, holder in kinds:
        found = schemas.errors(obj) or []
        expected = [(f"{holder}.{path}", "virt-api")] if path else []
        assert [(".".join(map(str, each.path)), each.by) for each in found][:1] == expected
        assert all(text in each.text for each in found[:1])


@pytest.mark.parametrize(
    ("field", "hint"),
    [
        ("spec.template.spec.machine", "spec.template.spec.domain.machine"),
        ("spec.template.spec.resources", "spec.template.spec.domain.resources"),
        ("spec.template.spec.disks", "spec.template.spec.domain.devices.disks"),
        ("spec.memory", "spec.template.spec.domain.memory"),
        ("spec.template.networks", "spec.template.spec.networks"),
        ("spec.template.spec.domain.volumes", "spec.template.spec.volumes"),
        ("spec.template.spec.domain.devices.networks", "spec.template.spec.networks"),
        ("spec.template.spec.domain.devices.memory", "spec.template.spec.domain.memory"),
        ("spec.template.spec.runStrategy", "spec.runStrategy"),
        ("spec.template.spec.domain.cpuCores", "spec.template.spec.domain.cpu.cores"),
        # One that is only mistyped, and one that no object has.
        ("spec.template.spec.domain.memry", "memory"),
        ("spec.template.spec.domain.zzz", ""),
    ],
)
def test_a_misplaced_field_gets_its_place(field: str, hint: str) -> None:
    (found,) = BY_TABLES.errors(changed(field, {})) or []
    assert found.text == f'unknown field "{field}"' + (f'; did you mean "{hint}"?' if hint else "")


def test_a_field_in_a_list_that_belongs_above_gets_its_place() -> None:
    disks = [{"name": "a", "disk": {}, "volumes": []}]
    (found,) = BY_TABLES.errors(changed("spec.template.spec.domain.devices.disks", disks)) or []
    assert found.text.endswith('; did you mean "spec.template.spec.volumes"?')


def test_a_field_that_several_objects_have_gets_no_place() -> None:
    (found,) = BY_TABLES.errors(changed("spec.template.spec.domain.features", {"enabled": True})) or []
    assert found.text == 'unknown field "spec.template.spec.domain.features.enabled"'


def test_a_field_named_after_the_object_that_has_it_gets_its_place() -> None:
    spec = {"source": {"kind": "VirtualMachine", "name": "a"}, "templateFilters": ["*"]}
    clone = {**VM, "apiVersion": "clone.kubevirt.io/v1beta1", "kind": "VirtualMachineClone", "spec": spec}
    (found,) = BY_TABLES.errors(clone) or []
    places = '"spec.template.annotationFilters" or "spec.template.labelFilters"'
    assert found.text == f'unknown field "spec.templateFilters"; did you mean {places}?'


@both
def test_virt_api_knows_the_fields_of_a_clock(schemas: Schemas) -> None:
    (found,) = schemas.errors(changed("spec.template.spec.domain.clock", {"utc": {}, "tmer": {}})) or []
    assert (found.by, found.path[-1], IN_METADATA in found.text) == ("virt-api", "tmer", True)


@both
@pytest.mark.parametrize("kind", ["VirtualMachineStorageMigrationPlan", "Anything"])
def test_kinds_of_other_operators_are_not_checked(schemas: Schemas, kind: str) -> None:
    assert schemas.errors({"apiVersion": "migrations.kubevirt.io/v1alpha1", "kind": kind}) is None


def test_what_definitions_lack_is_checked_by_the_releases_own() -> None:
    only_vms = Schemas.of_definitions([DEFINITIONS["items"][1]], "a file")
    assert only_vms
    vm = only_vms.check(VM)
    migration = only_vms.check(VM | {"kind": "VirtualMachineInstanceMigration", "spec": {"vmiNam": "x"}})
    assert vm and migration
    assert ("a file" in vm.against, "KubeVirt 1.9.0's own" in migration.against) == (True, True)
    assert [each.path for each in migration.errors] == [("spec", "vmiNam")]


def test_a_kind_without_fields_is_said() -> None:
    definition = copy.deepcopy(DEFINITIONS["items"][1])
    for version in definition["spec"]["versions"]:
        del version["schema"]
    schemas = Schemas.of_definitions([definition], "a file")
    assert schemas
    checked = schemas.check(changed("spec.runing", True))
    assert checked
    assert (checked.errors, "its fields are not known" in checked.against) == ([], True)


@pytest.mark.parametrize("pattern", [r"^\p{L}+$", "^(a+)+$", "(", "(?=a)a"])
def test_a_pattern_that_cannot_be_evaluated_is_said(pattern: str) -> None:
    definition = copy.deepcopy(DEFINITIONS["items"][1])
    for version in definition["spec"]["versions"]:
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        spec["properties"]["template"]["properties"]["spec"]["properties"]["subdomain"]["pattern"] = pattern
    schemas = Schemas.of_definitions([definition], "a file")
    assert schemas
    checked = schemas.check(changed("spec.template.spec.subdomain", "a" * 40 + "!"))
    assert checked
    assert (checked.errors, [pattern in each for each in checked.unchecked]) == ([], [True])
