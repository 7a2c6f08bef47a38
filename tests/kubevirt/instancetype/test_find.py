"""Matchers: what they find, the texts that name as much, and what may be forgiven where one is inferred."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kubevirt.samples import among, instancetype, revision, vm
from webhook.errors import InputError
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.instancetype import find
from webhook.kubevirt.instancetype.find import INSTANCETYPE_MATCHER, SpecReference, is_allowed, of_matcher, parse
from webhook.kubevirt.instancetype.infer import Ignorable, infer
from webhook.kubevirt.rejection import NotFound, Rejection
from webhook.kubevirt.rules import read_vm

OBJECTS = [
    instancetype(cpu={"guest": 1}),
    instancetype("VirtualMachineInstancetype", cpu={"guest": 2}),
    revision("captured", instancetype(cpu={"guest": 3}), "u1"),
    revision("unlabelled", instancetype(cpu={"guest": 4})),
]


def guest(matcher: Json, reference: str = "") -> int:
    given = vm(instancetype=matcher)
    given["status"] = {"instancetypeRef": {"controllerRevisionRef": {"name": reference}}} if reference else {}
    spec = INSTANCETYPE_MATCHER.find_spec(read_vm(given), among(OBJECTS))
    assert spec
    return int(spec["cpu"]["guest"])


def test_malformed_objects_and_missing_ones_are_told_apart() -> None:
    broken = instancetype(cpu={"guest": -1})
    with pytest.raises(InputError, match=r"VirtualMachineClusterInstancetype u1.spec.cpu.guest: is not between"):
        INSTANCETYPE_MATCHER.find(read_vm(vm(instancetype={"name": "u1"})), among([broken]))
    with pytest.raises(InputError, match=r"spec.template: is missing"):
        read_vm({"spec": {}})
    with pytest.raises(NotFound, match=r'^virtualmachineclusterinstancetypes.instancetype.kubevirt.io "u2" not found$'):
        guest({"name": "u2"})
    with pytest.raises(NotFound, match=r'^controllerrevisions.apps "r" not found$'):
        guest({"name": "u1"}, "r")
    with pytest.raises(Rejection, match="got unexpected kind in InstancetypeMatcher: Foo"):
        guest({"name": "u1", "kind": "Foo"})


CLUSTER, NAMESPACED = "VirtualMachineClusterInstancetype", "VirtualMachineInstancetype"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        *((text, CLUSTER) for text in ("u1", f"{CLUSTER}/u1", f"{CLUSTER.lower()}/u1")),
        *((text, NAMESPACED) for text in ("virtualmachineinstancetypes/u1", "VirtualMachineInstancetype/u1")),
    ],
)
def test_texts(text: str, kind: str) -> None:
    found = parse(INSTANCETYPE_MATCHER, text, "here")
    assert found == SpecReference(kind, "u1")
    assert found.matcher() == ({"name": "u1"} if kind == CLUSTER else {"kind": kind, "name": "u1"})
    assert parse(INSTANCETYPE_MATCHER, str(found), "here") == found


@pytest.mark.parametrize("text", ["", "/", "/u1", "a/", "u 1", "u1\n", "VirtualMachinePreference/u1", "x" * 254])
def test_texts_that_are_none(text: str) -> None:
    with pytest.raises(InputError) as refused:
        parse(INSTANCETYPE_MATCHER, text, "here")
    assert str(refused.value).startswith("here: ")


@given(st.text())
def test_any_text_is_one_or_a_sentence(text: str) -> None:
    try:
        assert parse(find.PREFERENCE_MATCHER, text, "here").name
    except InputError as error:
        assert "\n" not in str(error).replace(text[:60], "")


@pytest.mark.parametrize("given", [{"kind": None, "name": "u1"}, {"kind": "", "name": "u1", "revisionName": None}])
def test_null_says_nothing_as_in_kubevirt(given: dict[str, str | None]) -> None:
    assert of_matcher(INSTANCETYPE_MATCHER, given) == SpecReference(CLUSTER, "u1")
    assert of_matcher(INSTANCETYPE_MATCHER, {**given, "name": None}) == SpecReference(CLUSTER, "")


@pytest.mark.control("long-allow-lists")
def test_patterns() -> None:
    small = SpecReference(CLUSTER, "u1.small")
    assert is_allowed(["x", "u1.*"], INSTANCETYPE_MATCHER, small)
    assert not is_allowed(["*"], INSTANCETYPE_MATCHER, SpecReference(NAMESPACED, "u1.small"))
    assert not is_allowed(["Foo/*", "u1", "u1.smal?", "u1.[s]mall"], INSTANCETYPE_MATCHER, small)
    # Patterns of any length end, and a name longer than any is on no list.
    longest = SpecReference(CLUSTER, "a" * 253)
    assert is_allowed(["a*" * 253], INSTANCETYPE_MATCHER, longest)
    assert is_allowed(["*"], INSTANCETYPE_MATCHER, longest)
    assert not is_allowed(["a*" * 100_000, "*a" * 100_000 + "b"], INSTANCETYPE_MATCHER, longest)
    assert not is_allowed(["*"], INSTANCETYPE_MATCHER, SpecReference(CLUSTER, "u" * 254))


@given(st.text("ab*"), st.text("ab", min_size=1))
def test_patterns_are_a_shells(pattern: str, name: str) -> None:
    found = is_allowed([pattern], INSTANCETYPE_MATCHER, SpecReference(CLUSTER, name))
    assert found == fnmatchcase(name, pattern)


# -- inference: KubeVirt's recorded answers (tests/vectors) show all the chains ----------------------------------------

PREFIX = "instancetype.kubevirt.io/default-"
LABELS = {f"{PREFIX}instancetype": "u1", f"{PREFIX}instancetype-kind": "K", f"{PREFIX}preference": ""}
BY_CLAIM = {"name": "v", "persistentVolumeClaim": {"claimName": "p"}}


def inferred(labels: Json | None, volume: Json = BY_CLAIM, field: str = "instancetype", **matcher: Any) -> Json:
    """The spec of a VM with a matcher for one of its volumes, beside a claim."""
    template = {"volumes": [{"name": "first"}, volume], "domain": {"memory": {"guest": "1Gi"}}}
    claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": "p", "namespace": "demo", "labels": labels}}
    read = read_vm(vm(template, **{field: {"inferFromVolume": "v", **matcher}}))
    infer(read, among([claim]))
    spec: Json = read["spec"]
    return spec


def test_a_failure_that_may_be_ignored() -> None:
    with pytest.raises(Ignorable, match=f"unable to find required {PREFIX}instancetype label on the volume"):
        inferred(None, inferFromVolumeFailurePolicy="Reject")
    ignored = inferred(None, inferFromVolumeFailurePolicy="Ignore")
    assert "instancetype" not in ignored
    assert ignored["template"]["spec"]["domain"]["memory"] == {"guest": "1Gi"}


def test_failures_that_are_never_ignored() -> None:
    missing = {"name": "v", "persistentVolumeClaim": {"claimName": "q"}}
    with pytest.raises(Rejection, match=r"^unable to find volume v to infer defaults$"):
        inferred(LABELS, {"name": "w"}, inferFromVolumeFailurePolicy="Ignore")
    with pytest.raises(Rejection, match=r'^persistentvolumeclaims "q" not found$'):
        inferred(LABELS, missing, inferFromVolumeFailurePolicy="Ignore")
