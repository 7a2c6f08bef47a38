"""Secrets of objects, put wherever people and tools put them, come out of no endpoint but inside its own JSON patch.

And a canary in every string field of VMs, VMIs, DataVolumes and pods: a secret, by its place or its look, stays in. The
fields are those of KubeVirt's CRDs (tests/data/*-strings.txt: paths, ``[]`` an item, ``*`` a member) and of the
Kubernetes client's pod.
"""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import re
from base64 import b64encode
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests import builders
from tests.annotations import MISTAKES
from tests.builders import UNAVAILABLE, VMI_UID, Json, changed, known, launcher_pod, vmi
from tests.looks import CANARY, LOOKS, TRACES
from tests.policies.eviction import world as evictions
from tests.policies.instancetypes import world as of_instancetypes
from tests.policies.migration.world import migration
from tests.review.memory import KeptInMemory, MemoryCluster
from webhook import names
from webhook.admission.redaction import redact, redact_at
from webhook.errors import InputError, Unavailable
from webhook.facts import Key, NamespaceKey, SchedulerKey, VmiKey
from webhook.k8s.types.meta import Namespace, ObjectMeta
from webhook.names import Mode
from webhook.policies.instancetypes.settings import InstancetypeSettings
from webhook.policies.registry import BY_NAME, ENDPOINTS
from webhook.policy import Endpoint
from webhook.review.reviewer import Evaluation, Reviewer
from webhook.server.events.writer import event_of
from webhook.settings.model import Settings

DISKS = {"devices": {"disks": [{"name": "root", "disk": {}}, {"name": "d", "disk": {}}]}}


class SecretsWorld(MemoryCluster):
    """A cluster that has the given facts, and cannot read any other."""

    async def read(self, key: Key[Any], deadline: float) -> Any:
        return self.facts.get(self.given(key), Unavailable("no answer in time"))


def world(mode: str, dead: bool) -> SecretsWorld:
    labels = dict.fromkeys(map(names.policy_label, BY_NAME), mode)
    there = Namespace(ObjectMeta(name="demo", labels=labels))
    preference = of_instancetypes.preference(devices={"preferredDiskBus": "scsi", "preferredInputBus": "usb"})
    facts = of_instancetypes.facts(
        [of_instancetypes.instancetype(), preference], missing=[("VirtualMachineInstancetype", "gone")]
    )
    facts |= known(vmi()) | {VmiKey("demo", "web01", VMI_UID): vmi()}
    facts |= {NamespaceKey("demo"): there, NamespaceKey("demo", uncached=True): there}
    return SecretsWorld(facts | ({SchedulerKey("kubevirt", "demo"): UNAVAILABLE} if dead else {}))


def settings(expand: bool) -> Settings:
    made = builders.settings(virtual_machine_instances=True)
    chosen = InstancetypeSettings(
        default_instancetype="u1.small",
        default_preference="fedora",
        default_preference_scope="all",
        missing="deny",
        expand=expand,
    )
    return changed(made, instancetypes=chosen)


def body_of(endpoint: Endpoint, obj: Json, old: Json | None, dry_run: bool) -> bytes:
    request = {
        "uid": "u",
        "kind": {
            "group": "policy" if endpoint.sub_resource else endpoint.group,
            "version": endpoint.version,
            "kind": endpoint.kind,
        },
        "subResource": endpoint.sub_resource,
        "name": obj["metadata"]["name"] if endpoint.sub_resource else "",
        "resource": {"group": endpoint.group, "version": endpoint.version, "resource": endpoint.resource},
        "namespace": "demo",
        "operation": "UPDATE" if old else "CREATE",
        "userInfo": {"username": builders.CONTROLLER},
        "object": obj,
        "oldObject": old,
        "dryRun": dry_run,
    }
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


