"""Secrets of objects, put wherever people and tools put them, come out of no endpoint but inside its own JSON patch."""

from __future__ import annotations

import copy
import json
import logging
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.builders import Json, launcher_pod
from tests.policies.instancetypes import world as sizes
from tests.secrets import DISKS, SecretsWorld, body_of, settings, told, world
from webhook import names
from webhook.errors import InputError
from webhook.names import Mode
from webhook.review.endpoints import ENDPOINTS, Endpoint
from webhook.settings.model import Settings

CANARY = "hunter2-canary"
ENCODED = b64encode(f"#cloud-config\npassword: {CANARY}\n".encode()).decode()
TEXT = f"#cloud-config\npassword: {CANARY}\nssh_authorized_keys:\n- ssh-ed25519 AAAAC3{CANARY} me@home\n"
KEY = f"ssh-rsa AAAAB3{CANARY} me@home"
APPLIED = json.dumps({"kind": "VirtualMachine", "spec": {"userData": TEXT}})
ANNOTATIONS = {
    "kubectl.kubernetes.io/last-applied-configuration": APPLIED,
    "kubevirt.io/ignitiondata": json.dumps({"ignition": {"version": "3"}, "passwd": CANARY}),
    "example.com/admin-password": CANARY,
    "example.com/note": KEY,
}

VOLUMES = [
    {f"cloudInit{kind}": {member: ENCODED if member.endswith("Base64") else TEXT, "secretRef": {"name": "s"}}}
    for kind in ("NoCloud", "ConfigDrive")
    for member in ("userData", "userDataBase64", "networkData", "networkDataBase64")
]

Place = Callable[[Json], None]


def _spec(obj: Json) -> Json:
    """The path of the VMI's volumes."""
    spec: Json = obj["spec"]["template"]["spec"] if "template" in obj["spec"] else obj["spec"]
    return spec


def annotation(key: str, *, template: bool = False) -> Place:
    def put(obj: Json) -> None:
        where = obj["spec"]["template"] if template and "template" in obj["spec"] else obj
        meta = where.setdefault("metadata", {})
        meta["annotations"] = {**(meta.get("annotations") or {}), key: ANNOTATIONS[key]}

    return put


def volume(number: int) -> Place:
    return lambda obj: _spec(obj).setdefault("volumes", []).append({"name": f"v{number}", **VOLUMES[number]})


def credentials(obj: Json) -> None:
    source = {"secret": {"secretName": "s"}}
    _spec(obj)["accessCredentials"] = [{"sshPublicKey": {"source": source, "propagationMethod": {"noCloud": {}}}}]
    _spec(obj).setdefault("volumes", []).append({"name": "sys", "sysprep": {"secret": {"name": "unattend"}}})


def header(obj: Json) -> None:
    value = {"name": "Authorization", "value": f"Basic {CANARY}"}
    _spec(obj)["livenessProbe"] = {"httpGet": {"port": 80, "httpHeaders": [value]}}


def source(obj: Json) -> None:
    if "template" in obj["spec"]:
        url = f"https://me:{CANARY}@example.com/x"
        spec = {"source": {"http": {"url": url, "extraHeaders": [f"X: {CANARY}"]}}, "storage": {}}
        obj["spec"]["dataVolumeTemplates"] = [
            {"metadata": {"name": "d", "annotations": dict(ANNOTATIONS)}, "spec": spec}
        ]


def environment(obj: Json) -> None:
    for container in obj["spec"].get("containers", ()):
        container["env"] = [{"name": "DB_PASSWORD", "value": CANARY}]


def in_spec(volumes: Any) -> Place:
    return lambda obj: _spec(obj).update(volumes=volumes)


PLACES: list[Place] = [
    *(annotation(key) for key in ANNOTATIONS),
    *(annotation(key, template=True) for key in ANNOTATIONS),
    *(volume(number) for number in range(len(VOLUMES))),
    *(credentials, header, source, environment),
]

MALFORMED: list[Place] = [
    in_spec(TEXT),
    in_spec([{"name": "x", "cloudInitNoCloud": {"userData": [TEXT]}}]),
    lambda obj: obj["metadata"].update(annotations={CANARY: {"password": CANARY}}),
    lambda obj: obj.update(spec=TEXT),
]

MIGRATION: Json = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstanceMigration",
    "metadata": {"name": "move", "namespace": "demo"},
    "spec": {"vmiName": "web01", "addedNodeSelector": {"zone": "west"}},
}

