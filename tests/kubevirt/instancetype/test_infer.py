"""What may be forgiven where a matcher is inferred; KubeVirt's recorded answers (tests/vectors) show all the chains."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kubevirt.samples import among, vm
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.instancetype.infer import Ignorable, infer
from webhook.kubevirt.rejection import Rejection
from webhook.kubevirt.rules import read_vm

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
