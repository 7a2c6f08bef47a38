"""The facts that answers reveal of revisions, instancetypes, preferences and namespaces: a test for each kind."""

from __future__ import annotations

import itertools
import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from tests import builders
from tests.attacks.canaries import (
    CANARY,
    MUTATE_VM,
    MUTATE_VMI,
    SCHEDULE_VM,
    VALIDATE_VM,
    Facts,
    planted,
    review,
    settings,
    show,
    silent,
)
from tests.builders import Json, known
from tests.policies.instancetypes import world as sizes
from webhook import names
from webhook.admission.reasons import instancetypes, scheduling
from webhook.facts import NamespaceKey, ObjectKey
from webhook.k8s.types.meta import Namespace, Unstructured
from webhook.kubevirt.resources import CLUSTER_INSTANCETYPES, REVISIONS, UNSTRUCTURED
from webhook.kubevirt.types.views import ControllerRevision, Instancetype
from webhook.settings.model import InstancetypeSettings

# -- ControllerRevisions -----------------------------------------------------------------------------------------------

DAEMONSET = {
    "metadata": {
        "name": "r1",
        "namespace": "demo",
        "labels": {"a": "b"},
        "annotations": {"a": "b"},
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
        ],
    },
    "data": {"spec": {"template": {"spec": {"containers": [{"env": [{"name": "TOKEN", "value": "s"}]}]}}}},
}
# Fields that make a DaemonSet's revision look like KubeVirt's.
DISGUISES: dict[str, Json] = {
    "none": {},
    "kind": {"data": {"kind": "VirtualMachineInstancetype"}},
    "version only": {"data": {"apiVersion": "instancetype.kubevirt.io/v1beta1"}},
    "all but the owner": {
        "data": {"kind": "VirtualMachineInstancetype", "apiVersion": "instancetype.kubevirt.io/v1beta1"},
        "labels": {
            "instancetype.kubevirt.io/object-name": "u1",
            "instancetype.kubevirt.io/object-kind": "VirtualMachineInstancetype",
        },
    },
}
NAMING_ONE: list[tuple[str, Json]] = [
    (VALIDATE_VM, sizes.vm(instancetype={"name": "x", "revisionName": "r1"})),
    (VALIDATE_VM, sizes.vm(preference={"name": "x", "revisionName": "r1"})),
    (MUTATE_VM, sizes.vm(preference={"name": "x", "revisionName": "r1"})),
    (MUTATE_VM, sizes.vm(instancetype={"name": "x", "revisionName": "r1"})),
    (SCHEDULE_VM, builders.vm(instancetype={"name": "x", "revisionName": "r1"})),
]


def revision_facts(revision: Json | None) -> Facts:
    facts: Facts = known() | sizes.facts()
    for resource, view in ((UNSTRUCTURED["ControllerRevision"], Unstructured), (REVISIONS, ControllerRevision)):
        with suppress(msgspec.ValidationError):
            facts[ObjectKey(resource, "demo", "r1")] = None if revision is None else msgspec.convert(revision, view)
    return facts


@pytest.mark.parametrize("disguise", DISGUISES)
@pytest.mark.parametrize("missing", ["warn", "deny"])
@pytest.mark.parametrize("mode", ["enforce", "warn"])
@pytest.mark.parametrize(("path", "obj"), NAMING_ONE)
def test_a_foreign_revision(path: str, obj: Json, mode: str, missing: Any, disguise: str) -> None:
    """No user learns anything about it, not even that it exists."""
    worn = DISGUISES[disguise]
    revision = planted(DAEMONSET, ["metadata.ownerReferences"])
    revision["data"] |= worn.get("data", {})
    revision["metadata"]["labels"] |= worn.get("labels", {})
    for expand, allowed in itertools.product([False, True], [None, ("u1.small",)]):
        section = InstancetypeSettings(missing=missing, expand=expand, allowed=allowed)
        made = settings(instancetypes=section)
        shown = show(path, review(obj), revision_facts(revision), made, mode)
        absent = show(path, review(obj), revision_facts(None), made, mode)

        silent(shown, shown.audit, shown.patch)
        assert (shown.requester, shown.patch) == (absent.requester, absent.patch)
        assert shown.asked == absent.asked