def told(endpoint: Endpoint, body: bytes, cluster: SecretsWorld, made: Settings) -> tuple[str, Evaluation]:
    """All output of an evaluation, except the patch."""
    kept = KeptInMemory()
    reviewer = Reviewer(cluster, lambda: made, kept, kept)

    async def both() -> tuple[Evaluation, bytes]:
        return await reviewer.evaluate(endpoint, body, 1e9), await reviewer.review(endpoint, body, 1e9)

    verdict, answer = asyncio.run(both())
    assert kept.errors == []
    response = json.loads(answer)["response"]
    response.pop("patch", None)
    return json.dumps([response, msgspec.to_builtins(kept.records), str(event_of(endpoint, verdict))]), verdict


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

OBJECTS: dict[str, list[Json]] = {
    "VirtualMachine": [
        of_instancetypes.vm(DISKS),
        of_instancetypes.vm(DISKS, instancetype=of_instancetypes.SMALL, preference=of_instancetypes.FEDORA),
        of_instancetypes.vm({**DISKS, "cpu": {"cores": 2}}, instancetype=of_instancetypes.SMALL),
        of_instancetypes.vm(DISKS, instancetype={"name": "gone"}),
    ],
    "VirtualMachineInstance": [
        of_instancetypes.vmi(DISKS),
        of_instancetypes.vmi(DISKS, annotations={names.INSTANCETYPE_ANNOTATION: "u1.small"}),
        of_instancetypes.vmi(
            {**DISKS, "memory": {"guest": "1Gi"}}, annotations={names.INSTANCETYPE_ANNOTATION: "u1.small"}
        ),
    ],
    "Pod": [launcher_pod()],
    "VirtualMachineInstanceMigration": [migration({"zone": "west"})],
    "Namespace": [
        {
            "metadata": {
                "name": "demo",
                "labels": {names.policy_label(policy): "enforce" for policy in MISTAKES},
                "annotations": {mistake.annotation: mistake.wrong for mistake in MISTAKES.values()},
            },
            "spec": {},
        }
    ],
    "Eviction": [evictions.review()["request"]["object"] | {"spec": {}}],
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
            names.INJECTED_INSTANCETYPE_ANNOTATION: of_instancetypes.SMALL_MARK,
            names.INJECTED_SCHEDULER_ANNOTATION: "kubevirt",
        }
        old["metadata"]["annotations"] = {**old["metadata"].get("annotations", {}), **marks}
        if endpoint.kind == "VirtualMachine":
            old["spec"]["instancetype"] = of_instancetypes.SMALL
            old["spec"]["template"]["spec"]["schedulerName"] = "kubevirt"
    if draw(st.integers(0, 3)) == 0:
        draw(st.sampled_from(MALFORMED))(obj)
    body = body_of(endpoint, obj, old, draw(st.booleans()))
    return endpoint, mode, body, world(mode, draw(st.booleans())), settings(draw(st.booleans()))