DESCHEDULED = {"requested-by": "sigs.k8s.io/descheduler"}
EVICTION: Json = {
    "apiVersion": "policy/v1",
    "kind": "Eviction",
    "metadata": {"name": "pod", "namespace": "demo", "annotations": DESCHEDULED},
    "spec": {},
}
OBJECTS: dict[str, list[Json]] = {
    "VirtualMachine": [
        sizes.vm(DISKS),
        sizes.vm(DISKS, instancetype=sizes.SMALL, preference=sizes.FEDORA),
        sizes.vm({**DISKS, "cpu": {"cores": 2}}, instancetype=sizes.SMALL),
        sizes.vm(DISKS, instancetype={"name": "gone"}),
    ],
    "VirtualMachineInstance": [
        sizes.vmi(DISKS),
        sizes.vmi(DISKS, annotations={names.INSTANCETYPE_ANNOTATION: "u1.small"}),
        sizes.vmi({**DISKS, "memory": {"guest": "1Gi"}}, annotations={names.INSTANCETYPE_ANNOTATION: "u1.small"}),
    ],
    "Pod": [launcher_pod()],
    "VirtualMachineInstanceMigration": [MIGRATION],
    "Eviction": [EVICTION],
}


def clean(text: str) -> None:
    assert CANARY not in text
    assert ENCODED not in text


@st.composite
def cases(draw: Any) -> tuple[Endpoint, Mode, bytes, SecretsWorld, Settings]:
    endpoint = draw(st.sampled_from(ENDPOINTS))
    mode = draw(st.sampled_from(["enforce", "warn", "audit", "off"]))
    obj = copy.deepcopy(draw(st.sampled_from(OBJECTS[endpoint.kind])))
    for place in draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=6, unique=True)):
        place(obj)
    old = None
    if "UPDATE" in endpoint.operations and draw(st.booleans()):
        old = copy.deepcopy(obj)
        marks = {
            names.INJECTED_INSTANCETYPE_ANNOTATION: sizes.SMALL_MARK,
            names.INJECTED_SCHEDULER_ANNOTATION: "kubevirt",
        }
        old["metadata"]["annotations"] = {**old["metadata"].get("annotations", {}), **marks}
        old["spec"]["instancetype"] = sizes.SMALL
        old["spec"]["template"]["spec"]["schedulerName"] = "kubevirt"
    if draw(st.integers(0, 3)) == 0:
        draw(st.sampled_from(MALFORMED))(obj)
    body = body_of(endpoint, obj, old, draw(st.booleans()))
    return endpoint, mode, body, world(mode, draw(st.booleans())), settings(draw(st.booleans()))


@hypothesis_settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(cases())
def test_no_endpoint_in_no_mode_tells_a_secret(caplog: pytest.LogCaptureFixture, case: Any) -> None:
    caplog.set_level(logging.DEBUG)
    endpoint, _, body, cluster, made = case
    clean(told(endpoint, body, cluster, made)[0])
    clean(caplog.text)


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.path)
@pytest.mark.parametrize("mode", ["enforce", "warn", "audit"])
@pytest.mark.parametrize("expand", [False, True])
def test_all_secrets_at_once(endpoint: Endpoint, mode: str, expand: bool) -> None:
    for given_object in OBJECTS[endpoint.kind]:
        obj = copy.deepcopy(given_object)
        for place in PLACES:
            place(obj)
        clean(told(endpoint, body_of(endpoint, obj, None, False), world(mode, False), settings(expand))[0])


def test_the_patch_may_have_what_the_object_has() -> None:
    """Lists are replaced as a whole: else the tests above would show nothing."""
    obj = copy.deepcopy(OBJECTS["VirtualMachine"][1])
    source(obj)
    for number in range(len(VOLUMES)):
        volume(number)(obj)
    endpoint = next(e for e in ENDPOINTS if e.path == "/mutate/instancetypes/virtualmachines/enforce")
    text, verdict = told(endpoint, body_of(endpoint, obj, None, False), world("enforce", False), settings(True))
    assert verdict.label == "patched"
    clean(text)


@given(st.integers(1, 400))
def test_bodies_that_are_cut_are_not_quoted(length: int) -> None:
    obj = copy.deepcopy(OBJECTS["VirtualMachine"][0])
    for place in PLACES:
        place(obj)
    endpoint = ENDPOINTS[0]
    body = body_of(endpoint, obj, None, False)
    with pytest.raises(InputError) as refused:
        endpoint.codec.decode(body[:-length])
    clean(str(refused.value))