@pytest.mark.parametrize(
    "data",
    [
        {"spec": {"cpu": {"guest": CANARY}}},
        {"spec": {"memory": {"guest": CANARY}}},
        {"spec": {"annotations": {CANARY: {CANARY: CANARY}}}},
        {"spec": {"nodeSelector": {CANARY: 1}}},
        {"spec": {"cpu": [CANARY]}},
        {"kind": {CANARY: CANARY}},
        {"metadata": {"labels": {CANARY: 1}}},
        {"apiVersion": f"instancetype.kubevirt.io/{CANARY}"},
        {"apiVersion": "instancetype.kubevirt.io/v1alpha2", "spec": {CANARY: CANARY}},
    ],
)
@pytest.mark.parametrize("path", [VALIDATE_VM, MUTATE_VM])
def test_a_captured_revision_that_can_not_be_decoded(path: str, data: Json) -> None:
    """To who names it: which field has the wrong type, never a value or a key."""
    revision = sizes.revision("r1", sizes.instancetype())
    revision["data"] = revision["data"] | data
    obj = sizes.vm(instancetype={"name": "u1.small", "revisionName": "r1"}, preference={"name": "fedora"})
    facts = revision_facts(revision) | sizes.facts([sizes.preference()])
    shown = show(path, review(obj), facts, settings(instancetypes=InstancetypeSettings(missing="deny")))

    silent(shown, shown.audit, shown.patch)


# -- instancetypes and preferences -------------------------------------------------------------------------------------

