"""What a VM's matchers are by the time that webhooks validate it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.kubevirt.samples import vm
from webhook.cluster.files import FilesCluster
from webhook.forecast.matchers import Inferred, infer_matchers
from webhook.k8s.yaml_documents import parse_documents
from webhook.kubevirt.rules import NEWEST
from webhook.settings.model import Settings

SOURCES = b"""
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: labeled, namespace: demo, labels: {
  instancetype.kubevirt.io/default-instancetype: u1, instancetype.kubevirt.io/default-preference: fedora}}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: bare, namespace: demo}}
"""
INFERRED = {"inferFromVolume": "root"}
IGNORED = INFERRED | {"inferFromVolumeFailurePolicy": "Ignore"}


def infer(claim: str, old: Any = None, **spec: Any) -> Inferred:
    volumes = [{"name": "root", "persistentVolumeClaim": {"claimName": claim}}]
    given = vm({"volumes": volumes, "domain": {"memory": {"guest": "1Gi"}}}, **spec)
    cluster = FilesCluster.of([*parse_documents(SOURCES, "claims.yaml")], Settings())
    return asyncio.run(infer_matchers(given, old, cluster, "demo", NEWEST))


@pytest.mark.parametrize(
    ("claim", "matcher", "name", "has_memory"),
    [
        ("labeled", INFERRED, "u1", True),
        # With this policy KubeVirt takes the memory for virtctl's, which is there in case that nothing is inferred.
        ("labeled", IGNORED, "u1", False),
        ("bare", IGNORED, None, True),
    ],
)
def test_what_is_inferred_stands_in_its_place(claim: str, matcher: Any, name: str | None, has_memory: bool) -> None:
    found = infer(claim, instancetype=matcher)
    spec = found.vm["spec"]
    assert (found.denial, found.unknown, spec.get("instancetype")) == ("", "", {"name": name} if name else None)
    assert ("memory" in spec["template"]["spec"]["domain"]) == has_memory


@pytest.mark.parametrize(
    ("claim", "spec", "field", "text"),
    [
        ("bare", {"preference": INFERRED}, "spec.preference", "default-preference label"),
        ("labeled", {"instancetype": INFERRED | {"name": "x"}}, "spec.instancetype.name", "already set"),
        ("labeled", {"instancetype": {"inferFromVolume": "other"}}, "spec.instancetype", "unable to find volume other"),
    ],
)
def test_what_cannot_be_inferred_is_denied(claim: str, spec: Any, field: str, text: str) -> None:
    found = infer(claim, **spec)
    assert (found.field, text in found.denial, found.unknown) == (field, True, "")


@pytest.mark.parametrize("matcher", [INFERRED, IGNORED])
@pytest.mark.parametrize("template", [{"domain": None}, {"domain": {}}, {}, {"domain": {"memory": None}}])
def test_a_template_need_not_say_what_its_domain_is(template: Any, matcher: Any) -> None:
    volumes = [{"name": "root", "persistentVolumeClaim": {"claimName": "labeled"}}]
    given = vm(instancetype=matcher)
    given["spec"]["template"]["spec"] = {"volumes": volumes, **template}
    cluster = FilesCluster.of([*parse_documents(SOURCES, "claims.yaml")], Settings())
    found = asyncio.run(infer_matchers(given, None, cluster, "demo", NEWEST))
    assert (found.denial, found.unknown, found.vm["spec"]["instancetype"]) == ("", "", {"name": "u1"})


def test_of_a_volume_that_is_not_there_nothing_is_known() -> None:
    found = infer("elsewhere", instancetype=IGNORED)
    assert found.denial == ""
    assert found.unknown == 'what is inferred from volume root: persistentvolumeclaims "elsewhere" not found'


def test_a_vm_that_names_what_it_wants_is_not_looked_at() -> None:
    named = {"instancetype": {"name": "u1"}, "runStrategy": "Always"}
    found = infer("elsewhere", **named)
    assert (found.denial, found.unknown, found.vm["spec"]["instancetype"]) == ("", "", {"name": "u1"})


def test_a_revision_stays_only_with_its_name() -> None:
    pinned = {"name": "u1", "revisionName": "r"}
    old = vm(instancetype=pinned)
    assert infer("labeled", old, instancetype=pinned).denial == ""
    assert infer("labeled", old, instancetype={"name": "u2", "revisionName": "r2"}).denial == ""
    found = infer("labeled", old, instancetype=pinned | {"name": "u2"})
    assert found.field == "spec.instancetype.revisionName"
    assert found.denial == "the Matcher Name has been updated without updating the RevisionName"


@pytest.mark.parametrize("value", [{"spec": 7}, {"spec": {"instancetype": INFERRED, "template": 7}}, {"metadata": 7}])
def test_a_vm_that_cannot_be_read_stays_as_it_is(value: Any) -> None:
    given = vm(instancetype=INFERRED) | value
    cluster = FilesCluster.of([], Settings())
    assert asyncio.run(infer_matchers(given, None, cluster, "demo", NEWEST)) == Inferred(given)