@pytest.mark.control("errors-quote-objects")
@hypothesis_settings(
    max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(cases())
def test_no_endpoint_in_no_mode_tells_a_secret(caplog: pytest.LogCaptureFixture, case: Any) -> None:
    caplog.set_level(logging.DEBUG)
    endpoint, _, body, cluster, made = case
    clean(told(endpoint, body, cluster, made)[0])
    clean(caplog.text)


@pytest.mark.control("secrets-in-outputs")
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


@pytest.mark.control("errors-quote-objects")
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


DATA = Path(__file__).parent / "data"
# Fields that hold secrets by nature. Headers and variables get a revealing name, in `put`.
SECRET = re.compile(
    r"cloudInit\w+\.(userData|networkData)(Base64)?$|[hH]eaders\.\[\]\.value$|\.extraHeaders\.\[\]$|\.sev\.(session|dhCert)$"
    r"|\.env\.\[\]\.value$"
)


def fields(name: str) -> list[str]:
    return (DATA / f"{name}-strings.txt").read_text().splitlines()


FIELDS: dict[str, list[str]] = {
    "VirtualMachine": [
        *fields("virtualmachine"),
        *(f"spec.template.{path}" for path in fields("virtualmachineinstance") if path.startswith("spec.")),
    ],
    "VirtualMachineInstance": fields("virtualmachineinstance"),
    "Pod": fields("pod"),
}


def put(obj: Json, path: str, value: str, member: str = "canary") -> Json:
    """The object with a value at a path; headers and variables get a revealing name."""
    steps = path.split(".")
    here: Any = obj
    for at, step in enumerate(steps):
        key: Any = 0 if step == "[]" else member if step == "*" else step
        last = at == len(steps) - 1
        fresh: Any = value if last else [] if steps[at + 1] == "[]" else {}
        if step == "[]":
            here.insert(0, fresh)
        elif last or not isinstance(here.get(key), type(fresh)):
            here[key] = fresh
        here = here[key] if not last else here
    if re.search(r"(Headers|\.env)\.\[\]\.value$", path):
        here["name"] = "X-Auth-Token"
    return obj


@pytest.mark.control("secrets-in-outputs")
def test_the_fields_are_all_there() -> None:
    assert {kind: len(paths) > 200 for kind, paths in FIELDS.items()} == dict.fromkeys(FIELDS, True)
    assert sum("dataVolumeTemplates" in path for path in FIELDS["VirtualMachine"]) > 60
    assert "spec.containers.[].env.[].value" in FIELDS["Pod"]
    assert sum(SECRET.search(path) is not None for paths in FIELDS.values() for path in paths) > 30


@pytest.mark.control("secrets-in-outputs", "outputs-in-tickets")
@pytest.mark.parametrize("kind", FIELDS)
def test_places_of_secrets_are_hidden_and_all_others_readable(kind: str) -> None:
    for path in FIELDS[kind]:
        obj = put({}, path, CANARY)
        secret = SECRET.search(path) is not None
        assert (CANARY not in json.dumps(redact(obj))) is secret, path
        for segment in ("spec", "status"):
            if segment in obj:
                assert (CANARY not in json.dumps(redact_at((segment,), obj[segment]))) is secret, path


@pytest.mark.control("secrets-in-outputs")
@pytest.mark.parametrize("kind", FIELDS)
def test_looks_of_secrets_are_hidden_in_every_field(kind: str) -> None:
    for name, text in LOOKS.items():
        objects = [put({}, path, text) for path in FIELDS[kind]]
        # An object that is not as its kind has it may have them as its keys.
        objects += [put({}, f"{path}.*", "x", member=text) for path in FIELDS[kind]]
        shown = json.dumps(redact(objects))
        assert not any(trace in shown for trace in TRACES), name


BASES: dict[str, Json] = {
    "VirtualMachine": of_instancetypes.vm(
        DISKS, instancetype=of_instancetypes.SMALL, preference=of_instancetypes.FEDORA
    ),
    "VirtualMachineInstance": of_instancetypes.vmi(DISKS),
    "Pod": launcher_pod(),
}


@pytest.mark.control("errors-quote-objects", "secrets-in-outputs")
@pytest.mark.parametrize(
    "endpoint", [e for e in ENDPOINTS if e.kind in FIELDS and e.stage == "enforce"], ids=lambda e: e.path
)
def test_no_endpoint_tells_what_a_field_holds(endpoint: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Denial, causes, warnings, audit annotations, audit line, Event and log."""
    caplog.set_level(logging.DEBUG)
    cluster, made = world("enforce", dead=False), settings(expand=True)
    looks = cycle(LOOKS.values())
    for path in ["metadata.name", "metadata.namespace", "metadata.annotations.*", *FIELDS[endpoint.kind]]:
        obj = put(copy.deepcopy(BASES[endpoint.kind]), path, next(looks))
        if endpoint.sub_resource:
            obj["metadata"].setdefault("name", "x")
        shown, _ = told(endpoint, body_of(endpoint, obj, None, dry_run=False), cluster, made)
        assert not any(json.dumps(trace)[1:-1] in shown for trace in TRACES), path
    assert not any(trace in caplog.text for trace in TRACES)