FULL_INSTANCETYPE: Json = {
    "apiVersion": "instancetype.kubevirt.io/v1beta1",
    "kind": "VirtualMachineClusterInstancetype",
    "metadata": {
        "name": "u1.small",
        "uid": "u",
        "labels": {"a": "b"},
        "annotations": {"a": "b"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u"}],
    },
    "spec": {
        "cpu": {"guest": 2, "model": "m"},
        "memory": {"guest": "4Gi"},
        "schedulerName": "s",
        "ioThreadsPolicy": "p",
        "nodeSelector": {"a": "b"},
        "annotations": {"a": "b"},
        "gpus": [{"name": "g", "deviceName": "d"}],
    },
}
FULL_PREFERENCE: Json = {
    "apiVersion": "instancetype.kubevirt.io/v1beta1",
    "kind": "VirtualMachineClusterPreference",
    "metadata": {"name": "fedora", "uid": "u", "labels": {"a": "b"}, "annotations": {"a": "b"}},
    "spec": {
        "annotations": {"a": "b"},
        "preferredSubdomain": "s",
        "machine": {"preferredMachineType": "m"},
        "devices": {"preferredDiskBus": "b"},
        "volumes": {"preferredStorageClassName": "c"},
        "requirements": {"cpu": {"guest": 8}, "memory": {"guest": "1Gi"}},
    },
}
APPLIED = "applied-3b9a"
_OWED = ("apiVersion", "kind", "metadata.name", "spec.memory", "spec.requirements")
BOTH = {"instancetype": {"name": "u1.small"}, "preference": {"name": "fedora"}}
SET_TOO: Json = {"schedulerName": "mine", "nodeSelector": {"mine": "x"}, "ioThreadsPolicy": "auto"}


def sized_facts() -> Facts:
    """No output shows the metadata; only the patch shows the spec."""
    objects = [planted(one, (*_OWED, "spec")) for one in (FULL_INSTANCETYPE, FULL_PREFERENCE)]
    for one in objects:
        one["spec"] = json.loads(json.dumps(planted({"spec": one["spec"]}, _OWED)["spec"]).replace(CANARY, APPLIED))
    return sizes.facts(objects) | {
        ObjectKey(CLUSTER_INSTANCETYPES, "", "u1.small"): msgspec.convert(objects[0], Instancetype)
    }


@pytest.mark.parametrize(
    ("path", "obj", "code"),
    [
        (VALIDATE_VM, sizes.vm(**BOTH), instancetypes.DENIED),
        (
            VALIDATE_VM,
            sizes.vm({"cpu": {"cores": 1}, "memory": {"guest": "1Gi"}}, template=SET_TOO, **BOTH),
            instancetypes.DENIED,
        ),
        (MUTATE_VM, sizes.vm(**BOTH), instancetypes.OWNER_CHOSE_INSTANCETYPE),
        (MUTATE_VM, sizes.vm(instancetype=BOTH["instancetype"]), instancetypes.EXPANDED),
        (MUTATE_VM, sizes.vm(), instancetypes.DEFAULTS_INJECTED),
        (MUTATE_VMI, sizes.vmi(annotations={names.INSTANCETYPE_ANNOTATION: "u1.small"}), instancetypes.APPLIED),
        (
            MUTATE_VMI,
            sizes.vmi({"memory": {"guest": "1Gi"}}, annotations={names.INSTANCETYPE_ANNOTATION: "u1.small"}, **SET_TOO),
            instancetypes.DENIED,
        ),
        (SCHEDULE_VM, builders.vm(instancetype={"name": "u1.small"}), scheduling.INSTANCETYPE_SETS_SCHEDULER),
    ],
)
def test_an_instancetype_and_a_preference(path: str, obj: Json, code: str) -> None:
    """A user who names them learns which fields they set, and the amounts that KubeVirt's denials compare. All fields
    that they apply appear only in the requester's own object, as KubeVirt would write it; their metadata never appears.
    """
    section = InstancetypeSettings(default_instancetype="u1.small", virtual_machine_instances=True, expand=True)
    if code == instancetypes.DEFAULTS_INJECTED:
        section = msgspec.structs.replace(section, expand=False)
    shown = show(path, review(obj), sized_facts(), settings(instancetypes=section))

    assert shown.verdict.decision.code == code
    silent(shown, shown.audit, shown.patch)
    assert APPLIED not in shown.requester
    assert (APPLIED in shown.patch) is (code in (instancetypes.EXPANDED, instancetypes.APPLIED))


# -- the namespace -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["enforce", "warn", "off", CANARY])
def test_the_namespace(mode: str) -> None:
    """To who sends an object to it: the mode, the defaults and the allow-list; no other label or annotation."""
    ours = {names.policy_label("instancetypes"): mode}
    parameters = {names.ALLOWED_INSTANCETYPES_ANNOTATION: "u1.*"}
    meta = planted({"name": "demo", "labels": {"a": "b"}, "annotations": {"a": "b"}}, ["name"])
    meta["labels"] |= ours
    meta["annotations"] |= parameters
    facts = sizes.facts([sizes.instancetype("big")]) | {
        NamespaceKey("demo"): msgspec.convert({"metadata": meta}, Namespace)
    }
    shown = show(VALIDATE_VM, review(sizes.vm(instancetype={"name": "big"})), facts, mode="as given")

    assert (shown.verdict.decision.code == instancetypes.NOT_ALLOWED) is (mode in ("enforce", "warn"))
    silent(shown)


# -- objects that the webhook never reads ------------------------------------------------------------------------------


def test_volumes_and_their_sources_are_never_read() -> None:
    """PersistentVolumeClaims, DataVolumes, DataSources and VolumeSnapshots, of whatever namespace a VM names."""
    source = {"kind": "DataSource", "name": "s", "namespace": "other"}
    templates = [{"metadata": {"name": "d"}, "spec": {"sourceRef": source, "storage": {}}}]
    inferred = {"inferFromVolume": "root"}
    for path, section in itertools.product((MUTATE_VM, VALIDATE_VM), (False, True)):
        for matchers in ({"instancetype": inferred}, {"preference": {"name": "fedora"}}, {"preference": inferred}):
            made = settings(instancetypes=InstancetypeSettings(default_instancetype="u1.small", expand=section))
            obj = sizes.vm(dataVolumeTemplates=templates, **matchers)
            shown = show(path, review(obj), sized_facts(), made)
            read = {key.resource.kind for key in shown.asked if isinstance(key, ObjectKey)}
            assert read <= {"VirtualMachineClusterInstancetype", "VirtualMachineClusterPreference"}
    assert not {kind for kind in UNSTRUCTURED if "Volume" in kind or "DataSource" in kind}
