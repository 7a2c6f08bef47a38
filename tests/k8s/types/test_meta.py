from __future__ import annotations

import json

import msgspec
import pytest

from webhook.k8s.resources import NAMESPACES
from webhook.k8s.types.core import PendingPod, SchedulingPod
from webhook.k8s.types.meta import OwnerReference, decode_status, unix_time
from webhook.kubevirt.resources import INSTANCETYPES, VMIS
from webhook.kubevirt.types.views import VirtualMachine, VirtualMachineInstance


@pytest.mark.parametrize(
    ("timestamp", "unix"),
    [
        *(("2026-11-21T12:00:00Z", 1795262400.0), ("2026-11-21T12:00:00.250000Z", 1795262400.25)),
        *(("2026-11-21T13:00:00+01:00", 1795262400.0), ("2026-11-21T12:00:00", None), ("now", None), (None, None)),
    ],
)
def test_timestamps(timestamp: str | None, unix: float | None) -> None:
    assert unix_time(timestamp) == unix


@pytest.mark.parametrize(
    ("api_version", "group"), [("kubevirt.io/v1", "kubevirt.io"), ("v1", ""), (None, ""), ("a/b/c", "a")]
)
def test_group_of_an_owner(api_version: str | None, group: str) -> None:
    assert OwnerReference(api_version=api_version).group == group


OF_ADMISSION = """
configmaps "a" is forbidden: exceeded quota: q, requested: count/configmaps=1
pods "a" is forbidden: failed quota: q: must specify limits.cpu for: webhook
pods "a" is forbidden: maximum memory usage per Container is 64Mi, but limit is 512Mi
pods "a" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true
deployments.apps "a" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no
admission webhook "p.example.org" denied the request: no
"""
OF_THE_ACCOUNT = """
namespaces "a" is forbidden: User "bob" cannot get resource "namespaces" in API group ""
clusterroles "a" is forbidden: user "bob" is attempting to grant RBAC permissions not currently held
Unauthorized
"""


@pytest.mark.parametrize(
    ("message", "is_of_admission"),
    [(line, told is OF_ADMISSION) for told in (OF_ADMISSION, OF_THE_ACCOUNT) for line in told.strip().split("\n")],
)
def test_what_another_account_may_not_do_either(message: str, is_of_admission: bool) -> None:
    body = json.dumps({"kind": "Status", "status": "Failure", "message": message}).encode()
    assert decode_status(body).is_of_admission is is_of_admission


def test_a_line_of_plain_text_is_the_message() -> None:
    said = "Client sent an HTTP request to an HTTPS server."
    assert decode_status(f"{said}\n".encode()).text == said


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff", b"[]", b"{}", b"{", b"a\nb", b"a\x1bb", b"a" * 201])
def test_what_is_no_status_says_nothing(body: bytes) -> None:
    status = decode_status(body)
    assert (status.text, status.is_of_admission, status.is_of_terminating_namespace) == ("no message", False, False)


@pytest.mark.parametrize("body", [b"{}", b'{"metadata": null, "spec": null}', b'{"spec": {"schedulerName": null}}'])
def test_everything_may_be_absent_or_null(body: bytes) -> None:
    for view in (SchedulingPod, VirtualMachine, VirtualMachineInstance, PendingPod):
        decoded = msgspec.json.decode(body, type=view)
        assert decoded.meta.label("a") is None
        assert decoded.meta.annotation("a") is None
        assert decoded.meta.controller_owner() is None


def test_scheduler_of_a_vm_without_template_and_paths_of_resources() -> None:
    assert (VirtualMachine().scheduler_name, VirtualMachineInstance().scheduler_name) == ("", "")
    assert NAMESPACES.path(name="demo") == "/api/v1/namespaces/demo"
    assert VMIS.path("demo", "a") == "/apis/kubevirt.io/v1/namespaces/demo/virtualmachineinstances/a"
    assert INSTANCETYPES.path() == "/apis/instancetype.kubevirt.io/v1beta1/virtualmachineinstancetypes"
    assert (INSTANCETYPES.api_version, NAMESPACES.api_version) == ("instancetype.kubevirt.io/v1beta1", "v1")
